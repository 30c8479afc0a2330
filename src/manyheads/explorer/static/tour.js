// The paper's story in eight stops. Each sets the state and frames what it speaks of. `text` says what is being done, `first`
// is shown instead while the run that will be pinned is made, and `seen` says what to see once the run is on the screen: parts,
// each with what it frames, its words, and which card of the theory it means where it means one. A wide screen shows all
// parts at once, a narrow one shows one after the other, or as many as frame the same and fit.
const ONE_HEAD = { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 };
const SLEEPER = { ...STUDY_MIXTURE, n: 40, nTest: 0, start: "zero", stepSize: 2, numSteps: 3000 };
const OPEN = { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, stepSize: 0.5, numSteps: 300 };
const UNSEEN = { ...PRESETS.generalization.settings, nTest: 300 };
const TOUR = [
  { title: "What attention must find", at: ["#maps"], settings: { ...ONE_HEAD, numSteps: 1 }, train: false,
    text: "The task: say which of two patterns a sequence of eight tokens carries. Two of the tokens (filled marks) show it; the other six (open marks) are distractions, and nobody tells the model which are which.",
    seen: [
      [["#maps"], "An attention head lets every token look at all tokens and average what it sees. The map shows where each token (row) looks (column). Now all squares have the same shade: every token looks at all tokens equally. A good head would learn to look at the two framed columns."],
      [["#work"], "“The model at work” follows one sequence: the head weighs what its tokens saw, and the sum is the score. Above 0 the model says label +1, below 0 label −1. Nothing is learned yet, so the score is 0."]] },
  { title: "One head", at: ["#lossChart"], settings: ONE_HEAD, train: true,
    text: "One head learns by plain gradient descent, the method of the paper: at every step all numbers of the model move a little in the direction that lowers the loss. The loss says how wrong the model is on the training sequences: 0.69 is guessing, 0 is perfect.",
    seen: [
      [["#lossChart"], "The loss has fallen, on the training sequences and on new ones (test)."],
      [["#marginChart"], "The margin is the score of the worst training sequence, counted toward its right label. Above 0, all of them are classified correctly."],
      [["#focusChart"], "A little after the loss fell, the attention on the relevant tokens rose: the head has found them."],
      [["#maps"], "In the map the framed columns have the strongest color. Drag the time slider at the top to see how it came about."]] },
  { title: "Many heads: the lazy regime", at: ["#lossChart"], settings: { ...ONE_HEAD, heads: 1e6 }, train: true, pin: ONE_HEAD,
    first: "Two runs will be compared. First comes the one with one head, as before.",
    text: "A million heads; their answers are added up and divided by a thousand, the square root of their number. The run with one head is pinned beside it (dashed).",
    seen: [
      [["#lossChart"], "The loss fell here too, though less far than with one head."],
      [["#focusChart"], "But the attention did not move: each of the million heads moves only about a thousandth as far (one over the square root of their number)."],
      [["#maps"], "In the map of this run all squares still have nearly the same shade. What learned is the readout, the weights that turn what the heads see into an answer: a million small moves of readouts, all in one direction, add up to a large one, while where a head looks is its own, and hardly changes. This is called the lazy regime."],
      [["#lossChart"], "The paper's theorem is about this regime: with enough heads (more than here, as a later stop shows) the loss is nearly convex, shaped like a bowl, so descent cannot get stuck."]] },
  { title: "How long attention stays asleep", at: ["#focusChart"], settings: { ...SLEEPER, heads: 64 }, train: true, pin: { ...SLEEPER, heads: 4 }, measure: measureSleep,
    first: "Two runs will be compared again: first 4 heads, then 64.",
    text: "A smaller version of the task (40 sequences, larger steps) with 64 heads; the run with 4 heads is pinned beside it (dashed).",
    seen: [
      [["#focusChart"], "Call a model awake when its attention on the relevant tokens is 0.05 above the even share, 0.25. The larger model gets there much later (the steps are on a logarithmic axis)."],
      [["#maps"], "In its map the framed columns stand out less than in the map of the 4 heads (pinned). Why: the better a model gets, the weaker the push on its attention, and with more heads each has to be pushed for longer."],
      [["#focusChart"], "The time of sleep grows exponentially with the square root of the number of heads. The paper does not say this; it is a result of this project, with a proof that attention cannot wake sooner than such a time. Measure it for 1 to 49 heads:"]] },
  { title: "Where the theorem is silent", at: ["#work"], settings: { ...STUDY_MIXTURE, n: 80, heads: 8, stepSize: 0.5, numSteps: 300 }, train: true,
    text: "Eight heads, an ordinary run from the paper's start. In “The model at work”, half of the heads (“+ heads”) began with a step in the right direction and half (“− heads”) with the same step in the wrong one, so that together they began by saying nothing. A vote is what they add to the score now.",
    seen: [
      [["#verdicts"], "The run works: its loss has fallen. Theorem 1, the paper's promise about training, says: the lower the loss you ask for, the more heads and the smaller the steps, but any loss can be had.", "theorem1"],
      [["#verdicts"], "About this run it says nothing: it asks for vastly more heads and far smaller steps. Silent does not mean wrong, it means that the promise does not apply. The card shows what is asked and what is there, so you see by how much it is missed.", "theorem1"]] },
  { title: "Where it speaks", at: ["#verdicts"], settings: { ...PRESETS.literal.settings }, train: true,
    text: "A smaller task, 100,000 heads and a step size that Theorem 1 allows. There are two kinds of heads, and heads of one kind stay equal, so the page computes 100,000 heads exactly at the cost of two.",
    seen: [
      [["#verdicts"], "Every condition of Theorem 1 is met, so it makes a promise about the loss, averaged over the run, and the run keeps it with room to spare. It compares the run with a target, a known good solution: the smaller its loss and the nearer it lies, the better the promise.", "theorem1"],
      [["#identity"], "The exact decomposition shows how the proof works. The mean loss is, with nothing left over, the target's loss plus the price of the way toward it (distance used up), plus what it costs that the loss is no bowl (convexity gap) and that steps can be too large (descent defect); below zero a part helps. With enough heads and small steps the last two cannot cost much, and that is the theorem."],
      [["#focusChart"], "The attention has not moved: 0.5 on the relevant tokens is the even share here, two of four. What learned is the readout."],
      [["#verdicts"], "The second card is another, simpler guarantee, that the loss falls at every single step; it asks for smaller steps and stays silent.", "descent"]] },
  { title: "Generalization and leave-one-out", at: ["#lossChart"], settings: UNSEEN, train: true, measure: measureLeftOut, follows: true,
    text: "Does it work on sequences it has not seen? The test loss says so. The training sequences here are few and have much noise.",
    seen: [
      [["#lossChart"], "The test loss stays above the train loss: part of what was learned is noise. The difference is called the gap."],
      [["#verdicts"], "Theorem 2 bounds the gap by asking how far the result moves when one training sequence is left out: if no single sequence matters much, nothing can have been learned by heart. Its bound is far above the gap that you see, so about this run it says nothing.", "theorem2"],
      [["#lossChart"], "Measure it with ten runs, each without one sequence; then try 160 sequences, and they are measured as well. On average over many data sets the gap shrinks like one over the number of sequences; a single run may differ."]],
    also: { label: "Try 160 sequences", act: (app) => app.visit({ ...UNSEEN, n: 160 }, UNSEEN, true) } },
  { title: "What is open", at: ["#focusChart"], settings: { ...OPEN, optimizer: "normalized" }, train: true, pin: OPEN,
    first: "A harder task: one relevant token of eight, and more noise. First, 64 heads trained by plain descent.",
    text: "A harder task: one relevant token of eight, and more noise. 64 heads learn by normalized descent, whose steps do not fade as the loss gets small; plain descent is pinned beside it (dashed).",
    seen: [
      [["#focusChart"], "Normalized descent brings the attention of the heads much further than plain descent in the same number of steps."],
      [["#maps"], "In the maps of this run nearly all color is in the framed column, in the pinned ones it is not. No theorem here says why. That is open."],
      [["#focusChart"], "To sum up. The paper claims: if a good solution lies near the start, then with enough heads and small steps plain descent trains attention to any loss, and what it learns carries over to new sequences if there are enough of them."],
      [["#focusChart"], "It is silent at the few heads that people use, and about how attention finds the relevant tokens, because in its regime attention hardly moves. To end with, five popular sentences about the paper wait to be put to the test."]],
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
    el("p", {}, `The numbers of heads are spaced by their square roots, 1, 2, 3 … A straight line is the law: from each to the next the sleep lasts about ${number(Math.exp(slope), 2)} times as long.`));
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
    found.map(([heads, step]) => [el("svg:circle", { cx: x(Math.sqrt(heads)), cy: y(step), r: 3.5, fill: ink("plus") }),
      words(x(Math.sqrt(heads)), y(step) - 8, number(step), center)]));
}

// What leaving out each of ten sequences of the run shown changes: a column for each number of sequences measured so far.
async function measureLeftOut(out, stops, { app, columns }) {
  const count = 10, { settings, own, run } = app, mean = (found, name) => number(found.reduce((sum, one) => sum + one[name], 0) / found.length, 3);
  const { last } = run, shown = run.settings === settings && run.status === "finished" && last.testLoss !== null;
  const tell = (found, moved) => {
    if (found.length) columns.set(settings.n, [mean(found, "distance"), moved ? number(moved, 3) : "…", mean(found, "seen"), mean(found, "leftOut"), shown ? number(last.testLoss - last.trainLoss, 3) : "not trained"]);
    const names = ["leaving one out moves the weights by", "training moved them by", "loss of a sequence trained on", "loss of it when left out", "gap: test minus train loss"];
    fill(out, el("p", {}, moved ? `Without one of ${settings.n} training sequences, mean of ${found.length} runs:` : `Training without sequence ${found.length + 1} of ${count} …`),
      columns.size ? el("table", {}, el("tr", {}, el("th", {}, "training sequences"), [...columns.keys()].map((n) => el("td", {}, el("b", {}, n)))),
        names.map((name, k) => el("tr", {}, el("th", { scope: "row" }, name), [...columns.values()].map((column) => el("td", {}, column[k]))))) : null);
  };
  tell([]);
  const { found, moved } = await trial(settings, own, (sofar) => tell(sofar), stops, count);
  tell(found, moved);
}

// Parts in a row that frame the same and are short become one: [what is framed, [places of the words], card].
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
    this.watch = new ResizeObserver(() => this.cue());
  }

  go(k) {
    for (const stop of this.stops.splice(0)) stop();
    $("#middle").append($("#takeaways"));
    const stop = TOUR[k], { body } = document;
    body.classList.toggle("touring", Boolean(stop));
    body.classList.toggle("still", Boolean(stop) && !stop.train);
    Object.assign(this, { at: stop ? k : null, part: 0, done: false, asking: false, measured: null, columns: new Map() });
    this.place.hidden = !stop;
    if (!stop) { this.point(null); this.app.showLink(); return; }
    this.app.say("");
    this.fill(stop, k);
    this.turn(0);
    $("#tourNext").focus({ preventScroll: true });
    this.app.visit(stop.settings, stop.pin || null, stop.train);
    this.follow();
  }

  fill(stop, k) {
    const button = (id, label, act, more = {}) => el("button", { type: "button", id, onclick: act, ...more }, label);
    this.parts = together([[stop.at, stop.text, stop.seen[0][2]], ...stop.seen]);
    this.out = el("div", { class: "note", id: "measureTold", "aria-live": "polite" });
    this.measureButton = stop.measure ? button("measureIt", "Measure it", () => this.measure()) : null;
    this.text = el("p", { id: "tourText", "data-part": 0 });
    this.seen = el("div", { id: "tourSeen" });
    this.more = el("div", { class: "row more", hidden: true }, this.measureButton, stop.also ? button("tourAlso", stop.also.label, () => stop.also.act(this.app)) : null);
    this.words = el("div", {}, this.text, this.seen, this.out);
    this.told = el("div", { class: "told", tabindex: "-1" }, this.words);
    this.down = button("tourMore", "more ▾", () => this.told.scrollBy({ top: this.told.clientHeight * 0.8 }), { "aria-label": "Scroll to more of the text", hidden: true });
    this.told.addEventListener("scroll", () => this.cue());
    this.watch.disconnect();
    for (const node of [this.told, this.words]) this.watch.observe(node);
    this.kicker = el("p", { class: "kicker" });
    fill(this.place, this.kicker, el("h3", {}, stop.title), el("div", { class: "toldBox" }, this.told, this.down), this.more,
      el("div", { class: "row steer" }, button("tourBack", "Back", () => this.back()), button("tourNext", "", () => this.next(), { class: "primary" }), button("tourEnd", "close", () => this.go(null), { class: "link" })),
      el("ol", { class: "stops" }, TOUR.map(({ title }, n) => el("li", {}, el("button", { type: "button", class: "link", "aria-current": n === k ? "step" : null, "aria-label": `Stop ${n + 1}: ${title}`, title, onclick: () => this.go(n) }, n + 1)))));
  }

  get lastPart() { return !narrow.matches || this.part === this.parts.length - 1; }

  back() { if (this.asking) this.go(this.at); else if (narrow.matches && this.part) this.turn(this.part - 1); else this.go(this.at - 1); }

  next() { if (this.asking || this.lastPart) this.go(this.at + 1); else this.turn(this.part + 1); }

  // Show a part of the words, and frame what it is about; on a wide screen all parts are shown and framed.
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
    this.point([...new Set(meant.flatMap(([at]) => at))]);
  }

  mark() { for (const node of this.words.querySelectorAll("[data-part]")) node.classList.toggle("current", this.parts[this.part][1].includes(Number(node.dataset.part))); }

  // Whether there are more words below, said where they are cut.
  cue() { this.down.hidden = this.told.scrollTop + this.told.clientHeight >= this.told.scrollHeight - 2; }

  // The five sentences in place of the words, so that the curves of what they are answered with are seen beside them.
  ask() {
    Object.assign(this, { asking: true, done: true });
    this.words.replaceChildren($("#takeaways"));
    this.more.hidden = true;
    this.told.scrollTop = 0;
    this.point([]);
  }

  async measure() {
    for (const stop of this.stops.splice(0)) stop();
    const stop = TOUR[this.at], { out, told, measureButton } = this, mine = (this.measuring = {});
    this.measured = this.app.settings;
    measureButton.disabled = true;
    const show = new ResizeObserver(() => { told.scrollTop = out.offsetTop; }); // it grows while it is measured
    show.observe(out);
    await stop.measure(out, this.stops, this).catch(() => {});
    if (this.measuring === mine) measureButton.disabled = false;
    setTimeout(() => show.disconnect(), 200);
  }

  // The words follow the run: what is made now, and what to see once it is there. What was measured follows it too.
  follow() {
    if (this.at === null || this.asking) return;
    const stop = TOUR[this.at], { app } = this, { run, queue } = app, set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    const there = Boolean(run) && !queue && run.settings === app.settings, finished = there && run.status === "finished";
    if (stop.follows && this.measured && this.measured !== app.settings) {
      if (finished) this.measure(); else set(this.out, "The run has changed; it is measured again when it is trained.");
    }
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

  // Frame what the words are about; it comes first, and is brought into view where it is not.
  point(selectors) {
    this.framed = selectors;
    document.body.dataset.framed = selectors ? selectors.length : 0; // the fewer, the larger on a phone
    document.querySelectorAll(".pointed").forEach((node) => node.classList.remove("pointed"));
    if (!selectors) return;
    const nodes = selectors.map($), box = (node) => node.getBoundingClientRect();
    for (const node of nodes) node.classList.add("pointed");
    document.body.style.setProperty("--bar", `${$(".transport").offsetHeight}px`);
    scrollTo({ top: 0, behavior: "instant" });
    const end = narrow.matches ? box(this.place).top : innerHeight;
    nodes.sort((one, two) => box(one).top - box(two).top);
    if (nodes.some((node) => box(node).bottom > end)) nodes[0].scrollIntoView({ block: "start", behavior: "instant" });
  }
}
