// The story in nine stops. Each sets the state and frames its subject on the page. `text` says what is being done, `first`
// is shown instead while the run to be pinned is trained, and `seen` says what to look at once the run is done: parts, each
// with the elements it frames, its text, and the theory card it refers to, if any. A wide screen shows all parts at once, a
// narrow one shows them one by one, or several that frame the same elements and fit together. From the first stop with
// `theory` on, the panels of the theory are open.
const ONE_HEAD = { ...OPENING, nTest: 60 }, MANY = { ...ONE_HEAD, heads: 1e6 };
const SLEEPER = { ...STUDY_MIXTURE, n: 40, nTest: 0, start: "zero", stepSize: 2, numSteps: 3000 };
const OPEN = { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, stepSize: 0.5, numSteps: 300 };
const UNSEEN = { ...PRESETS.generalization.settings, nTest: 300 };
const TOUR = [
  { title: "What attention must find", at: ["#maps"], settings: { ...ONE_HEAD, numSteps: 1 }, train: false,
    text: "The task: say which of two patterns a sequence of eight tokens carries. Two of the tokens (filled marks) show it; the other six (open marks) are distractions, and the model is not told which are which.",
    seen: [
      [["#maps"], "An attention head lets every token look at all tokens and average what it sees. The map shows where each token (row) looks (column). Now all squares have the same shade: every token looks at all tokens equally. A good head would learn to look at the two framed columns."],
      [["#cloud"], "In the cloud every sequence stands at the average that its head saw. The crosses are the two patterns: an average of them alone would stand there. Now six distractions of eight pull every average to the middle, and up or down."],
      [["#cloud"], "What the tokens saw is multiplied by weights, the readout, and added up to a score: above 0 the model says label +1, below 0 label −1. Nothing is learned yet, so the score is 0."]] },
  { title: "One head", at: ["#lossChart"], settings: ONE_HEAD, train: true,
    text: "One head learns by plain gradient descent, the method of the paper: at every step all numbers of the model move a little in the direction that lowers the loss. The loss says how wrong the model is on the training sequences: 0.69 is guessing, 0 is perfect.",
    seen: [
      [["#lossChart"], "The loss falls, on the training sequences and on new ones (test)."],
      [["#cloud"], "The two clouds contract onto the crosses: the head looks at the tokens that carry the label, and passes on little else. The arrow is the readout; it points along the pattern of label +1."],
      [["#maps"], "In the map the framed columns get the strongest color. Press Play, or drag the time slider, to see it again."]] },
  { title: "Many heads: attention sleeps", at: ["#lossChart"], settings: MANY, train: true, pin: ONE_HEAD,
    first: "Two runs will be compared. First comes the one with one head, as before.",
    text: "A million heads; their answers are added up and divided by a thousand, the square root of their number. The run with one head is pinned beside it (dashed).",
    seen: [
      [["#lossChart"], "The loss fell here too, though less far than with one head."],
      [["#cloud"], "But the cloud of the million heads did not move. What learned is the readout alone: the readouts of all heads move the same way, so a million small moves add up. Where a head looks is not such a sum, and hardly changes. This is called the lazy regime."],
      [["#bowl"], "The paper's theorem is about this regime. On the line from the start to a good solution, the loss of one head has a hill and flat ground, that of a million heads is a bowl: descent cannot get stuck in a bowl. How many heads are needed depends on the task and on the loss asked for: here about 9 million, to promise a loss as low as that of a solution with loss 0.12."]] },
  { title: "Why it sleeps, and what wakes it", at: ["#cloud"], settings: { ...MANY, scaling: "mean_field" }, train: true, pin: MANY, measure: measureSleep,
    first: "Two runs will be compared again: first the million heads in the paper's scaling.",
    text: "The same million heads with one change: the step of the attention weights is multiplied by the number of heads. The run before is pinned.",
    seen: [
      [["#cloud"], "Now a million heads learn to look, exactly like one head: compare the numbers with those of the stop before. So it was not the number of heads that put attention to sleep."],
      [["#lossChart"], "Heads that start alike stay alike. Together they are exactly one head; in the paper's scaling it is one whose attention learns slower by the number of heads. More heads that are all alike add nothing else."],
      [["#lossChart"], "How long does attention sleep in the paper's scaling? The push on it is only as strong as the loss that is left, and the readout soon makes that small. So the time grows exponentially with the square root of the number of heads. This is a result of this project, with a proof that attention cannot wake before a time that grows this way. Measure it for 1 to 49 heads:"]] },
  { title: "What several heads can do", at: ["#cloud"], settings: { ...PARITY, heads: 8 }, train: true, pin: { ...PARITY, heads: 1 },
    first: "Another task, on which one head will get stuck. Here it comes.",
    text: "Another task, parity: the label says whether the second kind of tokens occurs an even number of times. Eight heads that start differently learn it; the run with one head is pinned.",
    seen: [
      [["#cloud"], "Across: how many of the four tokens are of the second kind. Up or down: what the heads say. The right answers go up, down, up, down, up. Eight heads learn that; one head cannot, whatever its weights. It gets stuck."],
      [["#lossChart"], "The loss of one head stays close to guessing. It is proved how many heads parity needs: half as many as tokens, here two; it is a result of this project. Training finds such weights more easily with more than two."],
      [["#lossChart"], "This holds for tokens that do not know their position. If they do (“Positions” under Data), one head can learn the parity of a few tokens."]] },
  { title: "Where the theorem is silent", at: ["#work"], theory: true, settings: { ...STUDY_MIXTURE, n: 80, heads: 8, stepSize: 0.5, numSteps: 300 }, train: true,
    text: "Eight heads, an ordinary run. Until now all weights started at zero; the paper starts with one gradient step on fresh sequences. The first half of the heads takes that step and the second half its opposite, so that their votes cancel at the start (see “The model at work”). A vote is what these heads add to the score.",
    seen: [
      [["#verdicts"], "The run works: its loss has fallen. Theorem 1, the paper's guarantee about training, says: the lower the loss you ask for, the more heads and the smaller steps it needs, but any loss can be reached.", "theorem1"],
      [["#verdicts"], "About this run it says nothing: it needs vastly more heads and far smaller steps. Silent does not mean wrong, it means that the guarantee does not apply. The card shows what is needed and what this run has, so you see how far apart they are.", "theorem1"],
      [["#verdicts"], "What is proved at 8 heads? That every step lowers the loss, if the step is small enough (the mark on the step-size slider). And this project's forecast: some steps into a run it proves, from the weights alone, how low the loss will get, for any number of heads. The page does not compute it; “Copy as Python” ends with it.", "descent"]] },
  { title: "Where it applies", theory: true, at: ["#verdicts"], settings: { ...PRESETS.literal.settings }, train: true,
    text: "A smaller task, so fewer heads are needed: 100,000 are enough, and the step size is one that Theorem 1 allows. The heads of each half stay alike, so the page computes all of them exactly at the cost of two.",
    seen: [
      [["#verdicts"], "Every condition of Theorem 1 is met, so it bounds the loss, averaged over the run, and the run stays far below the bound. The bound uses the loss and the distance of a target: a solution near the start that can be named in advance. The run need not go there and may do better, as here.", "theorem1"],
      [["#identity"], "The exact decomposition shows how the proof works. The mean loss is exactly the target's loss, plus the cost of moving toward it (distance used up), plus the cost of a loss that is not a bowl (convexity gap) and of steps that are too large (descent defect). The last two are costs only above zero. A true bowl and small steps make them zero or less; with enough heads they cannot get far above it, and that is the theorem."],
      [["#focusChart"], "The attention has not moved: 0.5 on the relevant tokens is the even share, two of four."],
      [["#verdicts"], "“Every step descends” is a simpler guarantee, that the loss falls at every single step; it needs smaller steps and stays silent.", "descent"]] },
  { title: "Generalization and leave-one-out", theory: true, at: ["#lossChart"], settings: UNSEEN, train: true, measure: measureLeftOut, follows: true,
    text: "Does it work on sequences it has not seen? The test loss tells. The training sequences here are few and noisy.",
    seen: [
      [["#lossChart"], "The test loss stays above the train loss: part of what was learned is noise. The difference is called the gap."],
      [["#verdicts"], "Theorem 2 bounds the gap by asking how far the result moves when one training sequence is left out: if no single sequence matters much, little can have been memorized. About this run it says nothing: it needs far more heads, and even with them its bound would be above the loss of guessing.", "theorem2"],
      [["#lossChart"], "Measure it with ten runs, each without one sequence; then try 160 sequences. Four times as many make leaving one out matter about a quarter as much: compare the first row, and the row “what leaving it out adds”. The gap shrinks like that too, but only on average over many data sets."]],
    also: { label: "Try 160 sequences", act: (app) => app.visit({ ...UNSEEN, n: 160 }, UNSEEN, true), after: 160 } },
  { title: "What is open", theory: true, at: ["#focusChart"], settings: { ...OPEN, optimizer: "normalized" }, train: true, pin: OPEN,
    first: "A harder task: one relevant token of eight, and more noise. First, 64 heads trained by plain descent.",
    text: "A harder task: one relevant token of eight, and more noise. 64 heads learn by normalized descent: the gradient is divided by its length, so steps do not fade as the loss gets small. Plain descent is pinned beside it (dashed).",
    seen: [
      [["#focusChart"], "Normalized descent moves the attention of the heads much further than plain descent in the same number of steps."],
      [["#maps"], "In the maps of this run nearly all color is in the framed column, in the pinned maps it is not. Neither the paper nor this project has a theorem that says why. That is open."],
      [["#focusChart"], "To sum up. The paper claims: if a good solution lies near the start, then with enough heads and small steps plain descent trains attention to any loss, and what it learns carries over to new sequences if there are enough of them."],
      [["#focusChart"], "It says nothing about the few heads used in practice, and nothing about how attention finds the relevant tokens, because in its regime attention hardly moves. To finish, put five popular sentences about the paper to the test."]],
    also: { label: "Show the five sentences", act: (app) => app.tour.ask() } },
];

// The waking time: the first step at which the mean attention on relevant tokens is 0.05 above even (0.25).
const SLEEPERS = [1, 4, 9, 16, 25, 36, 49];

async function measureSleep(out, stops) {
  const found = [];
  for (const heads of SLEEPERS) {
    fill(out, wakingPlot(found), el("p", {}, `training ${headsText(heads)} …`));
    const run = await trial({ ...SLEEPER, heads, numSteps: 600 }, null, () => {}, stops);
    const awake = run.rows.find((row) => row.mass[0] > 0.3);
    if (awake) found.push([heads, awake.step]);
  }
  const roots = found.map(([heads]) => Math.sqrt(heads)), logs = found.map(([, step]) => Math.log(step));
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length, [r, l] = [mean(roots), mean(logs)];
  const slope = roots.reduce((sum, x, k) => sum + (x - r) * (logs[k] - l), 0) / roots.reduce((sum, x) => sum + (x - r) ** 2, 0);
  fill(out, wakingPlot(found, (root) => Math.exp(l + slope * (root - r))),
    el("p", {}, `The numbers of heads are spaced by their square roots, 1, 2, 3 … On a straight line, each sleeps longer than the one before by the same factor, here about ${number(Math.exp(slope), 2)}.`));
}

// Waking times on a logarithmic axis against the square root of the number of heads.
function wakingPlot(found, line = null) {
  const width = 340, height = 190, left = 46, bottom = height - 36, last = Math.sqrt(SLEEPERS[SLEEPERS.length - 1]), [low, high] = [2, 600];
  const x = (root) => left + 16 + (width - left - 36) * (root - 1) / (last - 1), y = (step) => bottom - (bottom - 12) * Math.log(step / low) / Math.log(high / low);
  const told = found.map(([heads, step]) => `${headsText(heads)} at step ${number(step)}`).join(", "), center = { "text-anchor": "middle" };
  const tick = (step) => [el("svg:line", { x1: left, x2: width, y1: y(step), y2: y(step), stroke: "var(--line)" }), words(left - 6, y(step) + 3.5, number(step), { ...SOFT, "text-anchor": "end", class: "tick" })];
  return el("svg:svg", { viewBox: `0 0 ${width} ${height}`, class: "waking", role: "img", "aria-label": `Attention 0.05 above even: ${told || "none yet"}` },
    [3, 10, 30, 100, 300].map(tick), el("svg:line", { x1: left, x2: left, y1: 8, y2: bottom, stroke: "var(--soft)" }),
    words(-(bottom + 8) / 2, 11, "steps until awake (log)", { ...SOFT, ...center, transform: "rotate(-90)" }), words((left + width) / 2, height - 3, "number of heads", { ...SOFT, ...center }),
    SLEEPERS.map((heads) => words(x(Math.sqrt(heads)), height - 18, number(heads), { ...SOFT, ...center })),
    line ? el("svg:line", { x1: x(1), x2: x(last), y1: y(line(1)), y2: y(line(last)), stroke: ink("reference"), "stroke-dasharray": "4 3" }) : null,
    found.map(([heads, step]) => [el("svg:circle", { cx: x(Math.sqrt(heads)), cy: y(step), r: 3.5, fill: ink("first") }),
      words(x(Math.sqrt(heads)), y(step) - 8, number(step), center)]));
}

// How leaving out each of ten sequences changes the run shown: a column for each number of sequences measured so far.
async function measureLeftOut(out, stops, { app, columns }) {
  const count = 10, { settings, own, run } = app, mean = (found, name) => number(found.reduce((sum, one) => sum + one[name], 0) / found.length, 3);
  const { last } = run, shown = run.settings === settings && run.status === "finished" && last.testLoss !== null;
  const kind = toLink({ ...settings, n: DEFAULTS.n }), extra = (found) => found.map(({ leftOut, seen }) => ({ adds: leftOut - seen }));
  if (columns.kind !== kind) columns.clear(); // runs that differ in more than their number of sequences are not compared
  columns.kind = kind;
  const tell = (share, found, moved) => {
    if (found.length) columns.set(settings.n, [mean(found, "distance"), moved ? number(moved, 3) : "…", mean(found, "seen"), mean(found, "leftOut"), mean(extra(found), "adds"), shown ? number(last.testLoss - last.trainLoss, 3) : "not trained"]);
    const names = ["leaving one out moves the weights by", "training moved them by", "loss of a sequence trained on", "loss of it when left out", "what leaving it out adds", "gap: test minus train loss"];
    const now = share * (count + 1) < 1 ? `Training with all ${settings.n} sequences …` : `Training without sequence ${found.length + 1} of ${count} …`;
    fill(out, el("p", {}, moved ? `Without one of ${settings.n} training sequences, mean of ${found.length} runs:` : now), moved ? null : el("progress", { value: share, "aria-label": "Measured so far" }),
      columns.size ? el("table", {}, el("tr", {}, el("th", {}, "training sequences"), [...columns.keys()].map((n) => el("td", {}, el("b", {}, n)))),
        names.map((name, k) => el("tr", {}, el("th", { scope: "row" }, name), [...columns.values()].map((column) => el("td", {}, column[k]))))) : null);
  };
  tell(0, []);
  const { found, moved } = await trial(settings, own, (share, sofar) => tell(share, sofar), stops, count);
  tell(1, found, moved);
}

// Merge consecutive short parts that frame the same elements: [what is framed, [indices of the texts], card].
function together(parts) {
  const found = [];
  let before = null, length = 0;
  parts.forEach(([at, text, card], k) => {
    length += text.length;
    if (before && before[0].join() === at.join() && before[2] === card && length < 400) { before[1].push(k); return; }
    found.push((before = [at, [k], card]));
    length = text.length;
  });
  return found;
}

const narrow = matchMedia("(max-width: 899px)");

class Tour {
  constructor(place, app) {
    Object.assign(this, { app, place, at: null, part: 0, framed: null, done: false, asking: false, stops: [], columns: new Map() });
    narrow.addEventListener("change", () => { if (this.at !== null && !this.asking) this.turn(0); });
    this.watch = new ResizeObserver(() => { this.cue(); if (this.fit()) this.look(); });
  }

  go(k) {
    for (const stop of this.stops.splice(0)) stop();
    $("#middle").append($("#takeaways"));
    const stop = TOUR[k], { body } = document;
    body.classList.toggle("touring", Boolean(stop));
    body.classList.toggle("still", Boolean(stop) && !stop.train);
    Object.assign(this, { at: stop ? k : null, part: 0, done: false, asking: false, answer: null, measured: null, measuring: null, columns: new Map() });
    body.classList.remove("asking");
    this.place.hidden = !stop;
    if (!stop) { this.app.folding(); this.point(null); this.app.showLink(); this.app.redraw(); return; }
    this.app.say("");
    $("#hint").textContent = "";
    Object.assign(this.app, { invitation: null, sequence: 0 });
    this.fill(stop, k);
    this.turn(0);
    $("#tourNext").focus({ preventScroll: true });
    this.app.folding();
    this.app.visit(stop.settings, stop.pin || null, stop.train && "play");
    this.follow();
  }

  fill(stop, k) {
    const button = (id, label, act, more = {}) => el("button", { type: "button", id, onclick: act, ...more }, label);
    this.parts = together([[stop.at, stop.text, stop.seen[0][2]], ...stop.seen]);
    this.out = el("div", { class: "note", id: "measureTold", "aria-live": "polite" });
    this.measureButton = stop.measure ? button("measureIt", "Measure it", () => this.measure()) : null;
    this.text = el("p", { id: "tourText", "data-part": 0 });
    this.seen = el("div", { id: "tourSeen" });
    this.alsoButton = stop.also ? button("tourAlso", stop.also.label, () => stop.also.act(this.app)) : null;
    this.more = el("div", { class: "row more", hidden: true }, this.measureButton, this.alsoButton);
    this.words = el("div", {}, this.text, this.seen, this.out);
    this.told = el("div", { class: "told", tabindex: "0", role: "region", "aria-label": "Text of the tour" }, this.words);
    this.down = button("tourMore", "more ▾", () => this.told.scrollBy({ top: this.told.clientHeight * 0.8 }), { "aria-label": "Scroll to more of the text", hidden: true });
    this.told.addEventListener("scroll", () => this.cue());
    this.watch.disconnect();
    for (const node of [this.place, this.told, this.words]) this.watch.observe(node);
    this.kicker = el("p", { class: "kicker" });
    fill(this.place, this.kicker, el("h2", {}, stop.title), el("div", { class: "toldBox" }, this.told, this.down), this.more,
      el("div", { class: "row steer" }, button("tourBack", "Back", () => this.back()), button("tourNext", "", () => this.next(), { class: "primary" }), button("tourEnd", "close", () => this.go(null), { class: "link" })),
      el("ol", { class: "stops" }, TOUR.map(({ title }, n) => el("li", {}, el("button", { type: "button", class: "link", "aria-current": n === k ? "step" : null, "aria-label": `Stop ${n + 1}: ${title}`, title, onclick: () => this.go(n) }, n + 1)))));
  }

  // The line that a stop marks in the attention chart.
  get line() { return (this.at !== null && !this.asking && TOUR[this.at].line) || null; }

  get lastPart() { return !narrow.matches || this.part === this.parts.length - 1; }

  back() { if (this.asking) this.go(this.at); else if (narrow.matches && this.part) this.turn(this.part - 1); else this.go(this.at - 1); }

  next() {
    if (!this.asking && !this.lastPart) { this.turn(this.part + 1); return; }
    const ends = this.at + 1 === TOUR.length;
    this.go(this.at + 1);
    if (ends) this.app.say("That was the tour. Now choose a study under “Start from a study”, or change any setting and press Train.");
  }

  // Show a part of the text and frame its subject; on a wide screen all parts are shown and framed.
  turn(part) {
    this.part = part;
    const one = narrow.matches, ends = this.lastPart;
    this.kicker.textContent = `Stop ${this.at + 1} of ${TOUR.length}${one ? `, part ${part + 1} of ${this.parts.length}` : ""}`;
    $("#tourBack").disabled = this.at === 0 && part === 0;
    $("#tourNext").textContent = ends && this.at + 1 === TOUR.length ? "End of the tour" : "Next";
    this.place.classList.toggle("last", ends);
    const meant = one ? [this.parts[part]] : this.parts;
    document.body.dataset.cards = meant.map(([, , card]) => card || "").join(" ");
    this.mark();
    this.told.scrollTop = 0;
    this.fit();
    this.point([...new Set(meant.flatMap(([at]) => at))]);
  }

  mark() { for (const node of this.words.querySelectorAll("[data-part]")) node.classList.toggle("current", this.parts[this.part][1].includes(Number(node.dataset.part))); }

  // On a phone the text gets as much of the screen as it needs, its subject gets the rest. Returns whether that changed.
  fit() {
    const { style } = document.body, height = `${this.place.offsetHeight}px`;
    if (!narrow.matches || style.getPropertyValue("--sheet") === height) return false;
    style.setProperty("--sheet", height);
    return true;
  }

  // Show a button if there is more text below; text scrolled off above fades out.
  cue() { this.told.parentNode.classList.toggle("scrolled", this.told.scrollTop > 2); this.down.hidden = this.told.scrollTop + this.told.clientHeight >= this.told.scrollHeight - 2; }

  // The five sentences replace the text, so that the curves of the deciding runs are seen beside them.
  ask() {
    Object.assign(this, { asking: true, done: true });
    document.body.classList.add("asking");
    this.kicker.textContent = `Stop ${this.at + 1} of ${TOUR.length}, five sentences`;
    $("#tourNext").textContent = "End of the tour";
    this.words.replaceChildren($("#takeaways"));
    this.more.hidden = true;
    this.told.scrollTop = 0;
    this.point([]);
    this.app.redraw();
  }

  // When an answer arrives, scroll to its beginning and frame its runs.
  showAnswer(one, sets) {
    this.answer = { one, runs: [sets[0][0], sets[sets.length - 1][0]] };
    this.told.scrollTop = $(`#takeaway-${one.id}`).offsetTop;
    this.point(one.at);
  }

  // Which runs are shown beside the sentences.
  shownFor() {
    if (!this.answer) return "";
    const { one, runs } = this.answer, { run, queue, training } = this.app, step = run.settings === this.app.settings ? run.step : 0;
    const now = queue || training ? `run ${queue ? 1 : 2} of 2, step ${number(step)} of ${number(run.settings.numSteps)} …` : apart(...runs);
    return `Shown for “${one.claim}”: ${now}`;
  }

  async measure() {
    for (const stop of this.stops.splice(0)) stop();
    const stop = TOUR[this.at], { out, told, measureButton } = this, mine = (this.measuring = {});
    this.measured = this.app.settings;
    this.buttons();
    const show = new ResizeObserver(() => { told.scrollTop = out.offsetTop; }); // it grows during the measurement
    show.observe(out);
    await stop.measure(out, this.stops, this).catch(() => {});
    if (this.measuring === mine) this.measuring = null;
    measureButton.textContent = "Measure again";
    if (this.at !== null && this.measureButton === measureButton) this.buttons();
    setTimeout(() => show.disconnect(), 200);
  }

  // A measurement can be repeated; the follow-up button waits for it.
  buttons() {
    const { also } = TOUR[this.at], { training, queue, settings } = this.app, busy = Boolean(this.measuring || training || queue);
    if (this.measureButton) this.measureButton.disabled = busy;
    if (!also || !also.after) return;
    this.alsoButton.disabled = busy || !this.columns.size;
    this.alsoButton.hidden = settings.n === also.after;
  }

  // The text follows the run: what is being trained, then what to look at. Measurements follow it too.
  follow() {
    if (this.at === null || this.asking) return;
    const stop = TOUR[this.at], { app } = this, { run, queue } = app, set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    const there = Boolean(run) && !queue && run.settings === app.settings, finished = there && run.status === "finished";
    if (stop.follows && this.measured && this.measured !== app.settings) {
      for (const stop_ of this.stops.splice(0)) stop_();
      const { n } = app.settings, now = there && run.step ? `step ${number(run.step)} of ${number(run.settings.numSteps)}` : "preparing";
      if (finished) this.measure();
      else set(this.out.querySelector("p") || this.out, app.training || app.wanted ? `Training with ${n} sequences: ${now}. Next: what leaving one out changes …` : "The run has changed; it is measured again after training.");
    }
    this.buttons();
    if (this.done) return;
    set(this.text, queue && stop.first ? stop.first : stop.text);
    this.done = finished || !stop.train;
    this.more.hidden = !this.done;
    this.seen.className = this.done ? "" : "note";
    if (this.done) { fill(this.seen, stop.seen.map(([, text], k) => el("p", { "data-part": k + 1 }, text))); this.mark(); return; }
    const now = run && run.settings === app.settings ? `step ${number(run.step)} of ${number(run.settings.numSteps)}` : "preparing";
    set(this.seen, `${stop.pin ? `Run ${queue ? 1 : 2} of 2: ` : ""}${now} …`);
  }

  look() { if (this.framed) this.point(this.framed); }

  // Frame the subject of the text, put it first, and scroll it into view if needed.
  point(selectors) {
    this.framed = selectors;
    document.body.dataset.framed = selectors ? selectors.length : 0; // the fewer, the larger on a phone
    document.querySelectorAll(".pointed").forEach((node) => node.classList.remove("pointed"));
    if (!selectors) return;
    const nodes = selectors.map($), box = (node) => node.getBoundingClientRect();
    for (const node of nodes) node.classList.add("pointed");
    this.app.later(); // what was folded until now is drawn
    document.body.style.setProperty("--bar", `${$(".transport").offsetHeight}px`);
    scrollTo({ top: 0, behavior: "instant" });
    const end = narrow.matches ? box(this.place).top : innerHeight;
    nodes.sort((one, two) => box(one).top - box(two).top);
    if (nodes.some((node) => box(node).bottom > end)) nodes[0].scrollIntoView({ block: "start", behavior: "instant" });
  }
}
