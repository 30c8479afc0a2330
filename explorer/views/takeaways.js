// Five sentences of a popular summary of the paper, each with the runs that decide whether it is true.
const last = (run) => run.rows[run.rows.length - 1];
const share = (run) => { const { mass } = last(run), H = run.counts.reduce((a, b) => a + b, 0); return mass.reduce((sum, x, g) => sum + x * run.counts[g] / H, 0); };
const geometric = (values) => Math.exp(values.reduce((sum, x) => sum + Math.log(x), 0) / values.length);
const SEEDS = [1, 2, 3];
const over = (seeds, settings) => seeds.map((seed) => ({ ...settings, seed }));

const TAKEAWAYS = [
  { id: "more-heads", at: ["#lossChart"], claim: "More heads learn better.",
    asks: "1 head against 64 from zero, on very noisy data, 150 steps of equal size; once in the paper's scaling, once with attention's step multiplied by the number of heads. The train loss at the end, mean of three random draws.",
    runs: () => [[1, "paper"], [64, "mean_field"], [64, "paper"]].map(([heads, scaling]) => over(SEEDS, { ...HARD_MIXTURE, n: 60, nTest: 0, heads, scaling, start: "zero", stepSize: 0.1, numSteps: 150 })),
    judge: (sets) => {
      const end = (runs) => geometric(runs.map((run) => last(run).trainLoss)), one = end(sets[0]);
      const [paper, back] = [end(sets[sets.length - 1]) / one, end(sets[1]) / one], same = Math.abs(back - 1) < 1e-6;
      const told = `In the paper's scaling 64 heads end at ${number(paper, 3)} times the loss of one; with attention's step given back, at ${same ? "exactly the same loss" : `${number(back, 3)} times the loss`}.`;
      const why = same ? " Heads that start alike are one head; the scaling decides how fast its attention learns. Heads that start differently can do more: see the stop on parity." : "";
      return [paper > 1.1 && same ? "it depends" : paper > 1.1 ? "no" : paper < 0.9 ? "yes" : "open", told + why];
    } },
  { id: "convex", at: ["#identity"], claim: "More heads make training more convex.",
    asks: "2 heads against 256: what the steps with a convexity gap above zero cost (a bowl has none), as a share of the mean loss, mean of three random draws.",
    runs: () => [2, 256].map((heads) => over(SEEDS, { ...HARD_MIXTURE, n: 60, nTest: 0, heads, stepSize: 0.1, numSteps: 200 })),
    judge: (sets) => {
      const [few, many] = sets.map((runs) => runs.reduce((sum, run) => sum + last(run).identity.convexityTerm / last(run).identity.meanLoss, 0) / runs.length);
      const verdict = many < 0.5 * few ? "yes" : many > few ? "no" : "open", little = few < 0.05 ? " That is little even with 2 heads: along these runs the loss is nearly a bowl." : "";
      return [verdict, `${number(100 * few, 3)}% of the mean loss with 2 heads, ${number(100 * many, 3)}% with 256.${little} The note below the bars has the figures of the first draw.`];
    } },
  { id: "attention", at: ["#focusChart"], claim: "Training makes the heads look at what matters.",
    asks: "Attention on the relevant tokens after 500 steps: 1 head and 10⁶ heads.",
    runs: () => [1, 1e6].map((heads) => [{ ...STUDY_MIXTURE, n: 80, nTest: 0, heads, stepSize: 0.5, numSteps: 500 }]),
    judge: ([[one], [many]]) => {
      const even = 0.25, text = `Spread evenly it would be ${even}. One head: ${number(share(one), 3)}; a million heads: ${number(share(many), 4)}, although both classify everything (margins ${number(last(one).margin, 3)} and ${number(last(many).margin, 3)}).`;
      return [share(one) > even + 0.05 && share(many) < even + 0.01 ? "it depends" : share(many) > even + 0.05 ? "yes" : "no", text];
    } },
  { id: "start", at: ["#lossChart"], claim: "The clever start is what makes it work.",
    asks: "32 heads, 600 steps, three starts: the paper's first phase (one gradient step on fresh sequences, and its opposite for half of the heads), all weights zero, and random (Gaussian) weights.",
    runs: () => ["first_phase", "zero", "gaussian"].map((start) => [{ ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 32, start, stepSize: 0.5, numSteps: 600 }]),
    judge: (sets) => {
      const losses = sets.map(([run]) => last(run).trainLoss), spread = Math.max(...losses) / Math.min(...losses);
      const text = `Train loss at the end: first phase ${number(losses[0], 3)}, zero ${number(losses[1], 3)}, Gaussian ${number(losses[2], 3)}: within a factor ${number(spread, 3)}. The proof needs a special start; here any of the three will do.`;
      return [spread < 1.5 ? "no" : losses[0] === Math.min(...losses) ? "yes" : "open", text];
    } },
  { id: "generalize", at: ["#lossChart"], claim: "The gap to unseen data falls like 1/n.",
    asks: "20, 40, 80 and 160 training sequences, 256 heads, mean of four random draws each.",
    runs: () => [20, 40, 80, 160].map((n) => over([1, 2, 3, 4], { ...STUDY_MIXTURE, d: 14, M: 6, noise: 0.3, noiseNorm: 1.2, n, nTest: 600, nFresh: 100, heads: 256, stepSize: 0.2, numSteps: 100 })),
    judge: (sets) => {
      const gaps = sets.map((runs) => runs.reduce((sum, run) => sum + last(run).testLoss - last(run).trainLoss, 0) / runs.length);
      const first = Math.max(gaps[0], 1e-12), power = Math.log(Math.max(gaps[3], 1e-12) / first) / Math.log(8);
      const text = `Mean gap ${gaps.map((gap) => number(gap, 3)).join(", ")}: from 20 to 160 sequences it falls like n to the power ${number(power, 2)}. Theorem 2 has the power −1, with a constant far above this gap, and is silent at 256 heads.`;
      return [power < -0.7 ? "yes" : power > -0.3 ? "no" : "open", text];
    } },
];

// What distinguishes two runs of a sentence.
function apart(one, two) {
  const name = one.heads !== two.heads ? ({ heads }) => headsText(heads) : one.n !== two.n ? ({ n }) => `${n} sequences` : ({ start = DEFAULTS.start }) => `${start.replace("_", " ")} start`;
  return `${name(two)}; pinned (dashed): ${name(one)}`;
}

// Questions are answered one at a time; a waiting or running one can be stopped. The question stays beside its answer.
class Takeaways {
  constructor(place, show, answered) {
    Object.assign(this, { show, answered, waiting: [], running: null });
    for (const one of TAKEAWAYS) {
      const out = el("p", { class: "answer", "aria-live": "polite" }), answer = el("span", { class: "chip none" }, "not asked yet");
      const button = el("button", { type: "button", id: `ask-${one.id}`, onclick: () => this.press(card) }, "Is it so?");
      const card = { one, out, answer, button, stops: [] };
      place.append(el("article", { class: "takeaway", id: `takeaway-${one.id}` }, el("h3", {}, `“${one.claim}”`, answer), el("p", { class: "note" }, one.asks), out, button));
    }
  }

  tell(card, verdict, kind, button, ...text) {
    card.answer.textContent = verdict;
    card.answer.className = `chip ${kind}`;
    card.button.textContent = button;
    fill(card.out, text);
  }

  press(card) {
    if (this.running === card) { for (const stop of card.stops.splice(0)) stop(); return; }
    if (this.waiting.includes(card)) {
      this.waiting = this.waiting.filter((other) => other !== card);
      this.tell(card, "stopped", "none", "Is it so?");
      return;
    }
    this.waiting.push(card);
    this.tell(card, "waiting", "waiting", "Stop");
    if (!this.running) this.work();
  }

  async work() {
    while (this.waiting.length) {
      this.running = this.waiting.shift();
      await this.answer(this.running);
      this.running = null;
    }
  }

  async answer(card) {
    const { one, out } = card, sets = one.runs(), total = sets.flat().length, found = [];
    let done = 0;
    this.tell(card, "running", "waiting", "Stop");
    try {
      for (const set of sets) {
        const runs = [];
        for (const settings of set) {
          runs.push(await trial(settings, null, (part) => { out.textContent = `${Math.round(100 * (done + part) / total)}% of ${total} runs`; }, card.stops));
          done++;
        }
        found.push(runs);
      }
      const [verdict, text] = one.judge(found), label = `Show ${total > 2 ? "two of " : ""}these runs: ${apart(sets[0][0], sets[sets.length - 1][0])}`;
      this.tell(card, verdict, { yes: "holds", no: "violated" }[verdict] || "silent", "Ask again", text, " ",
        el("button", { type: "button", class: "link", onclick: () => this.show(one, sets) }, label));
      this.answered(one, sets);
    } catch (error) {
      const stopped = error.message === "stopped";
      this.tell(card, stopped ? "stopped" : "failed", "none", "Is it so?", stopped ? "" : error.message);
    }
    card.stops.length = 0;
  }
}
