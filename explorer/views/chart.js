// The size of letters on canvases: larger on a wall.
const typeSize = () => (document.body.classList.contains("presenting") ? 17 : 12);

// The empty canvas, ready to draw on; a new size costs more than wiping.
function cleared(canvas, width, height, ratio) {
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)], c = canvas.getContext("2d");
  if (canvas.width !== wide || canvas.height !== high) { canvas.width = wide; canvas.height = high; }
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.clearRect(0, 0, wide, high);
  c.scale(ratio, ratio);
  return c;
}

// A line chart on a canvas: log or linear axes, labels at the ends of the curves, a cursor, values on hover or tap.
class Chart {
  // options: { title, unit, log (vertical axis), floor, lines: [{ y, label }] }
  constructor(place, options) {
    this.options = options;
    this.canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": options.title });
    this.readout = el("div", { class: "readout", hidden: true });
    place.append(el("div", { class: "chart" }, this.canvas, this.readout));
    this.series = [];
    this.pointer = null;
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.pointer = null; this.readout.hidden = true; this.draw(); });
    this.onpick = null; // called with a step when the chart is clicked
    this.canvas.addEventListener("click", () => { if (this.pointer && this.onpick) this.onpick(this.pointer.step); });
    new ResizeObserver(([{ contentRect }]) => { this.size = [contentRect.width, contentRect.height]; this.draw(); }).observe(this.canvas);
  }

  // series: [{ label, color, dash, steps, values }]
  show(series, cursor) { this.series = series; this.cursor = cursor; this.draw(); }

  scales(width, height) {
    const { log, floor, lines = [] } = this.options, left = 4 * typeSize() + 6, right = this.room || 60, top = 8, bottom = 12 + typeSize();
    let last = 1, low = Infinity, high = -Infinity, least = 0;
    for (const { steps, values } of this.series) {
      let own = Infinity; // the smallest value of this curve
      for (let i = 0; i < steps.length; i++) {
        const y = values[i];
        if (!Number.isFinite(y) || (log && y <= 0)) continue;
        last = Math.max(last, steps[i]);
        own = Math.min(own, y);
        high = Math.max(high, y);
      }
      low = Math.min(low, own);
      if (own < Infinity) least = Math.max(least, own);
    }
    if (log && low === Infinity && high === -Infinity) [low, high] = [0.1, 1];
    if (log) low = Math.max(low, 1e-6 * least); // a curve that falls much lower than another is cut off, or the other would look flat
    for (const line of lines) if (line.y !== null) { low = Math.min(low, line.y); high = Math.max(high, line.y); }
    if (!(low <= high)) [low, high] = log ? [0.1, 1] : [0, 1];
    if (floor !== undefined) low = Math.min(low, floor);
    if (!log && high <= low) high = low + 1; // nothing has moved yet
    const place = log ? Math.log10 : (y) => y;
    let [bottomValue, topValue] = [place(low), place(high)];
    if (log && topValue - bottomValue < 1) [bottomValue, topValue] = [Math.min(Math.floor(bottomValue), Math.ceil(topValue) - 1), Math.ceil(topValue)]; // a whole decade, with its ticks
    const room = Math.max((topValue - bottomValue) * 0.06, log ? 0.08 : Math.max(Math.abs(topValue), 1e-3) * 0.03);
    bottomValue -= floor !== undefined && !log ? 0 : room;
    topValue += room;
    const across = Math.log1p(last);
    return { left, width, right: width - right, top, bottom: height - bottom, last, bottomValue, topValue, place,
      x: (step) => left + (width - right - left) * Math.log1p(step) / across,
      y: (value) => top + (height - bottom - top) * (topValue - place(value)) / (topValue - bottomValue) };
  }

  ticks(s) {
    const most = Math.max(1, Math.floor((s.bottom - s.top) / 17)); // labels that fit without overlap
    if (!this.options.log) {
      const step = niceStep((s.topValue - s.bottomValue) / Math.min(4, most)), found = [];
      for (let v = Math.ceil(s.bottomValue / step) * step; v <= s.topValue + 1e-12; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : Number(v.toPrecision(12)));
      return found;
    }
    const found = [], every = Math.max(1, Math.ceil((s.topValue - s.bottomValue) / Math.min(5, most)));
    for (let k = Math.ceil(s.bottomValue); k <= s.topValue; k++) if (k % every === 0) found.push(10 ** k);
    if (found.length > 1) return found;
    const fine = [];
    for (let k = Math.floor(s.bottomValue); k <= s.topValue; k++) for (const m of [1, 2, 5]) { const v = m * 10 ** k; if (Math.log10(v) >= s.bottomValue && Math.log10(v) <= s.topValue) fine.push(v); }
    return fine;
  }

  draw() {
    const { canvas } = this, [width, height] = this.size || [0, 0], ratio = devicePixelRatio || 1;
    if (!width || !height) return;
    const c = cleared(canvas, width, height, ratio);
    c.font = `${typeSize()}px ui-sans-serif, system-ui, sans-serif`;
    const words = [...this.series, ...(this.options.lines || []).filter(({ y }) => y !== null)].map(({ label }) => c.measureText(`${label} ↓`).width);
    const least = c.measureText("steps (log)").width + 14;
    this.room = Math.max(least, Math.min(14 + Math.ceil(Math.max(0, ...words)), 0.36 * width));
    const s = (this.scale = this.scales(width, height));
    c.textBaseline = "middle";
    this.axes(c, s);
    for (const line of this.options.lines || []) {
      if (line.y === null) continue;
      this.stroke(c, [[s.left, s.y(line.y)], [s.right, s.y(line.y)]], ink("reference"), [4, 3], 1);
    }
    c.save();
    c.beginPath();
    c.rect(s.left, 0, s.right - s.left + 4, s.bottom + 3);
    c.clip();
    // What lies after the shown step is faint, so that a run that plays draws its curve.
    const shown = this.cursor === null || this.cursor === undefined ? s.right : s.x(this.cursor);
    for (const [from, to, alpha] of [[0, shown + 0.5, 1], [shown + 0.5, width, 0.22]]) {
      c.save();
      c.globalAlpha = alpha;
      c.beginPath();
      c.rect(from, 0, Math.max(to - from, 0), height);
      c.clip();
      for (const one of this.series) this.stroke(c, this.points(one, s), one.color, one.dash, 2);
      c.restore();
    }
    c.restore();
    this.labels(c, s);
    const at = this.pointer ? this.pointer.step : this.cursor;
    if (at !== null && at !== undefined) {
      this.stroke(c, [[s.x(at), s.top], [s.x(at), s.bottom]], paint("--soft"), [2, 3], 1);
      for (const one of this.series) {
        const i = recordAt(one.steps, at), y = one.values[i];
        if (i < 0 || !Number.isFinite(y) || (this.options.log && y <= 0) || s.y(y) > s.bottom + 1) continue;
        c.fillStyle = one.color;
        c.beginPath();
        c.arc(s.x(one.steps[i]), s.y(y), 3.5, 0, 7);
        c.fill();
      }
    }
  }

  axes(c, s) {
    c.strokeStyle = paint("--line");
    c.fillStyle = paint("--soft");
    c.lineWidth = 1;
    c.textAlign = "right";
    for (const value of this.ticks(s)) {
      const y = Math.round(s.y(value)) + 0.5;
      c.beginPath(); c.moveTo(s.left, y); c.lineTo(s.right, y); c.stroke();
      c.fillText(number(value, 3), s.left - 6, y);
    }
    c.textAlign = "center";
    const marks = [0, 1, 10, 100, 1000, 1e4, 1e5].filter((k) => k <= s.last), gap = 26;
    if (s.last < 10 && s.last > 1) marks.push(s.last);
    let before = -Infinity, free = s.right + 8;
    for (const step of marks) {
      const x = s.x(step);
      if (x - before < gap) continue;
      before = x;
      c.fillText(number(step), x, s.bottom + 12);
      free = Math.max(free, x + c.measureText(number(step)).width / 2 + 6);
    }
    c.textAlign = "left";
    c.fillText("steps (log)", Math.min(free, s.width - c.measureText("steps (log)").width), s.bottom + 12);
  }

  // On a logarithmic axis zero, too small for a number here, is drawn just below the floor.
  points({ steps, values }, s) {
    const found = [];
    for (let i = 0; i < steps.length; i++) {
      if (!Number.isFinite(values[i]) || (this.options.log && values[i] < 0)) continue;
      found.push([s.x(steps[i]), this.options.log && values[i] === 0 ? s.bottom + 2 : s.y(values[i])]);
    }
    return found;
  }

  stroke(c, points, color, dash, width) {
    if (!points.length) return;
    c.strokeStyle = color;
    c.lineWidth = width;
    c.setLineDash(dash || []);
    c.beginPath();
    points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
    if (points.length === 1) c.arc(points[0][0], points[0][1], 1.5, 0, 7);
    c.stroke();
    c.setLineDash([]);
  }

  // Direct labels at the ends of the curves, pushed apart where they would overlap.
  labels(c, s) {
    const wanted = [];
    for (const one of this.series) {
      const ends = this.points(one, s);
      if (ends.length) wanted.push({ text: ends[ends.length - 1][1] > s.bottom + 1 ? `${one.label} ↓` : one.label, color: one.color, y: Math.min(ends[ends.length - 1][1], s.bottom) });
    }
    for (const line of this.options.lines || []) if (line.y !== null) wanted.push({ text: line.label, color: paint("--soft"), y: s.y(line.y) });
    wanted.sort((a, b) => a.y - b.y);
    for (let i = 1; i < wanted.length; i++) wanted[i].y = Math.max(wanted[i].y, wanted[i - 1].y + typeSize() + 1);
    const over = wanted.length ? wanted[wanted.length - 1].y - s.bottom + 7 : 0;
    if (over > 0) {
      wanted[wanted.length - 1].y -= over;
      for (let i = wanted.length - 2; i >= 0; i--) wanted[i].y = Math.min(wanted[i].y, wanted[i + 1].y - typeSize() - 1);
    }
    c.textAlign = "left";
    for (const { text, color, y } of wanted) { c.fillStyle = color; c.fillText(text, s.right + 8, Math.max(y, s.top + 4), this.room - 9); }
  }

  point(event) {
    if (!this.scale || !this.series.length) return;
    const s = this.scale, x = event.offsetX, share = (x - s.left) / (s.right - s.left);
    const near = Math.expm1(Math.min(Math.max(share, 0), 1) * Math.log1p(s.last));
    const { steps } = this.series.reduce((a, b) => (b.steps.length > a.steps.length ? b : a));
    const step = steps[recordAt(steps, near)] ?? 0;
    this.pointer = { step };
    const unit = this.options.unit ? ` ${this.options.unit}` : "";
    const rows = this.series.map((one) => ({ one, i: recordAt(one.steps, step) })).filter(({ i }) => i >= 0);
    fill(this.readout, el("b", {}, `step ${number(step)}`), rows.map(({ one, i }) => el("span", {},
      el("i", { style: `background:${one.color}` }), `${one.label} ${number(one.values[i])}${unit}`)));
    this.readout.hidden = false;
    this.readout.style.left = x > (s.left + s.right) / 2 ? "auto" : `${x + 12}px`;
    this.readout.style.right = x > (s.left + s.right) / 2 ? `${this.size[0] - x + 12}px` : "auto";
    this.draw();
  }
}

// The index of the last recorded step that is not after `step`.
function recordAt(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) { const middle = (low + high) >> 1; if (steps[middle] <= step + 1e-9) low = middle + 1; else high = middle; }
  return low - 1;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-12)));
  return [1, 2, 5, 10].find((m) => m * power >= rough) * power;
}
