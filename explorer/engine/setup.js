// Turns settings into everything a run needs: data, start, theory. Settings are the flat record described in settings.js.

// A dataset from plain arrays, as the library writes them: nested lists, mask and relevant optional.
function dataFromLists({ tokens, labels, mask, relevant, name, labelNames }) {
  const n = tokens.length, T = tokens[0].length, d = tokens[0][0].length;
  const flags = (rows) => (rows ? Uint8Array.from(rows.flat(), Number) : null);
  return { n, T, d, name: name || "own data", tokens: Float64Array.from(tokens.flat(2)), labels: Float64Array.from(labels),
    mask: flags(mask), relevant: flags(relevant), pattern: new Int16Array(n * T).fill(-1), labelNames: labelNames || ["-1", "+1"] };
}

function modelFromLists({ keyQuery, readout, multiplicity, decoder, exponent }, T) {
  const flat = (rows) => Float64Array.from(rows.flat(3));
  return makeModel({ W: flat(keyQuery), U: flat(readout), counts: Float64Array.from(multiplicity), T,
    d: decoder === "query" ? keyQuery[0].length : keyQuery[0][0].length, decoder, exponent });
}

// Some sequences of a dataset, in order.
function subset(data, index) {
  const { T, d } = data;
  const pick = (array, width) => {
    if (!array) return null;
    const out = new array.constructor(index.length * width);
    index.forEach((i, k) => out.set(array.subarray(i * width, (i + 1) * width), k * width));
    return out;
  };
  return { ...data, n: index.length, tokens: pick(data.tokens, T * d), labels: pick(data.labels, 1),
    mask: pick(data.mask, T), relevant: pick(data.relevant, T), pattern: pick(data.pattern, T) };
}

// Fresh, training and test parts: drawn here, or cut from the user's own data.
function makeParts(settings, own) {
  if (own) {
    const all = own.tokens instanceof Float64Array ? own : dataFromLists(own), order = makeRandom(settings.seed, "train").shuffled(all.n), quarter = Math.floor(all.n / 4);
    const fresh = settings.start === "first_phase" ? Math.min(settings.nFresh, quarter) : 0, test = Math.min(settings.nTest, quarter);
    const cut = (from, to) => (to > from ? subset(all, order.slice(from, to)) : null);
    return { source: null, fresh: cut(0, fresh), test: cut(fresh, fresh + test), train: bothClasses(cut(fresh + test, all.n)) };
  }
  const source = makeSource(settings), draw = (count, stream) => source.sample(count, makeRandom(settings.seed, stream));
  return { source, train: draw(settings.n, "train"), test: settings.nTest ? draw(settings.nTest, "test") : null,
    fresh: settings.start === "first_phase" ? draw(settings.nFresh, "fresh") : null };
}

function makeStart(settings, parts) {
  const { T, d } = parts.train, shape = { ...settings, T, d };
  if (settings.start === "zero") return zeroStart(shape);
  if (settings.start === "gaussian") return gaussianStart(shape, makeRandom(settings.seed, "start"));
  return firstPhase(shape, parts.fresh);
}

function prepare(settings, own = null) {
  const parts = makeParts(settings, own), model = makeStart(settings, parts);
  const { source, train } = parts, radius = source && source.tokenRadius;
  const oracle = source instanceof Mixture && settings.decoder === "full" ? source.oracle : null;
  const spec = { model, train, test: parts.test, loss: settings.loss, optimizer: settings.optimizer,
    scaling: settings.scaling, stepSize: settings.stepSize, numSteps: settings.numSteps, target: null };
  const theory = { admissible: admissibleStep(model, train, radius), radius: radius || tokenRadius(train), target: null, targets: {} };
  if (oracle && settings.optimizer === "gd" && spec.scaling !== "mean_field") {
    const scale = settings.target || bestScale(model, train, settings.loss, oracle, settings.stepSize, settings.numSteps);
    const measured = (target) => measureTarget(model, train, settings.loss, target), paper = measured(paperTarget(model, oracle, scale));
    theory.targets = { paper, attention: measured(attentionTarget(model, train.n, source)) };
    spec.target = paper;
    const facts = { targetLoss: paper.loss, targetReadout: paper.readout, distance: paper.distance };
    const startLoss = new Objective(model, train, settings.loss).meanLoss(model.W, model.U);
    theory.target = { scale, ...facts, startLoss,
      theorem: theorem1({ model, data: train, radius, startLoss, stepSize: settings.stepSize, numSteps: settings.numSteps, ...facts }) };
  }
  return { spec, parts, theory };
}

// What leaving out each of the first `count` sequences does to the end of a run: how far the parameters are from those of
// the whole run, and the loss of that sequence under both. The sum over the others keeps its 1/n, as in the paper: that is
// their mean with a smaller step. A generator, so that a worker can pause; it yields what was found so far and the
// share of all runs that is done.
function* leaveOneOut(spec, count) {
  const { model, train, loss, stepSize } = spec, { n } = train, all = Array.from({ length: n }, (_, i) => i), found = [], most = Math.min(count, n);
  const end = function* (data, size, before) {
    const run = new Run({ ...spec, train: data, test: null, optimizer: "gd", stepSize: size, target: null, recordSteps: [] });
    while (run.status === "running") { run.advance(); if (run.step % 10 === 0) yield { found, share: (before + run.step / run.numSteps) / (most + 1) }; }
    return run;
  };
  const whole = yield* end(train, stepSize, 0);
  for (let i = 0; i < most; i++) {
    const without = yield* end(subset(train, all.filter((k) => k !== i)), stepSize * (n - 1) / n, i + 1);
    const one = new Objective(model, subset(train, [i]), loss);
    found.push({ distance: fullNorm(model, whole.dW.map((x, k) => x - without.dW[k]), whole.dU.map((x, k) => x - without.dU[k])),
      leftOut: one.meanLoss(without.W, without.U), seen: one.meanLoss(whole.W, whole.U) });
  }
  return { found, moved: fullNorm(model, whole.dW, whole.dU) };
}

// Attention of every class on sequence i at displacement (dW, dU): (classes, queries, tokens), and each class's part.
function lookAt(model, data, dW, dU, i) {
  const one = subset(data, [i]), objective = new Objective(model, one, "logistic");
  const W = model.W.map((x, k) => x + dW[k]), U = model.U.map((x, k) => x + dU[k]);
  const score = objective.forward(W, U, 0);
  return { attention: objective.A, queries: objective.queries, score, parts: Array.from(objective.phi, (x, g) => x * model.ofClass[g]) };
}
