// Run one setting of the golden tests: the library's arrays in, this engine's records out. Tests read this file; the
// page does not carry it.
(told) => {
  const train = Engine.dataFromLists(told.train), test = Engine.dataFromLists(told.test);
  const model = Engine.modelFromLists(told.start, train.T);
  const { mixture } = told, measured = (target) => Engine.measureTarget(model, train, told.loss, target);
  const target = mixture ? measured(Engine.paperTarget(model, mixture.oracle, mixture.scale)) : null;
  const run = new Engine.Run({ model, train, test, loss: told.loss, optimizer: told.optimizer, scaling: told.scaling, stepSize: told.stepSize,
    numSteps: told.numSteps, target, recordSteps: told.steps });
  const rows = [];
  while (run.status === "running") { const row = run.advance(); if (row) rows.push(row); }
  const last = rows[rows.length - 1], records = {}, targets = { end: { dW: last.dW, dU: last.dU, loss: last.trainLoss, distance: last.distance } };
  if (mixture) Object.assign(targets, { paper: target, attention: measured(Engine.attentionTarget(model, train.n, mixture)) });
  for (const name of Object.keys(told.records)) records[name] = rows.map((row) => row[name]);
  const answer = { status: run.status, steps: rows.map((row) => row.step), records, identity: {}, admissible: Engine.admissibleStep(model, train),
    averages: Array.from(Engine.averages(model, train, last.dW, last.dU, 3).averages),
    attention: Array.from(Engine.lookAt(model, train, last.dW, last.dU, 0).attention) };
  if (told.identity) for (const [name, one] of Object.entries(targets)) {
    const terms = Engine.decompose(model, told.stepSize, last, one);
    const residual = terms.meanLoss - (terms.targetLoss + terms.distanceTerm - terms.returned + terms.gap + terms.defect);
    answer.identity[name] = { ...terms, ...(name === "paper" ? last.identity : {}), residual };
  }
  if (told.theorem) {
    answer.theorem = Engine.theorem1({ model, data: train, startLoss: rows[0].trainLoss, targetLoss: target.loss, targetReadout: target.readout,
      distance: target.distance, stepSize: told.stepSize, numSteps: told.numSteps });
  }
  return answer;
}
