// The curves of a run, with those of the pinned one beside them, and the exact decomposition at the shown step.
const headsText = (H) => `${number(H)} head${H === 1 ? "" : "s"}`;

// Classes by name: + and − heads after a first phase, all heads from zero, single heads where all differ.
function classNames(run) {
  const { counts } = run.model;
  if (run.settings.start === "first_phase") return ["+ heads", "− heads"].slice(0, counts.length);
  return counts.length === 1 ? ["all heads"] : Array.from(counts, (_, g) => `head ${g + 1}`);
}

// Attention on the relevant tokens: one curve per class, or mean, most and least where there are many.
function massCurves(run) {
  const names = classNames(run), { counts, H } = run.model;
  const mean = (mass) => mass.reduce((sum, share, g) => sum + share * counts[g] / H, 0);
  if (!run.rows[0].mass) return [];
  if (names.length <= 2) return names.map((label, g) => ({ label, role: ["plus", "minus"][g], of: (row) => row.mass[g] }));
  return [{ label: "mean", role: "plus", of: (row) => mean(row.mass) }, { label: "most", role: "planted", of: (row) => Math.max(...row.mass) },
    { label: "least", role: "minus", of: (row) => Math.min(...row.mass) }];
}

const meanMass = (run, row) => (row.mass ? row.mass.reduce((sum, share, g) => sum + share * run.model.counts[g] / run.model.H, 0) : null);

class Charts {
  constructor(place, pick) {
    const make = (term_, options) => {
      const box = el("figure", { class: "panel" }, el("figcaption", {}, term(term_), options.unitText ? el("span", {}, options.unitText) : null));
      place.append(box);
      const chart = new Chart(box, { title: LEDGER.terms[term_].title, ...options });
      chart.onpick = pick;
      return chart;
    };
    this.loss = make("trainLoss", { log: true, unitText: "and test loss, log scale" });
    this.margin = make("marginTerm", { floor: 0, unitText: "min y·score", lines: [{ y: null, label: "" }] });
    this.mass = make("focus", { floor: 0, unitText: "share", lines: [{ y: null, label: "even" }] });
  }

  show(run, pinned, cursor) {
    const sets = [{ run, dash: [], tail: "" }];
    if (pinned) sets.push({ run: pinned, dash: [3, 3], tail: " · pinned" });
    const curve = (set, label, role, of, extra) => ({ label: label + set.tail, color: ink(role), dash: set.dash.length ? set.dash : extra || [],
      steps: set.run.steps, values: set.run.rows.map(of) });
    const loss = [], margin = [], mass = [];
    for (const set of sets) {
      loss.push(curve(set, "train", "train", (row) => row.trainLoss));
      if (set.run.rows[0].testLoss !== null) loss.push(curve(set, "test", "test", (row) => row.testLoss));
      margin.push(curve(set, "margin", "measured", (row) => row.margin));
      for (const { label, role, of } of massCurves(set.run)) mass.push(curve(set, label, role, of));
    }
    const even = run.evenShare;
    this.mass.options.lines = even === null ? [] : [{ y: even, label: "even" }];
    this.loss.show(loss, cursor);
    this.margin.show(margin, cursor);
    this.mass.show(mass, cursor);
  }
}

// The identity at one step as signed bars; they add up to the mean loss, and the residual says how exactly.
function showIdentity(place, run, row) {
  const terms = row && row.identity;
  const head = el("figcaption", {}, term("identity"), el("span", {}, terms ? `mean train loss of steps 1 to ${number(row.step)}` : ""));
  if (!terms) {
    const why = run.settings.optimizer !== "gd" ? "The identity is about plain gradient descent; choose it on the left."
      : run.settings.data !== "mixture" || run.settings.decoder !== "full" ? "The target here is the paper's, built from the patterns of the mixture with the full readout."
      : "It appears with the first step.";
    fill(place, head, el("p", { class: "note" }, why));
    return;
  }
  const parts = [["mean train loss", terms.meanLoss, "measured"], ["= target's loss L(θ)", terms.targetLoss, "reference"],
    ["+ distance used up", terms.distanceTerm - terms.returned, "ours"], ["+ convexity gap", terms.gap, "attention"], ["+ descent defect", terms.defect, "construction"]];
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)), 1e-300);
  const residual = terms.meanLoss - (terms.targetLoss + terms.distanceTerm - terms.returned + terms.gap + terms.defect);
  fill(place, head, el("div", { class: "bars" }, parts.map(([label, value, role]) => [el("span", {}, label),
    el("i", {}, el("b", { style: `background:${ink(role)};left:${value < 0 ? 50 - 50 * -value / most : 50}%;width:${50 * Math.abs(value) / most}%` })),
    el("data", { value }, number(value))])),
  el("p", { class: "note" }, `Target at scale ${number(run.theory.target.scale, 3)}, distance D = ${number(run.theory.target.distance)}. The two sides differ by ${number(Math.abs(residual), 2)}: rounding. ${terms.gap < 0 ? "A negative gap helps: toward the target the loss is convex." : "A positive gap is what non-convexity costs."}`));
}
