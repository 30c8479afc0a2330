// The curves of a run, with those of the pinned one beside them, and the exact decomposition at the shown step.
// Panels of the theory are folded until they are asked for, and cost nothing until then.
const isSeen = (selector) => !document.body.classList.contains("simple") || $(selector).classList.contains("pointed");
// What the theory is about.
const isRescaled = ({ optimizer, scaling }) => optimizer === "gd" && scaling === "mean_field";
const isPlain = ({ optimizer, scaling }) => optimizer === "gd" && scaling === "paper";
const headsText = (H) => `${number(H)} head${H === 1 ? "" : "s"}`;

// Classes by name: two halves after a first phase, all heads from zero, single heads where all differ.
function classNames(run) {
  const { counts } = run.model;
  if (run.settings.start === "first_phase" && counts.length > 1) return ["first half", "second half"];
  return counts.length === 1 ? [counts[0] === 1 ? "the head" : "all heads"] : Array.from(counts, (_, g) => `head ${g + 1}`);
}

// Attention on the relevant tokens: one curve per class, or mean, most and least where there are many.
function massCurves(run) {
  const names = classNames(run), { counts, H } = run.model;
  const mean = (mass) => mass.reduce((sum, share, g) => sum + share * counts[g] / H, 0);
  if (!run.rows[0].mass) return [];
  if (names.length <= 2) return names.map((label, g) => ({ label, role: ["first", "second"][g], of: (row) => row.mass[g] }));
  return [{ label: "mean", role: "first", of: (row) => mean(row.mass) }, { label: "most", role: "third", of: (row) => Math.max(...row.mass) },
    { label: "least", role: "second", of: (row) => Math.min(...row.mass) }];
}

const meanMass = (run, row) => (row.mass ? row.mass.reduce((sum, share, g) => sum + share * run.model.counts[g] / run.model.H, 0) : null);

class Charts {
  constructor(place, pick) {
    const make = (id, term_, options) => {
      const box = el("figure", { class: id === "lossChart" ? "panel" : "panel deep", id }, el("figcaption", {}, term(term_), el("span", {}, options.unitText)));
      place.append(box);
      const chart = new Chart(box, { title: LEDGER.terms[term_].title, ...options });
      chart.onpick = pick;
      return chart;
    };
    this.loss = make("lossChart", "trainLoss", { log: true, unitText: "" });
    this.margin = make("marginChart", "marginTerm", { floor: 0, unitText: "of the worst sequence" });
    this.mass = make("focusChart", "focus", { floor: 0, unitText: "" });
  }

  show(run, pinned, cursor, line = null) {
    const sets = [{ run, dash: [], tail: "" }];
    if (pinned) sets.push({ run: pinned, dash: [3, 3], tail: " · pinned" });
    const untested = sets.every(({ run: one }) => one.rows[0].testLoss === null), [own, other] = sets.map(({ run: one }) => one.settings.heads);
    if (untested && pinned && own !== other) sets.forEach((set) => { set.name = `${short(set.run.settings.heads)} head${set.run.settings.heads === 1 ? "" : "s"}`; });
    const curve = (set, label, role, of, extra) => ({ label: set.name && label === "train" ? set.name : label + set.tail, color: ink(role), dash: set.dash.length ? set.dash : extra || [],
      steps: set.run.steps, values: set.run.rows.map(of) });
    const loss = [], margin = [], mass = [];
    for (const set of sets) {
      loss.push(curve(set, "train", "train", (row) => row.trainLoss));
      if (set.run.rows[0].testLoss !== null) loss.push(curve(set, "test", "test", (row) => row.testLoss));
      margin.push(curve(set, "margin", "measured", (row) => row.margin));
      for (const { label, role, of } of massCurves(set.run)) mass.push(curve(set, label, role, of));
    }
    $("#lossChart figcaption span").textContent = loss.some(({ label }) => label.startsWith("test")) ? "and test loss, log scale" : "log scale";
    const even = run.evenShare;
    this.mass.options.lines = even === null ? [] : [{ y: even, label: "even" }, line].filter(Boolean);
    this.loss.show(loss, cursor);
    if (isSeen("#marginChart")) this.margin.show(margin, cursor);
    if (isSeen("#focusChart")) this.mass.show(mass, cursor);
  }
}

// Targets for the decomposition of the mean loss; the last one is the current end of the run, available for all data.
const TARGETS = { paper: "the paper's solution", attention: "sharp attention", end: "the end of this run" };

// The identity at one step as signed bars; they add up to the mean loss, up to the residual.
class Decomposition {
  constructor(place, choose) {
    this.when = el("span", {});
    this.choice = el("select", { id: "against", "aria-label": "Compared with" }, Object.entries(TARGETS).map(([value, text]) => el("option", { value }, text)));
    this.choice.addEventListener("change", () => choose(this.choice.value));
    this.body = el("div", {});
    this.place = place;
    place.append(el("figcaption", {}, term("identity"), this.when), el("label", { class: "against" }, term("target", "Compared with"), " ", this.choice), this.body);
  }

  // The chosen target, or the end of the run if the data have no other.
  static target(run, asked) {
    const { last } = run;
    if (run.theory.targets[asked]) return { name: asked, ...run.theory.targets[asked] };
    return { name: "end", dW: last.dW, dU: last.dU, loss: last.trainLoss, distance: last.distance };
  }

  show(run, row, asked, pinned) {
    for (const option of this.choice.options) option.disabled = option.value !== "end" && !run.theory.targets[option.value];
    const plain = isPlain(run.settings), shown = plain && row.step > 0, target = Decomposition.target(run, asked);
    this.choice.value = target.name;
    this.choice.disabled = !plain;
    this.when.textContent = shown ? `mean train loss of steps 1 to ${number(row.step)}` : "";
    this.place.classList.toggle("empty", !shown);
    if (!shown) {
      fill(this.body, el("p", { class: "note" }, plain ? "Take a step to fill this panel." : "This needs plain gradient descent in the paper's scaling; choose both on the left."));
      return;
    }
    const terms = Engine.decompose(run.model, run.settings.stepSize, row, target), used = terms.distanceTerm - terms.returned;
    const parts = [["mean train loss", terms.meanLoss, "measured"], ["= loss there", terms.targetLoss, "reference"], ["+ distance used up", used, "ours"],
      ["+ convexity gap", terms.gap, "attention"], ["+ descent defect", terms.defect, "construction"]];
    const most = Math.max(...parts.map(([, value]) => Math.abs(value)), 1e-300);
    const residual = terms.meanLoss - (terms.targetLoss + used + terms.gap + terms.defect);
    const bar = (value, role) => el("i", {}, el("b", { style: `background:${ink(role)};left:${value < 0 ? 50 - 50 * -value / most : 50}%;width:${50 * Math.abs(value) / most}%` }));
    const where = `${TARGETS[target.name]} lies at distance ${number(target.distance)} from the start`;
    fill(this.body, el("div", { class: "bars" }, parts.map(([label, value, role]) => [el("span", {}, label), bar(value, role), el("data", { value }, number(value))])),
      el("p", { class: "note", id: "residual", "data-value": residual }, `${where[0].toUpperCase()}${where.slice(1)}. The two sides differ by ${number(Math.abs(residual), 2)}: rounding.`),
      el("p", { class: "note", id: "gapTold" }, `In a true bowl the gap is zero or less at every step${this.costs(run, row, target, pinned)}.`));
  }

  // What the steps with a gap above zero cost, here and in the pinned run: recorded for the paper's solution.
  costs(run, row, target, pinned) {
    if (target.name !== "paper" || !row.identity || !(row.identity.meanLoss > 0) || !Number.isFinite(row.identity.convexityTerm)) return "";
    const cost = ({ identity }) => `${number(100 * identity.convexityTerm / identity.meanLoss, 3)}%`, beside = pinned && pinned.recordAt(row.step);
    return `; steps above zero cost ${cost(row)} of the mean loss${beside && beside.identity ? ` (pinned run: ${cost(beside)})` : ""}`;
  }
}
