// Full-batch descent. A Run evaluates, records, moves. The displacement is stored separately from the start, so that the
// tiny steps of 10^12 heads are not lost to rounding.

// Adam takes the weights of the examples in units that give the largest one at least this.
const LEAST_LOG_WEIGHT = Math.log(1e-3);

// Recorded steps: all up to 100, then about forty for every factor e; the last one always.
const isRecorded = (step, last) => step <= 100 || step === last || step % Math.floor(step / 40) === 0;

class Run {
  // spec: { model, train, test, loss, optimizer, stepSize, numSteps, target: as measured or null, recordSteps: list or null,
  //   scaling: "paper", or "mean_field", in which plain descent multiplies the step of W by the number of heads }
  constructor(spec) {
    Object.assign(this, spec);
    const { model } = spec;
    this.objective = new Objective(model, spec.train, spec.loss);
    this.testObjective = spec.test ? new Objective(model, spec.test, spec.loss) : null;
    this.wanted = spec.recordSteps ? new Set(spec.recordSteps) : null;
    this.dW = new Float64Array(model.W.length);
    this.dU = new Float64Array(model.U.length);
    this.W = model.W.slice();
    this.U = model.U.slice();
    this.turn = spec.scaling === "mean_field" && spec.optimizer === "gd" ? model.H : 1; // of W's step
    this.step = 0;
    this.status = "running"; // then "finished" or "diverged"
    if (spec.optimizer === "adam") this.adam = [this.dW, this.dU].map((x) => ({ m: new Float64Array(x.length), v: new Float64Array(x.length) }));
    const watched = spec.optimizer === "gd" && this.turn === 1 && !(this.wanted && this.wanted.size === 0);
    this.identity = watched ? new Identity(this, spec.target) : null;
  }

  due(step) { return this.wanted ? this.wanted.has(step) : isRecorded(step, this.numSteps); }

  // Evaluate the current step and take it; returns the record if one is due, else null.
  advance() {
    const due = this.due(this.step), { objective } = this;
    const { loss, margin } = objective.evaluate(this.W, this.U, due);
    const gradientNorm = fullNorm(this.model, objective.gW, objective.gU);
    if (!Number.isFinite(loss) || !Number.isFinite(gradientNorm)) { this.status = "diverged"; return null; }
    if (this.identity) this.identity.arrive(loss);
    const row = due ? this.record(loss, margin, gradientNorm) : null;
    if (this.step >= this.numSteps) { this.status = "finished"; return row; }
    if (this.identity) this.identity.leave(loss, gradientNorm);
    this.move(loss, gradientNorm);
    this.step++;
    return row;
  }

  record(loss, margin, gradientNorm) {
    const { model } = this;
    return {
      step: this.step, trainLoss: loss, margin, gradientNorm,
      distance: fullNorm(model, this.dW, this.dU),
      readoutNorm: readoutNorm(model, this.U),
      testLoss: this.testObjective ? this.testObjective.meanLoss(this.W, this.U) : null,
      mass: this.train.relevant ? Array.from(this.objective.mass) : null,
      identity: this.identity && this.target && this.step ? this.identity.terms() : null,
      sums: this.identity ? this.identity.sums() : null,
      dW: this.dW.slice(), dU: this.dU.slice(),
    };
  }

  move(loss, gradientNorm) {
    const { gW, gU } = this.objective;
    if (this.adam) {
      const top = this.largestLogWeight();
      if (top < LEAST_LOG_WEIGHT) this.objective.evaluate(this.W, this.U, false, top - LEAST_LOG_WEIGHT);
      this.shiftByAdam(this.dW, gW, this.adam[0]);
      this.shiftByAdam(this.dU, gU, this.adam[1]);
    } else {
      const size = this.optimizer === "gd" ? this.stepSize : this.unitSize(loss, gradientNorm);
      for (let k = 0; k < gW.length; k++) this.dW[k] += -size * this.turn * gW[k];
      for (let k = 0; k < gU.length; k++) this.dU[k] += -size * gU[k];
    }
    const { W, U } = this.model;
    for (let k = 0; k < W.length; k++) this.W[k] = W[k] + this.dW[k];
    for (let k = 0; k < U.length; k++) this.U[k] = U[k] + this.dU[k];
  }

  // The factor of the gradient for "normalized" and "polyak"; where the loss underflows, everything shares one scale factor.
  unitSize(loss, gradientNorm) {
    const top = this.largestLogWeight();
    let largest = this.stepSize;
    if (top < 0.5 * Math.log(2.2250738585072014e-308)) {
      loss = this.objective.evaluate(this.W, this.U, false, top).loss;
      gradientNorm = fullNorm(this.model, this.objective.gW, this.objective.gU);
      largest = Math.exp(Math.log(this.stepSize) + top);
    }
    if (!(gradientNorm > 0)) return 0;
    return this.optimizer === "normalized" ? this.stepSize / gradientNorm : Math.min(largest, loss / gradientNorm / gradientNorm);
  }

  // The logarithm of the largest weight that an example has in the gradient.
  largestLogWeight() {
    const { labels } = this.train, { scores, loss: kind } = this.objective;
    let top = -Infinity;
    for (let i = 0; i < labels.length; i++) top = Math.max(top, kind.logSlope(labels[i] * scores[i]));
    return top;
  }

  shiftByAdam(place, gradient, { m, v }) {
    const count = this.step + 1, first = 1 - 0.9 ** count, second = 1 - 0.999 ** count;
    for (let k = 0; k < place.length; k++) {
      m[k] = 0.1 * gradient[k] + 0.9 * m[k];
      v[k] = 0.001 * gradient[k] * gradient[k] + 0.999 * v[k];
      place[k] += -this.stepSize * ((m[k] / first) / (Math.sqrt(v[k] / second) + 1e-8));
    }
  }
}

// The exact decomposition of the mean train loss (the ledger's "identity"): for plain descent and any target
//   mean loss = L(target) + (D^2 - |target - theta_k|^2)/(2 eta k) + mean of (c_j + delta_j), j < k.
// The sums taken from the run do not depend on the target, so the page can change the target afterwards.
class Identity {
  // With a target also the positive parts of c_j are summed: what non-convexity costs.
  constructor(run, target) {
    Object.assign(this, { run, target, before: null, loss: 0, first: 0, along: 0, defect: 0, gapUp: 0, defectUp: 0 });
    this.gW = new Float64Array(run.dW.length);
    this.gU = new Float64Array(run.dU.length);
  }

  // At a step, before it is recorded.
  arrive(loss) {
    if (!this.before) return;
    const defect = loss - this.before.loss + this.run.stepSize / 2 * this.before.gradientNorm ** 2;
    this.loss += loss;
    this.defect += defect;
    this.defectUp += Math.max(defect, 0);
  }

  // Before the step is taken.
  leave(loss, gradientNorm) {
    const { run, target } = this, { gW, gU } = run.objective, along = inner(run.model, gW, gU, run.dW, run.dU);
    for (let k = 0; k < gW.length; k++) this.gW[k] += gW[k];
    for (let k = 0; k < gU.length; k++) this.gU[k] += gU[k];
    if (target) this.gapUp += Math.max(loss + inner(run.model, gW, gU, target.dW, target.dU) - along - target.loss, 0);
    this.first += loss;
    this.along += along;
    this.before = { loss, gradientNorm };
  }

  sums() { return { loss: this.loss, first: this.first, along: this.along, defect: this.defect, gW: this.gW.slice(), gU: this.gU.slice() }; }

  terms() {
    const { run } = this, row = { step: run.step, dW: run.dW, dU: run.dU, sums: this };
    return { ...decompose(run.model, run.stepSize, row, this.target), convexityTerm: this.gapUp / run.step, descentTerm: this.defectUp / run.step };
  }
}

// The terms at a recorded step for a target { dW, dU, loss, distance }.
function decompose(model, stepSize, { step, sums, dW, dU }, target) {
  const per = 2 * stepSize * step, away = fullNorm(model, target.dW.map((x, k) => x - dW[k]), target.dU.map((x, k) => x - dU[k]));
  const slope = inner(model, sums.gW, sums.gU, target.dW, target.dU) - sums.along;
  return { meanLoss: sums.loss / step, targetLoss: target.loss, distanceTerm: target.distance ** 2 / per, returned: away ** 2 / per,
    gap: (sums.first + slope) / step - target.loss, defect: sums.defect / step };
}
