// The worker: prepares a run, advances it in slices of a few hundredths of a second, and sends what was recorded.
// Messages: prepare, train, pause, step, edge, trial. Every message carries the id of the question.
"use strict";
let run = null, prepared = null, active = null; // `active` is the token of the loop that is running

const say = (message) => postMessage(message);
const later = (task) => setTimeout(task, 0); // lets messages be handled between two slices

function slice(token, id, budget, perSecond, began = performance.now(), first = run.step) {
  if (active !== token) return;
  const start = performance.now(), rows = [];
  const allowed = () => perSecond === Infinity || run.step - first <= perSecond * (performance.now() - began) / 1000;
  while (run.status === "running" && performance.now() - start < budget && allowed()) {
    const row = run.advance();
    if (row) rows.push(row);
  }
  say({ type: "rows", id, rows, step: run.step, status: run.status });
  if (run.status === "running") setTimeout(() => slice(token, id, 30, perSecond, began, first), perSecond === Infinity ? 0 : 30);
  else active = null;
}

// The measured edge, one trial step size at a time.
function edge(id, settings, own) {
  const { spec } = Engine.prepare({ ...settings, optimizer: "gd", nTest: 0 }, own), token = (active = {});
  const search = Engine.findEdge(spec, Math.min(settings.numSteps, 200));
  const look = () => {
    if (active !== token) return;
    const { value, done } = search.next();
    if (done) say({ type: "edge", id, ...value });
    else later(look);
  };
  look();
}

// A whole run for a takeaway: what it recorded, without its parameters.
function trial(id, settings, own) {
  const { spec, theory } = Engine.prepare(settings, own), one = new Engine.Run(spec), rows = [], token = (active = {});
  const go = () => {
    if (active !== token) return;
    const start = performance.now();
    while (one.status === "running" && performance.now() - start < 40) {
      const row = one.advance();
      if (row) { delete row.dW; delete row.dU; delete row.sums; rows.push(row); }
    }
    if (one.status === "running") { say({ type: "progress", id, share: one.step / one.numSteps }); later(go); }
    else say({ type: "trial", id, rows, status: one.status, counts: Array.from(spec.model.counts), theory });
  };
  go();
}

// Runs without each of some sequences, one at a time.
function without(id, settings, own, count) {
  const { spec } = Engine.prepare({ ...settings, optimizer: "gd", nTest: 0 }, own), search = Engine.leaveOneOut(spec, count), token = (active = {});
  const look = () => {
    if (active !== token) return;
    const { value, done } = search.next();
    if (done) say({ type: "trial", id, ...value });
    else { say({ type: "progress", id, ...value }); later(look); }
  };
  look();
}

const ANSWERS = {
  prepare({ id, settings, own }) {
    active = null;
    prepared = Engine.prepare(settings, own);
    run = new Engine.Run(prepared.spec);
    const { spec, parts, theory } = prepared;
    say({ type: "ready", id, model: spec.model, train: parts.train, test: parts.test, fresh: parts.fresh, theory, row: firstRow(),
      patterns: parts.source?.patterns || null, oracle: parts.source instanceof Engine.Mixture && spec.model.decoder === "full" ? parts.source.oracle : null });
  },
  train({ id, perSecond }) { slice((active = {}), id, 15, perSecond || Infinity); },
  pause() { active = null; },
  step({ id, count }) {
    active = null;
    const rows = [];
    for (let k = 0; k < count && run.status === "running"; k++) { const row = run.advance(); if (row) rows.push(row); }
    say({ type: "rows", id, rows, step: run.step, status: run.status });
  },
  edge({ id, settings, own }) { edge(id, settings, own); },
  trial({ id, settings, own, count }) { if (count) without(id, settings, own, count); else trial(id, settings, own); },
};

// Step 0 without moving: what is shown before training.
function firstRow() {
  const { loss, margin } = run.objective.evaluate(run.W, run.U, true);
  return run.record(loss, margin, Engine.fullNorm(run.model, run.objective.gW, run.objective.gU));
}

onmessage = ({ data }) => {
  try { ANSWERS[data.type](data); } catch (error) { say({ type: "error", id: data.id, text: error.message }); }
};
