// The paper's story in eight stops. Each sets the state and frames what it speaks of. `text` says what is being done, `first`
// is shown instead while the run that will be pinned is made, and `seen` says what to see once the run is on the screen.
const ONE_HEAD = { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 };
const SLEEPER = { ...STUDY_MIXTURE, n: 40, nTest: 0, start: "zero", stepSize: 2, numSteps: 3000 };
const OPEN = { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, stepSize: 0.5, numSteps: 300 };
const UNSEEN = { ...PRESETS.generalization.settings, nTest: 300 };
const TOUR = [
  { title: "What attention must find", at: ["#maps"], settings: { ...ONE_HEAD, numSteps: 1 }, train: false,
    text: "The task: say which of two patterns a sequence of eight tokens carries. Two of the tokens (filled) show it; the other six (open) are distractions, and nobody tells the model which are which. An attention head lets every token look at all tokens and average what it sees. The map shows where each token (row) looks (column). Now all squares have the same shade: every token looks at all tokens equally. A good head would learn to look at the two framed columns." },
  { title: "One head", at: ["#lossChart", "#focusChart", "#maps"], settings: ONE_HEAD, train: true,
    text: "One head learns by plain gradient descent, the method of the paper: at every step all numbers of the model move a little in the direction that lowers the loss. The loss says how wrong the model is on the training sequences: 0.69 is guessing, 0 is perfect.",
    seen: "The loss has fallen, and a little later the attention on the relevant tokens rose: the head has found them, and in the map the framed columns are dark. Drag the time slider to see how it came about." },
  { title: "Many heads: the lazy regime", at: ["#lossChart", "#focusChart"], settings: { ...ONE_HEAD, heads: 1e6 }, train: true, pin: ONE_HEAD,
    first: "Two runs will be compared. First comes the one with one head, as before.",
    text: "A million heads, whose answers are added up; the run with one head is pinned beside it (dashed).",
    seen: "The loss fell here too, though less far than with one head, and the attention did not move: the million heads share the work, so each one moves only about a thousandth as far (one over the square root of their number). What learned is the readout, the weights that turn what the heads see into an answer: the answers are added, so a million small moves of readouts make a large one, while where a head looks is its own, and hardly changes. This is called the lazy regime. The paper's theorem is about it: with enough heads (more than here, as a later stop shows) the loss is nearly convex, shaped like a bowl, so descent cannot get stuck." },
  { title: "How long attention stays asleep", at: ["#focusChart"], settings: { ...SLEEPER, heads: 64 }, train: true, pin: { ...SLEEPER, heads: 4 }, measure: measureSleep,
    first: "Two runs will be compared again: first 4 heads, then 64.",
    text: "A smaller version of the task (40 sequences, larger steps) with 64 heads; the run with 4 heads is pinned beside it (dashed).",
    seen: "Call a model awake when its attention on the relevant tokens is 0.05 above the even share, 0.25. The larger model gets there much later (the steps are on a logarithmic axis). Why: the better a model gets, the weaker the push on its attention, and with more heads each has to be pushed for longer. The time of sleep grows exponentially with the square root of the number of heads. The paper does not say this; it is a result of this project, with a proof that attention cannot wake sooner than such a time. Measure it for 1 to 49 heads:" },
  { title: "Where the theorem is silent", at: ["#verdicts"], settings: { ...STUDY_MIXTURE, n: 80, heads: 8, stepSize: 0.5, numSteps: 300 }, train: true,
    text: "Eight heads, an ordinary run. (Half of the heads start by voting for one pattern, the “+ heads”, and half for the other, the “− heads”.)",
    seen: "The run works: its loss has fallen. Theorem 1, the paper's promise about training, says: the lower the loss you ask for, the more heads and the smaller the steps, but any loss can be had. About this run it says nothing: it asks for vastly more heads and far smaller steps. Silent does not mean wrong, it means that the promise does not apply. The card shows what is asked and what is there, so you see by how much it is missed." },
  { title: "Where it speaks", at: ["#verdicts"], settings: { ...PRESETS.literal.settings }, train: true,
    text: "A smaller task, 100,000 heads and a step size that Theorem 1 allows. There are two kinds of heads, and heads of one kind stay equal, so the page computes 100,000 heads exactly at the cost of two.",
    seen: "Every condition of Theorem 1 is met, so it makes a promise about the loss, averaged over the run, and the run keeps it with room to spare. The attention has not moved: 0.5 on the relevant tokens is the even share here, two of four. The second card is another, simpler guarantee, that the loss falls at every single step; it asks for smaller steps and stays silent." },
  { title: "Generalization and leave-one-out", at: ["#lossChart"], settings: UNSEEN, train: true, measure: measureLeftOut,
    text: "Does it work on sequences it has not seen? The test loss says so. The training sequences here are few and have much noise.",
    seen: "The test loss stays above the train loss: part of what was learned is noise. Theorem 2 bounds this gap by asking how far the result moves when one training sequence is left out: if no single sequence matters much, nothing can have been learned by heart. Its bound is far above the gap that you see, so about this run it says nothing. Measure it with ten runs, each without one sequence; then try 160 sequences and measure again. On average over many data sets the gap shrinks like one over their number; a single run may differ.",
    also: { label: "Try 160 sequences", act: (app) => app.visit({ ...UNSEEN, n: 160 }, UNSEEN, true) } },
  { title: "What is open", at: ["#focusChart"], settings: { ...OPEN, optimizer: "normalized" }, train: true, pin: OPEN,
    first: "What the paper claims: with enough heads, plain descent trains attention to any loss, and what it learns carries over to new sequences if there are enough of them. Where it is silent: at the few heads that people use, and about how attention finds the relevant tokens, because in its regime attention hardly moves. First, 64 heads trained by plain descent.",
    text: "What the paper claims: with enough heads, plain descent trains attention to any loss, and what it learns carries over to new sequences if there are enough of them. Where it is silent: at the few heads that people use, and about how attention finds the relevant tokens, because in its regime attention hardly moves. Now 64 heads with normalized descent, whose steps do not fade as the loss gets small; plain descent is pinned beside it (dashed).",
    seen: "This is a harder task: one relevant token of eight, and more noise. Normalized descent brings the attention of the heads much further than plain descent in the same number of steps; no theorem here says why. That is open. To end with, five popular sentences about the paper wait to be put to the test.",
    also: { label: "Show the five sentences", act: (app) => app.tour.point(["#takeaways"]) } },
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
    el("p", {}, `Steps until awake, on a logarithmic axis; the numbers of heads are spaced by their square roots, 1, 2, 3 … A straight line is the law: from each to the next the sleep lasts about ${number(Math.exp(slope), 2)} times as long.`));
}

// Waking times on a logarithmic axis against the square root of the number of heads.
function wakingPlot(found, line = null) {
  const width = 330, height = 150, last = Math.sqrt(SLEEPERS[SLEEPERS.length - 1]);
  const x = (root) => 34 + (width - 60) * (root - 1) / (last - 1), y = (step) => height - 34 - (height - 56) * Math.log(step / 2.4) / Math.log(600 / 2.4);
  const told = found.map(([heads, step]) => `${headsText(heads)} at step ${number(step)}`).join(", "), center = { "text-anchor": "middle" };
  return el("svg:svg", { viewBox: `0 0 ${width} ${height}`, class: "waking", role: "img", "aria-label": `Attention 0.05 above even: ${told || "none yet"}` },
    words(0, 10, "wakes at step", SOFT), words(width / 2, height - 3, "heads", { ...SOFT, ...center }),
    SLEEPERS.map((heads) => words(x(Math.sqrt(heads)), height - 16, number(heads), { ...SOFT, ...center })),
    line ? el("svg:line", { x1: x(1), x2: x(last), y1: y(line(1)), y2: y(line(last)), stroke: ink("reference"), "stroke-dasharray": "4 3" }) : null,
    found.map(([heads, step]) => [el("svg:circle", { cx: x(Math.sqrt(heads)), cy: y(step), r: 3.5, fill: ink("plus") }),
      words(x(Math.sqrt(heads)), y(step) - 8, number(step), center)]));
}

// What leaving out each of ten sequences of the run shown changes; the numbers move while it is measured.
async function measureLeftOut(out, stops, app) {
  const count = 10, { settings, own } = app, mean = (found, name) => number(found.reduce((sum, one) => sum + one[name], 0) / found.length, 3);
  const tell = (found, moved) => fill(out,
    el("p", {}, moved ? `Without one of ${settings.n} training sequences, mean of ${found.length} runs:` : `Training without sequence ${found.length + 1} of ${count} …`),
    found.length ? el("table", {}, [["moves the trained parameters by", mean(found, "distance")], ...(moved ? [["training moved them by", number(moved, 3)]] : []),
      ["loss of the sequence, trained on", mean(found, "seen")], ["loss of the sequence, left out", mean(found, "leftOut")]]
      .map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)))) : null);
  tell([]);
  const { found, moved } = await trial(settings, own, (sofar) => tell(sofar), stops, count);
  tell(found, moved);
}

class Tour {
  constructor(place, app) {
    Object.assign(this, { app, place, at: null, framed: null, done: false, stops: [] });
  }

  go(k) {
    for (const stop of this.stops.splice(0)) stop();
    if (k === null || k < 0 || k >= TOUR.length) { this.at = null; this.place.hidden = true; this.point(null); document.body.classList.remove("touring"); this.app.showLink(); return; }
    const stop = TOUR[k], out = el("div", { class: "note", id: "measureTold", "aria-live": "polite" });
    Object.assign(this, { at: k, done: false });
    const button = (id, label, act) => el("button", { type: "button", id, onclick: act }, label);
    this.measureButton = stop.measure ? button("measureIt", "Measure it", () => this.measure(stop, out)) : null;
    const also = stop.also ? button("tourAlso", stop.also.label, () => stop.also.act(this.app)) : null;
    this.text = el("p", { id: "tourText" });
    this.seen = el("p", { id: "tourSeen" });
    this.more = el("div", { class: "row", hidden: true }, this.measureButton, also);
    fill(this.place, el("p", { class: "kicker" }, `Stop ${k + 1} of ${TOUR.length}`), el("h3", {}, stop.title),
      el("div", { class: "told" }, this.text, this.seen, out), stop.measure || stop.also ? this.more : null,
      el("div", { class: "row" }, el("button", { type: "button", id: "tourBack", disabled: k === 0, onclick: () => this.go(k - 1) }, "Back"),
        el("button", { type: "button", id: "tourNext", class: "primary", onclick: () => this.go(k + 1) }, k + 1 < TOUR.length ? "Next" : "End of the tour"),
        el("button", { type: "button", id: "tourEnd", class: "link", onclick: () => this.go(null) }, "close")));
    this.place.hidden = false;
    this.place.classList.toggle("left", stop.at[0] === "#verdicts" || stop.at[0] === "#maps"); // not over what it points at
    document.body.classList.add("touring");
    $("#tourNext").focus({ preventScroll: true });
    this.point(stop.at);
    this.app.visit(stop.settings, stop.pin || null, stop.train);
    this.follow();
  }

  async measure(stop, out) {
    this.measureButton.disabled = true;
    const show = new ResizeObserver(() => { out.parentNode.scrollTop = out.offsetTop - out.parentNode.offsetTop; }); // it grows while it is measured
    show.observe(out);
    await stop.measure(out, this.stops, this.app).catch(() => {});
    this.measureButton.disabled = false;
    setTimeout(() => show.disconnect(), 200);
  }

  // The words follow the run: what is made now, and what to see once it is there.
  follow() {
    if (this.at === null || this.done) return;
    const stop = TOUR[this.at], { app } = this, { run, queue } = app, set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    set(this.text, queue && stop.first ? stop.first : stop.text);
    if (!stop.train) { this.done = true; this.more.hidden = false; return; }
    this.done = Boolean(run) && !queue && run.settings === app.settings && run.status === "finished";
    const now = run && run.settings === app.settings ? `step ${number(run.step)} of ${number(run.settings.numSteps)}` : "preparing";
    set(this.seen, this.done ? stop.seen : `${stop.pin ? `Run ${queue ? 1 : 2} of 2: ` : ""}${now} …`);
    this.seen.className = this.done ? "" : "note";
    this.more.hidden = !this.done;
  }

  look() { if (this.framed) this.point(this.framed); }

  // Frame what the words are about, and bring it into view.
  point(selectors) {
    this.framed = selectors;
    document.body.dataset.framed = selectors ? selectors.length : 0; // the fewer, the larger on a phone
    document.querySelectorAll(".pointed").forEach((node) => node.classList.remove("pointed"));
    if (!selectors) return;
    for (const selector of selectors) $(selector).classList.add("pointed");
    $(selectors[0]).scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
}
