// The paper's story in eight stops: each sets the state, says what to look at, and points there.
const TOUR = [
  { title: "What attention must find", at: "#maps", settings: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", numSteps: 1 }, train: false,
    text: "The task: say which of two patterns a sequence of eight tokens carries. Two of the tokens (filled, framed) show it; the other six are distractions, and nobody tells the model which are which. An attention head lets every token look at all tokens and average what it sees; the map shows where each token (row) looks (column). At the start all squares have the same shade: it looks at all tokens equally. A good head would learn to look at the framed columns." },
  { title: "One head", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 }, train: true,
    text: "One head learns by plain gradient descent, the method of the paper: at every step all numbers of the model move a little in the direction that lowers the loss. The loss says how wrong the model is on the training sequences: 0.69 is guessing, 0 is perfect. It falls, and a little later the share of attention on the relevant tokens rises: the head has found them. Drag the time slider and watch the map follow." },
  { title: "Many heads: the lazy regime", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, heads: 1e6, start: "zero", stepSize: 0.5, numSteps: 600 }, train: true, pin: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 },
    text: "Now a million heads, whose answers are added up; the run with one head is pinned beside it (dashed). The loss falls here too, but the attention does not move: the work is shared by H heads, so each one moves only about 1/√H as far. What learns is the readout, the weights that turn what the heads see into an answer: a million small moves of readouts add up to a large one, while a small move of attention stays small. This is called the lazy regime, and the paper's theorem lives there: with many heads the loss is nearly convex, shaped like a bowl, so descent cannot get stuck." },
  { title: "How long attention stays asleep", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 64, start: "zero", stepSize: 2, numSteps: 3000 }, train: true, pin: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 4, start: "zero", stepSize: 2, numSteps: 3000 },
    text: "Compare 4 heads (pinned) with 64. Both wake up (their attention leaves the even share), the larger one much later. The better the model gets, the weaker the push on its attention: after k steps a head has moved about as far as log k. With H heads each must go √H times as far, in log k, so the number of steps grows like the exponential of √H. This law is our own reading of the runs, not a statement of the paper. Press “measure it” below.", measure: measureSleep },
  { title: "Where the theorem is silent", at: "#verdicts", settings: { ...STUDY_MIXTURE, n: 80, heads: 8, stepSize: 0.5, numSteps: 300 }, train: true,
    text: "Eight heads, an ordinary run, and it works. (Half of them start by voting for one pattern, the “+ heads”, and half for the other, the “− heads”.) Theorem 1, the paper's promise about training, says: with enough heads and small enough steps the loss gets as low as you like. What does it say about this run? Nothing: it asks for vastly more heads and far smaller steps. Silent does not mean wrong, it means that the promise does not apply. The card shows what is asked and what is there, so you see by how much it is missed." },
  { title: "Where it speaks", at: "#verdicts", settings: { ...PRESETS.literal.settings }, train: true,
    text: "A smaller task, 100,000 heads and a step size that Theorem 1 allows. (The mark “theory” on the slider is of another, simpler guarantee, that every step descends; it needs a smaller step and stays silent here.) Now every condition of Theorem 1 is met, the theorem promises how small the loss is on average over the run, and the run keeps the promise, with room to spare. All heads of one kind stay equal here and there are two kinds, so the page computes 100,000 heads exactly at the cost of two." },
  { title: "Generalization and leave-one-out", at: "#curves", settings: { ...PRESETS.generalization.settings }, train: true, measure: measureLeftOut,
    text: "Does it work on sequences it has not seen? The test loss says so. With forty training sequences and much noise it stays above the train loss: part of what was learned is noise. Theorem 2 bounds this gap by asking how far the result moves when one training sequence is left out: if no single sequence matters much, nothing can have been learned by heart. Press “measure it”: ten runs, each without one sequence. Then raise n (on the left, under Data) and train again: on average over many data sets the gap shrinks like 1/n; a single run may differ." },
  { title: "What is open", at: "#takeaways", settings: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, optimizer: "normalized", stepSize: 0.5, numSteps: 300 }, train: true, pin: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, stepSize: 0.5, numSteps: 300 },
    text: "What the paper claims: with enough heads, plain descent trains attention to any loss, and what it learns carries over. Where it is silent: at the few heads that people use, and about how attention finds the relevant tokens, because in its regime attention hardly moves. That is open. Normalized descent, whose steps do not fade (solid), wakes 64 heads that plain descent (pinned) leaves asleep; no theorem here covers it. Scroll up to see it in the curves. The framed list has five popular sentences to test: some are true, some are not, one depends." },
];

// The waking time: the first step at which the mean attention on relevant tokens is 0.05 above even (0.25).
const SLEEPERS = [1, 4, 9, 16, 25, 36, 49];

async function measureSleep(out, stops) {
  const found = [];
  for (const heads of SLEEPERS) {
    out.textContent = `training ${headsText(heads)} …`;
    const run = await trial({ ...STUDY_MIXTURE, n: 40, nTest: 0, heads, start: "zero", stepSize: 2, numSteps: 600 }, null, () => {}, stops);
    const awake = run.rows.find((row) => row.mass[0] > 0.3);
    if (awake) found.push([heads, awake.step]);
  }
  const roots = found.map(([heads]) => Math.sqrt(heads)), logs = found.map(([, step]) => Math.log(step));
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length, [r, l] = [mean(roots), mean(logs)];
  const slope = roots.reduce((sum, x, k) => sum + (x - r) * (logs[k] - l), 0) / roots.reduce((sum, x) => sum + (x - r) ** 2, 0);
  out.textContent = `Attention 0.05 above even: ${found.map(([heads, step]) => `${headsText(heads)} at step ${number(step)}`).join(", ")}. Every unit of √H makes it about ${number(Math.exp(slope), 2)} times as long.`;
}

// What leaving out each of ten sequences changes, in the setting of the stop.
async function measureLeftOut(out, stops) {
  const count = 10, settings = PRESETS.generalization.settings;
  const { found, moved } = await trial(settings, null, (share) => { out.textContent = `training without sequence ${number(share * count + 1)} of ${count} …`; }, stops, count);
  const mean = (name) => number(found.reduce((sum, one) => sum + one[name], 0) / found.length, 3);
  out.textContent = `Training moves the parameters by ${number(moved, 3)}; leaving out one of ${settings.n} sequences moves the trained parameters by ${mean("distance")} on average. A sequence has loss ${mean("seen")} where it was trained on and ${mean("leftOut")} where it was left out: that is what the test loss sees.`;
}

class Tour {
  constructor(place, app) {
    this.app = app;
    this.place = place;
    this.at = null;
    this.stops = [];
  }

  go(k) {
    for (const stop of this.stops.splice(0)) stop();
    if (k === null || k < 0 || k >= TOUR.length) { this.at = null; this.place.hidden = true; this.point(null); document.body.classList.remove("touring"); this.app.showLink(); return; }
    this.at = k;
    const stop = TOUR[k], out = el("p", { class: "note", id: "measureTold", "aria-live": "polite" });
    const measure = stop.measure ? el("button", { type: "button", id: "measureIt", onclick: () => stop.measure(out, this.stops).catch(() => {}) }, "Measure it") : null;
    fill(this.place, el("p", { class: "kicker" }, `Stop ${k + 1} of ${TOUR.length}`), el("h3", {}, stop.title), el("p", {}, stop.text), measure, measure ? out : null,
      el("div", { class: "row" }, el("button", { type: "button", id: "tourBack", disabled: k === 0, onclick: () => this.go(k - 1) }, "Back"),
        el("button", { type: "button", id: "tourNext", class: "primary", onclick: () => this.go(k + 1) }, k + 1 < TOUR.length ? "Next" : "End of the tour"),
        el("button", { type: "button", id: "tourEnd", class: "link", onclick: () => this.go(null) }, "close")));
    this.place.hidden = false;
    this.place.classList.toggle("left", ["#maps", "#verdicts"].includes(stop.at)); // not over what it points at
    document.body.classList.add("touring");
    $("#tourNext").focus({ preventScroll: true });
    this.point(stop.at);
    this.app.visit(stop.settings, stop.pin || null, stop.train);
  }

  point(selector) {
    document.querySelectorAll(".pointed").forEach((node) => node.classList.remove("pointed"));
    if (!selector) return;
    const node = $(selector);
    node.classList.add("pointed");
    node.scrollIntoView({ block: matchMedia("(max-width: 899px)").matches ? "start" : "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
}
