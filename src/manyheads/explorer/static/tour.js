// The paper's story in eight stops: each sets the state, says what to look at, and points there.
const TOUR = [
  { title: "What attention must find", at: "#maps", settings: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", numSteps: 1 }, train: false,
    text: "A sequence has eight tokens. Two of them (filled, framed) carry the pattern of the label; the others are distractions. The model sees only numbers. At the start every token looks at all tokens alike: each square of the map has the same shade. A good model would turn its attention to the framed columns." },
  { title: "One head", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 }, train: true,
    text: "One head learns by plain gradient descent, the method of the paper. The loss falls, and a little later the share of attention on the relevant tokens rises: the head has found them. Drag the time slider and watch the map follow." },
  { title: "Many heads: the lazy regime", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, heads: 1e6, start: "zero", stepSize: 0.5, numSteps: 600 }, train: true, pin: { ...STUDY_MIXTURE, n: 80, heads: 1, start: "zero", stepSize: 0.5, numSteps: 600 },
    text: "Now a million heads; the run with one head is pinned beside it (dashed). The loss falls here too, but the attention does not move: with H heads each one takes steps of order 1/√H, so only the readout learns. The paper's theorem is proved in this regime: many heads make the loss nearly convex." },
  { title: "How long attention stays asleep", at: "#curves", settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 64, start: "zero", stepSize: 2, numSteps: 3000 }, train: true, pin: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 4, start: "zero", stepSize: 2, numSteps: 3000 },
    text: "Compare 4 heads (pinned) with 64. Both wake up, the larger one much later. The loss falls like 1/k, so the push on the attention fades and the distance covered grows like log k, while each head needs about √H times as much: the waking time grows like the exponential of √H. This law is our own reading of the runs, not a statement of the paper. Press “measure it” below." , measure: true },
  { title: "Where the theorem is silent", at: "#verdicts", settings: { ...STUDY_MIXTURE, n: 80, heads: 8, stepSize: 0.5, numSteps: 300 }, train: true,
    text: "Eight heads, an ordinary run, and it works. What does Theorem 1 say about it? Nothing: it needs vastly more heads and a far smaller step. Silent does not mean wrong. The card shows both sides of each condition, so you see by how much it is missed." },
  { title: "Where it speaks", at: "#verdicts", settings: { ...PRESETS.literal.settings }, train: true,
    text: "A smaller task, 100,000 heads and a step size that the theorem allows. Now every hypothesis is true, the theorem promises a mean loss, and the run keeps the promise, with room to spare. Heads come in two classes, so this run is exact, not sampled." },
  { title: "Generalization and leave-one-out", at: "#curves", settings: { ...PRESETS.generalization.settings }, train: true,
    text: "Forty training sequences and much noise: the test loss stays above the train loss. Theorem 2 bounds this gap by asking how far the result moves when one sequence is left out: if no single sequence matters much, nothing can be learned by heart. Raise n and train again: the gap shrinks about like 1/n." },
  { title: "What is open", at: "#takeaways", settings: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, optimizer: "normalized", stepSize: 0.5, numSteps: 300 }, train: true, pin: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 64, stepSize: 0.5, numSteps: 300 },
    text: "The theorem explains training where attention hardly moves; why few heads find the relevant tokens is open. Normalized descent (solid) wakes 64 heads that plain descent (pinned) leaves asleep, and no theorem here covers it. Test five popular sentences below: some are true, some are not, one depends." },
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
    const stop = TOUR[k], out = el("p", { class: "note", id: "sleepTold", "aria-live": "polite" });
    const measure = stop.measure ? el("button", { type: "button", id: "measureSleep", onclick: () => measureSleep(out, this.stops).catch(() => {}) }, "Measure it") : null;
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
