// Run one setting of the golden tests: the library's arrays in, this engine's records out. Tests read this file; the
// page does not carry it.
(told) => {
  const train = Engine.dataFromLists(told.train), test = Engine.dataFromLists(told.test);
  const model = Engine.modelFromLists(told.start, train.T);
  const target = told.target ? Engine.paperTarget(model, told.target.oracle, told.target.scale) : null;
  const run = new Engine.Run({ model, train, test, loss: told.loss, optimizer: told.optimizer, stepSize: told.stepSize,
    numSteps: told.numSteps, target, recordSteps: told.steps });
  const rows = [];
  while (run.status === "running") { const row = run.advance(); if (row) rows.push(row); }
  const last = rows[rows.length - 1], records = {};
  for (const name of Object.keys(told.records)) records[name] = rows.map((row) => row[name]);
  const answer = { status: run.status, steps: rows.map((row) => row.step), records, identity: last.identity,
    attention: Array.from(Engine.lookAt(model, train, last.dW, last.dU, 0).attention), admissible: Engine.admissibleStep(model, train) };
  if (told.target && told.target.theorem) {
    const { distance, targetLoss, targetReadout } = run.identity;
    answer.theorem = Engine.theorem1({ model, data: train, startLoss: rows[0].trainLoss, targetLoss, targetReadout, distance,
      stepSize: told.stepSize, numSteps: told.numSteps });
  }
  return answer;
}
