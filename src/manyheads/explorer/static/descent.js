// Full-batch descent. A Run evaluates, records, moves; the displacement from the start is kept apart from the start, so
// that 10^12 heads, which move by tiny steps, move exactly.

// Recorded steps: all up to 100, then about forty for every factor e; the last one always.
const isRecorded = (step, last) => step <= 100 || step === last || step % Math.floor(step / 40) === 0;

class Run {
  // spec: { model, train, test, loss, optimizer, stepSize, numSteps, target: {dW, dU} or null, recordSteps: list or null }
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
    this.step = 0;
    this.status = "running"; // then "finished" or "diverged"
    if (spec.optimizer === "adam") this.adam = [this.dW, this.dU].map((x) => ({ m: new Float64Array(x.length), v: new Float64Array(x.length) }));
    this.identity = spec.target && spec.optimizer === "gd" ? new Identity(this, spec.target) : null;
  }

  due(step) { return this.wanted ? this.wanted.has(step) : isRecorded(step, this.numSteps); }

  // Evaluate the current step and move on; returns the record where one is due, else null.
  advance() {
    const due = this.due(this.step), { objective } = this;
    const { loss, margin } = objective.evaluate(this.W, this.U, due);
    const gradientNorm = fullNorm(this.model, objective.gW, objective.gU);
    if (!Number.isFinite(loss) || !Number.isFinite(gradientNorm)) { this.status = "diverged"; return null; }
    if (this.identity) this.identity.look(loss, gradientNorm);
    const row = due ? this.record(loss, margin, gradientNorm) : null;
    if (this.step >= this.numSteps) { this.status = "finished"; return row; }
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
      identity: this.identity ? this.identity.terms() : null,
      dW: this.dW.slice(), dU: this.dU.slice(),
    };
  }

  move(loss, gradientNorm) {
    const { gW, gU } = this.objective;
    if (this.adam) {
      this.shiftByAdam(this.dW, gW, this.adam[0]);
      this.shiftByAdam(this.dU, gU, this.adam[1]);
    } else {
      const size = this.optimizer === "gd" ? this.stepSize : this.unitSize(loss, gradientNorm);
      for (let k = 0; k < gW.length; k++) this.dW[k] += -size * gW[k];
      for (let k = 0; k < gU.length; k++) this.dU[k] += -size * gU[k];
    }
    const { W, U } = this.model;
    for (let k = 0; k < W.length; k++) this.W[k] = W[k] + this.dW[k];
    for (let k = 0; k < U.length; k++) this.U[k] = U[k] + this.dU[k];
  }

  // The factor of the gradient for "normalized" and "polyak"; where the loss underflows, all is divided by one unit.
  unitSize(loss, gradientNorm) {
    const { labels } = this.train, { scores, loss: kind } = this.objective;
    let top = -Infinity, largest = this.stepSize;
    for (let i = 0; i < labels.length; i++) top = Math.max(top, kind.logSlope(labels[i] * scores[i]));
    if (top < 0.5 * Math.log(2.2250738585072014e-308)) {
      loss = this.objective.evaluate(this.W, this.U, false, top).loss;
      gradientNorm = fullNorm(this.model, this.objective.gW, this.objective.gU);
      largest = Math.exp(Math.log(this.stepSize) + top);
    }
    if (!(gradientNorm > 0)) return 0;
    return this.optimizer === "normalized" ? this.stepSize / gradientNorm : Math.min(largest, loss / gradientNorm / gradientNorm);
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

class Identity {
  // The exact decomposition of the mean train loss for a target (the ledger's "identity"): for plain descent
  //   mean loss = L(target) + (D^2 - |target - theta_k|^2)/(2 eta k) + mean of (c_k + delta_k).
  constructor(run, target) {
    this.run = run;
    this.target = target;
    const { model } = run, W = model.W.map((x, k) => x + target.dW[k]), U = model.U.map((x, k) => x + target.dU[k]);
    this.targetLoss = run.objective.meanLoss(W, U);
    this.distance = fullNorm(model, target.dW, target.dU);
    this.targetReadout = readoutNorm(model, U);
    Object.assign(this, { before: null, sumLoss: 0, gap: 0, gapUp: 0, defect: 0, defectUp: 0 });
  }

  look(loss, gradientNorm) {
    const { run, target, before } = this, { gW, gU } = run.objective;
    if (before) {
      const defect = loss - before.loss + run.stepSize / 2 * before.gradientNorm ** 2;
      this.sumLoss += loss;
      this.gap += before.gap;
      this.gapUp += Math.max(before.gap, 0);
      this.defect += defect;
      this.defectUp += Math.max(defect, 0);
    }
    const awayW = target.dW.map((x, k) => x - run.dW[k]), awayU = target.dU.map((x, k) => x - run.dU[k]);
    const slope = inner(run.model, gW, gU, awayW, awayU);
    this.away = Math.sqrt(inner(run.model, awayW, awayU, awayW, awayU));
    this.before = { loss, gradientNorm, gap: loss + slope - this.targetLoss };
  }

  terms() {
    const k = this.run.step, per = 2 * this.run.stepSize * k;
    if (!k) return null;
    return { meanLoss: this.sumLoss / k, targetLoss: this.targetLoss, distanceTerm: this.distance ** 2 / per,
      returned: this.away ** 2 / per, gap: this.gap / k, defect: this.defect / k,
      convexityTerm: this.gapUp / k, descentTerm: this.defectUp / k };
  }
}
