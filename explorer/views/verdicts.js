// What the theory says about the run shown: all of it is covered by the golden tests.
const chip = (verdict) => el("span", { class: `chip ${verdict.toLowerCase()}` }, verdict.toLowerCase());

function verdictCard(verdict, title, lines) {
  return el("article", { class: "verdict", "data-verdict": verdict, "data-card": title.dataset?.term }, el("h3", {}, chip(verdict), title), lines.map((line) => el("p", {}, line)));
}

// Theorem 1 for the paper's target: every hypothesis with both sides, and what would make it apply.
function theoremCard(run, row) {
  const { settings: s, theory } = run;
  if (!theory.target || s.loss !== "logistic") {
    const why = s.optimizer !== "gd" ? "plain gradient descent" : isRescaled(s) ? "the paper's scaling" : s.loss !== "logistic" ? "the logistic loss"
      : s.decoder !== "full" ? "the full readout" : "a target, which this page builds from the mixture";
    return verdictCard("SILENT", term("theorem1"), [`The theorem needs ${why}.`]);
  }
  const { theorem, distance, targetLoss } = theory.target, speaks = theorem.enoughHeads && theorem.smallStep;
  const mean = row.identity ? row.identity.meanLoss : null, done = row.step === s.numSteps;
  const lines = [
    `${theorem.enoughHeads ? "✓" : "✗"} Heads needed, to promise the paper's solution of loss ${number(targetLoss, 2)}: ${number(Math.ceil(theorem.headsNeeded))}; you have ${number(s.heads)}.`,
    `${theorem.smallStep ? "✓" : "✗"} Step size: at most ${number(theorem.largestStep, 3)}; yours is ${number(s.stepSize)}.`,
    `Its bound is computed from a target, a solution that can be named before training: the target's loss is ${number(targetLoss, 3)}, its distance from the start ${number(distance, 3)} (the change of all weights of all heads together, root of the sum of squares). The run itself has moved ${number(row.distance, 3)}.`];
  if (!speaks) return verdictCard("SILENT", term("theorem1"), [...lines, `If it applied, it would guarantee a mean loss of at most ${number(theorem.bound, 3)}.`]);
  if (!done) {
    const promise = `It guarantees: the mean loss over ${number(s.numSteps)} steps is at most ${number(theorem.bound)}.`;
    return verdictCard("WAITING", term("theorem1"), [...lines, `${promise} Train to the end to see.`]);
  }
  const kept = mean <= theorem.bound * (1 + 1e-9) ? "HOLDS" : "VIOLATED";
  return verdictCard(kept, term("theorem1"), [...lines, `Guaranteed: mean loss at most ${number(theorem.bound)}; measured: ${number(mean)}.`]);
}

function stepCard(run) {
  const { settings: s, theory, rows } = run;
  if (!isPlain(s)) return verdictCard("SILENT", term("descent"), ["This guarantee is about plain gradient descent in the paper's scaling."]);
  const rose = rows.findIndex((row, k) => k && row.trainLoss > rows[k - 1].trainLoss);
  let seen = `The recorded loss fell all the way to step ${number(run.last.step)}.`;
  if (rows.length < 2) seen = "Nothing has been trained yet.";
  else if (rose > 0) seen = `The loss rose between steps ${number(rows[rose - 1].step)} and ${number(rows[rose].step)}.`;
  const guaranteed = s.stepSize <= theory.admissible && s.decoder === "full" && s.loss === "logistic";
  const verdict = guaranteed ? (rose < 0 ? "HOLDS" : "VIOLATED") : "SILENT";
  return verdictCard(verdict, term("descent", "Every step descends"), [`Guaranteed for step sizes up to ${number(theory.admissible, 3)}; yours is ${number(s.stepSize)}.`, seen]);
}

function generalizationCard(run, row) {
  const { settings: s, theory } = run;
  if (row.testLoss === null) return null;
  if (!row.step) return verdictCard("SILENT", term("theorem2"), ["It is about the gap between test and train loss; nothing has been trained yet."]);
  const lines = [`The gap between test and train loss is ${number(row.testLoss - row.trainLoss, 3)} at step ${number(row.step)}.`];
  if (theory.target && s.loss === "logistic") {
    const { distance: D, targetLoss, theorem } = theory.target, times = (8 / (40 / 9)) ** 2;
    const bound = 4 / run.train.n * (2 * row.step * targetLoss + 9 * D * D / (4 * s.stepSize));
    const worth = bound > Math.log(2) ? `Its bound on the gap says nothing here either: ${number(bound, 3)}, while guessing has a loss of 0.693.`
      : `It would then bound the expected gap by ${number(bound, 3)}.`;
    lines.push(`It needs ${number(times, 3)} times the heads that Theorem 1 needs. ${worth}`);
  }
  return verdictCard("SILENT", term("theorem2"), [...lines, "It is about the average over many data sets; here you see one."]);
}

function showVerdicts(place, run, row) {
  const cards = el("div", {}, theoremCard(run, row), stepCard(run), generalizationCard(run, row));
  if (place.textContent !== cards.textContent) fill(place, ...cards.childNodes); // unchanged cards are kept, so that an open explanation stays
}
