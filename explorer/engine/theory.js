// What the theory says before a run: the constants of Corollary 1 (ours), the admissible step, Theorem 1 for a target.

function shapeOf(data, radius) {
  const T = data.T, R = radius || tokenRadius(data);
  const b1 = (x) => Math.sqrt(T) * R * Math.sqrt(1 + (R * R * x) ** 2);
  const b3 = (x) => { const q = R * R * x; return Math.sqrt(T) * R ** 3 * (q + Math.sqrt(q * q + 4)) / 2; };
  const b2 = (x, H) => b3(x) / Math.sqrt(H) + b1(x) ** 2 / 4;
  return { T, R, b1, b2, b3 };
}

// 1/b2(M) with M = |U_0| + 1, which Theorem 1 allows whatever the target: descent is guaranteed up to here.
function admissibleStep(model, data, radius) {
  return 1 / shapeOf(data, radius).b2(readoutNorm(model, model.U) + 1, model.H);
}

// The paper's theta_* of Section 5.2 in every head, (U_opt, sign W_opt), at theta_0 + scale * theta_*.
function paperTarget(model, oracle, scale) {
  const { G, T, d, U, H } = model, factor = scale / Math.sqrt(H);
  const dW = new Float64Array(G * d * d), dU = new Float64Array(G * T * d);
  for (let g = 0; g < G; g++) {
    let along = 0;
    for (let k = 0; k < T * d; k++) along += U[g * T * d + k] * oracle.U[k];
    const sign = along >= 0 ? 1 : -1;
    for (let k = 0; k < d * d; k++) dW[g * d * d + k] = sign * oracle.W[k] * factor;
    for (let k = 0; k < T * d; k++) dU[g * T * d + k] = oracle.U[k] * factor;
  }
  return { dW, dU };
}

// The target of Section 5.3: every head looks at the relevant tokens so sharply that a share 1/n is left for the others.
function attentionTarget(model, n, { T, M, signal: S, sparsity, oracle }) {
  const { G, d, W, U, H } = model, sharpness = Math.max(0, 8 * Math.sqrt(2 * (M + 1)) / (3 * S * S) * Math.log((1 / sparsity - 1) * n));
  const size = Math.log(n) / (S * Math.sqrt(T / 2)) / Math.sqrt(H), dW = new Float64Array(G * d * d), dU = new Float64Array(G * T * d);
  for (let k = 0; k < dW.length; k++) dW[k] = sharpness * oracle.W[k % (d * d)] - W[k];
  for (let k = 0; k < dU.length; k++) dU[k] = size * oracle.U[k % (T * d)] - U[k];
  return { dW, dU };
}

// A target with the numbers that the theorems need.
function measureTarget(model, data, loss, { dW, dU }) {
  const W = model.W.map((x, k) => x + dW[k]), U = model.U.map((x, k) => x + dU[k]);
  return { dW, dU, loss: new Objective(model, data, loss).meanLoss(W, U), distance: fullNorm(model, dW, dU), readout: readoutNorm(model, U) };
}

// The scale of a grid with the smallest bound target loss + distance term: a fair target to explain a run with.
function bestScale(model, data, loss, oracle, stepSize, numSteps) {
  let best = { bound: Infinity, scale: 1 };
  for (let k = 0; k < 13; k++) {
    const scale = 10 ** (-1 + k / 6), target = measureTarget(model, data, loss, paperTarget(model, oracle, scale));
    const bound = target.loss + target.distance ** 2 / (2 * stepSize * Math.max(numSteps, 1));
    if (bound < best.bound) best = { bound, scale };
  }
  return best.scale;
}

// Theorem 1, our version: its hypotheses for a target with numbers, and what it would guarantee.
function theorem1({ model, data, radius, startLoss, targetLoss, targetReadout, distance, stepSize, numSteps }) {
  const shape = shapeOf(data, radius), { H } = model, D = distance, over = (a, b) => (b <= 0 ? Infinity : a / b);
  const M = Math.max(targetReadout, readoutNorm(model, model.U) + 3.93 * D * D * Math.sqrt(shape.T) * shape.R / Math.sqrt(H));
  const headsNeeded = (40 / 9 * D * D * shape.b3(M)) ** 2;
  const limits = { descent: 1 / shape.b2(M, H), target: over(D * D, numSteps * targetLoss), start: over(D * D, startLoss) };
  const largestStep = Math.min(...Object.values(limits)), slack = 1 + 1e-9;
  return { M, headsNeeded, largestStep, limits, bound: 2 * targetLoss + 5 * D * D / (4 * stepSize * numSteps),
    enoughHeads: Math.sqrt(H) * slack >= Math.sqrt(headsNeeded), smallStep: stepSize <= largestStep * slack };
}

// Whether the loss never rises in `steps` steps of plain descent.
function descends(spec, stepSize, steps) {
  const run = new Run({ ...spec, test: null, optimizer: "gd", stepSize, numSteps: steps, target: null, recordSteps: [] });
  let before = Infinity;
  while (run.status === "running") {
    const { loss } = run.objective.evaluate(run.W, run.U);
    if (!(loss <= before)) return false;
    before = loss;
    if (run.step >= steps) return true;
    run.move(loss, 1);
    run.step++;
  }
  return false;
}

const LARGEST_STEP = 1024; // tried; the slider ends there

// The measured edge: the largest step size, to a factor 2^(1/8), at which the loss never rises. A generator, so that a
// worker can stop between two trials.
function* findEdge(spec, steps) {
  let low = 1;
  while (!descends(spec, low, steps)) { low /= 4; yield null; if (low < 1e-12) return { edge: NaN, capped: false }; }
  let high = 2 * low;
  while (descends(spec, high, steps)) {
    if (high >= LARGEST_STEP) return { edge: high, capped: true };
    [low, high] = [high, 2 * high];
    yield null;
  }
  for (let k = 0; k < 3; k++) {
    const middle = Math.sqrt(low * high);
    [low, high] = descends(spec, middle, steps) ? [middle, high] : [low, middle];
    yield null;
  }
  return { edge: low, capped: false };
}
