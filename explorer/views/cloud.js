// The cloud of averages: every sequence is a dot at the average that its heads saw. To the left and right lie the two
// patterns of the labels (crosses); up and down is where the distractions differ most. An arrow is the readout.
const MOST_DOTS = 200;

class Cloud {
  constructor() {
    this.name = el("b", {});
    this.told = el("span", {});
    this.canvas = el("canvas", { role: "img" });
    this.box = el("div", { class: "cloud" }, el("p", {}, this.name, " ", this.told), this.canvas);
    new ResizeObserver(([{ contentRect: { width, height } }]) => { this.size = [width, height]; this.draw(); }).observe(this.canvas);
  }

  show(run, cursor, name, frame) {
    Object.assign(this, { run, frame, place: placeAt(run, cursor) });
    const row = run.recordAt(cursor), focus = meanMass(run, row);
    this.name.textContent = name;
    this.told.textContent = `step ${number(row.step)}, loss ${number(row.trainLoss, 2)}${focus === null ? "" : `, ${number(100 * focus, 2)}% of attention on the relevant tokens`}`;
    this.canvas.setAttribute("aria-label", `${name}: ${this.told.textContent}`);
    this.draw();
  }

  draw() {
    const { canvas, run, frame, place } = this, [width, height] = this.size || [0, 0], ratio = devicePixelRatio || 1;
    if (!run || !width || !height) return;
    const c = cleared(canvas, width, height, ratio);
    const x = (value) => width / 2 + value / frame.x * (width / 2 - 14), y = (value) => height / 2 - value / frame.y * (height / 2 - 14);
    if (run.settings.data === "parity") drawLevels(c, x, y, run.train.T); else drawCross(c, x, y, frame, run);
    const { points } = place, { labels } = run.train, r = height > 300 ? 5 : 3.6;
    c.globalAlpha = 0.72;
    for (let i = 0; 2 * i < points.length; i++) {
      const px = x(points[2 * i]), py = y(points[2 * i + 1]);
      c.fillStyle = ink(labels[i] > 0 ? "plus" : "minus");
      c.beginPath();
      if (labels[i] > 0) c.arc(px, py, r, 0, 7); else c.rect(px - 0.88 * r, py - 0.88 * r, 1.76 * r, 1.76 * r);
      c.fill();
    }
    c.globalAlpha = 1;
    if (place.arrow) drawArrow(c, x(0), y(0), x(place.arrow[0]), y(place.arrow[1]));
  }
}

// Lines of the middle, and the patterns.
function drawCross(c, x, y, frame, run) {
  c.strokeStyle = paint("--line");
  c.lineWidth = 1;
  c.beginPath(); c.moveTo(x(-frame.x), y(0)); c.lineTo(x(frame.x), y(0)); c.moveTo(x(0), y(-frame.y)); c.lineTo(x(0), y(frame.y)); c.stroke();
  (run.patterns || []).slice(0, 2).forEach((pattern, k) => {
    const px = x(dot(pattern, run.directions[0])), py = y(dot(pattern, run.directions[1]));
    c.strokeStyle = ink(k ? "minus" : "plus");
    c.lineWidth = 2.5;
    c.beginPath(); c.moveTo(px - 8, py - 8); c.lineTo(px + 8, py + 8); c.moveTo(px - 8, py + 8); c.lineTo(px + 8, py - 8); c.stroke();
  });
}

// For parity: one column for each number of tokens of the second kind, and the line between the two answers.
function drawLevels(c, x, y, T) {
  c.strokeStyle = paint("--soft");
  c.lineWidth = 1;
  c.beginPath(); c.moveTo(x(-1.1), y(0)); c.lineTo(x(1.1), y(0)); c.stroke();
  c.fillStyle = paint("--soft");
  c.font = `${typeSize()}px ui-sans-serif, system-ui, sans-serif`;
  c.textAlign = "center";
  for (let k = 0; k <= T; k++) c.fillText(k, x(2 * k / T - 1), y(-1.2));
  c.textAlign = "left";
  const says = x(0) - x(-1) > 90 ? "says " : "";
  c.textBaseline = "middle";
  c.fillText(`${says}+1`, x(-1.45), y(1));
  c.fillText(`${says}−1`, x(-1.45), y(-1));
}

function drawArrow(c, x, y, toX, toY) {
  const length = Math.hypot(toX - x, toY - y);
  if (length < 4) return;
  const [ux, uy] = [(toX - x) / length, (toY - y) / length], head = Math.min(10, length / 2);
  c.strokeStyle = c.fillStyle = ink("measured");
  c.lineWidth = 2.5;
  c.beginPath(); c.moveTo(x, y); c.lineTo(toX - head * ux, toY - head * uy); c.stroke();
  c.beginPath();
  c.moveTo(toX, toY);
  c.lineTo(toX - head * (ux + 0.5 * uy), toY - head * (uy - 0.5 * ux));
  c.lineTo(toX - head * (ux - 0.5 * uy), toY - head * (uy + 0.5 * ux));
  c.fill();
}

const dot = (a, b) => { let sum = 0; for (let j = 0; j < b.length; j++) sum += a[j] * b[j]; return sum; };

// Dots and arrow at a recorded step, kept with the record; between two records they move in a straight line.
function placeAt(run, cursor) {
  const row = run.rowAt(cursor), before = placesOf(run, row);
  const k = run.rows.indexOf(row), next = cursor === null ? null : run.rows.slice(k + 1).find(({ dW }) => dW);
  if (!next || !(cursor > row.step)) return before;
  const after = placesOf(run, next), part = Math.min((cursor - row.step) / (next.step - row.step), 1);
  const between = (a, b) => a.map((value, j) => value + part * (b[j] - value));
  return { points: between(before.points, after.points), arrow: before.arrow && between(before.arrow, after.arrow) };
}

function placesOf(run, row) {
  if (row.places) return row.places;
  const { model, train } = run, [one, two] = run.directions, count = Math.min(train.n, MOST_DOTS), { d, T } = train;
  const { averages, scores } = Engine.averages(model, train, row.dW, row.dU, count), points = new Float64Array(2 * count);
  for (let i = 0; i < count; i++) {
    const average = averages.subarray(i * d, (i + 1) * d), sure = Math.tanh(scores[i] / 2);
    const spread = 0.16 / T * (2 * ((i * 0.618034) % 1) - 1); // dots of equal place stand side by side
    points[2 * i] = train.kinds ? 2 * train.kinds[i] / T - 1 + spread : dot(average, one);
    points[2 * i + 1] = train.kinds ? sure : dot(average, two);
  }
  return (row.places = { points, arrow: train.kinds ? null : arrowOf(run, row, one, two) });
}

// The readout points where it raises the score most. Its length says how sure the model is of a sequence at the pattern:
// it reaches the cross when it is certain.
function arrowOf(run, row, one, two) {
  const whole = Engine.wholeReadout(run.model, row.dU), [a, b] = [dot(whole, one), dot(whole, two)], size = Math.hypot(a, b);
  if (!size) return [0, 0];
  const far = run.patterns ? Math.abs(dot(run.patterns[0], one)) : run.frame.x * 0.8, sure = Math.tanh(size * far / 2);
  return [far * sure * a / size, far * sure * b / size];
}

// How far the picture reaches: to the patterns, or to most of the tokens.
function frameOf(run) {
  if (run.train.kinds) return { x: 1.45, y: 1.3 };
  const { train, directions: [one, two] } = run, count = Math.min(train.n, MOST_DOTS);
  const reach = (values, share) => values.map(Math.abs).sort((a, b) => a - b)[Math.floor(share * (values.length - 1))] || 1;
  const tokens = Array.from({ length: count * train.T }, (_, k) => train.tokens.subarray(k * train.d, (k + 1) * train.d));
  if (!run.patterns) return { x: reach(tokens.map((token) => dot(token, one)), 0.97), y: reach(tokens.map((token) => dot(token, two)), 0.97) };
  const { averages } = Engine.averages(run.model, train, run.rows[0].dW, run.rows[0].dU, count);
  const heights = Array.from({ length: count }, (_, i) => dot(averages.subarray(i * train.d, (i + 1) * train.d), two));
  return { x: 1.25 * Math.abs(dot(run.patterns[0], one)), y: 1.2 * reach(heights, 1) };
}

class Clouds {
  constructor(place) {
    this.clouds = [new Cloud(), new Cloud()];
    this.grid = el("div", { class: "clouds" }, this.clouds.map(({ box }) => box));
    this.legend = el("p", { class: "note legend", id: "cloudLegend" });
    place.append(el("figcaption", {}, term("cloud")), this.grid, this.legend);
  }

  show(run, pinned, cursor) {
    const shown = pinned ? [run, pinned] : [run];
    for (const one of shown) {
      one.directions ??= Engine.viewDirections(one.train, one.patterns);
      one.frame ??= frameOf(one);
    }
    const same = pinned && pinned.settings.data === run.settings.data;
    const frame = same ? { x: Math.max(run.frame.x, pinned.frame.x), y: Math.max(run.frame.y, pinned.frame.y) } : null;
    this.grid.classList.toggle("two", Boolean(pinned));
    this.clouds[1].box.hidden = !pinned;
    shown.forEach((one, k) => this.clouds[k].show(one, cursor, `${headsText(one.settings.heads)}${isRescaled(one.settings) ? ", attention's step × heads" : ""}${k ? " (pinned)" : ""}`, frame || one.frame));
    const kind = run.train.kinds ? "parity" : run.patterns ? "patterns" : "plain";
    if (this.kind !== kind) fill(this.legend, cloudLegend(kind));
    this.kind = kind;
  }
}

function cloudLegend(kind) {
  const mark = (role, shape, text) => el("span", { class: "key" }, el("i", { class: `${shape} ${role}` }), text);
  const labels = [mark("plus", "disk", "label +1"), mark("minus", "block", "label −1")];
  if (kind === "parity") return [labels, "Each mark is a sequence: across, how many of its tokens are of the second kind; up or down, what the heads say. Right answers zigzag: no line can do that."];
  const where = kind === "patterns" ? "crosses: the two patterns that carry the label" : "left to right: from one label to the other";
  return [labels, `Each mark is a sequence, at the average of what its heads saw; ${where}; up and down: the distractions; arrow: what the readout looks for, longer when surer.`];
}
