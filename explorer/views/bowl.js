// The bowl: the train loss on the line from all weights zero (0) to the paper's solution (1), for three numbers of heads.
const BOWL_HEADS = [[1, "first"], [64, "second"], [1e6, "third"]], BOWL_SCALE = 2.2;
const BOWL_PLACES = Array.from({ length: 49 }, (_, k) => -1.6 + k / 15);

class Bowl {
  constructor(place) {
    this.place = place;
    this.body = el("div", {});
    place.append(el("figcaption", {}, term("bowl")), this.body);
  }

  show(run) {
    if (this.data === run.train && this.loss === run.settings.loss) return;
    Object.assign(this, { data: run.train, loss: run.settings.loss });
    if (!run.oracle) { fill(this.body, el("p", { class: "note" }, "This needs the mixture and a readout row per token; choose both on the left.")); return; }
    const { T, d } = run.train;
    const curves = BOWL_HEADS.map(([heads, role]) => {
      const model = { ...Engine.zeroStart({ T, d, heads, decoder: "full" }) };
      const target = Engine.paperTarget(model, run.oracle, BOWL_SCALE);
      return { heads, role, values: Engine.slice(model, run.train, run.settings.loss, target, BOWL_PLACES) };
    });
    fill(this.body, bowlPicture(curves), el("p", { class: "note" }, "One head: left of the start there is a hill, and flat ground beyond it; a walk downhill from there ends in the wrong place. A million heads: a bowl, from anywhere down to the solution. (Cut off at 2.5.)"));
  }
}

function bowlPicture(curves) {
  const width = 340, height = 200, left = 34, bottom = height - 36, top = 8, most = 2.5;
  const first = BOWL_PLACES[0], last = BOWL_PLACES[BOWL_PLACES.length - 1];
  const x = (s) => left + (width - left - 82) * (s - first) / (last - first), y = (loss) => bottom - (bottom - top) * Math.min(loss, most) / most;
  const lines = curves.map(({ values, role }) => {
    const inside = BOWL_PLACES.map((s, k) => [s, values[k]]).filter(([, loss]) => loss <= most);
    return el("svg:path", { d: `M${inside.map(([s, loss]) => `${x(s).toFixed(1)} ${y(loss).toFixed(1)}`).join("L")}`, fill: "none", stroke: ink(role), "stroke-width": 2.2, class: "slice" });
  });
  const names = curves.map(({ heads, role }, k) => words(width - 76, 22 + 17 * k, heads === 1 ? "1 head" : `${short(heads)} heads`, { fill: ink(role), "font-weight": 600 }));
  const grid = [0, 0.69, 2].map((loss) => [el("svg:line", { x1: left, x2: width - 82, y1: y(loss), y2: y(loss), stroke: "var(--line)" }), words(left - 5, y(loss) + 4, loss === 0.69 ? ".69" : loss, { ...SOFT, "text-anchor": "end" })]);
  const marks = [[0, "start"], [1, "solution"]].map(([s, text]) => [el("svg:line", { x1: x(s), x2: x(s), y1: top, y2: bottom, stroke: "var(--soft)", "stroke-dasharray": "2 4" }), words(x(s), bottom + 15, text, { ...SOFT, "text-anchor": "middle" })]);
  return el("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "landscape", "aria-label": "The train loss between the start and the paper's solution: with one head a hill and flat ground, with a million heads a bowl" },
    grid, marks, words(left, height - 3, "train loss along the line", SOFT), lines, names);
}
