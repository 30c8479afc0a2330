// A picture of the model with the numbers of one sequence flowing through it: tokens, classes of heads, score, loss.
const PICTURE = { width: 372, tokens: 44, heads: 88, box: 128, score: 268, top: 34 };

function showPicture(place, run, sequence, row) {
  const { train, model } = run, i = Math.min(sequence, train.n - 1), { T } = train;
  const seen = Engine.lookAt(model, train, row.dW, row.dU, i), names = classNames(run);
  const shown = names.length <= 3 ? names.map((_, g) => g) : [0, 1, names.length - 1];
  const height = 64 + Math.max(shown.length * 68, 136), room = height - 48;
  const tokenY = (t) => PICTURE.top + (t + 0.5) * room / T, headY = (k) => PICTURE.top + (k + 0.5) * room / shown.length;
  const parts = [words(8, 16, "tokens", SOFT), words(PICTURE.heads, 16, "heads: where they look, their vote", SOFT)];
  const most = Math.max(...seen.parts.map(Math.abs), 1e-12), middle = height / 2 + 6;
  shown.forEach((g, k) => {
    for (let t = 0; t < T; t++) parts.push(looking(seen, g, train, i, t, tokenY(t), headY(k)));
    parts.push(...headBox(run, seen, g, names[g], shareOn(seen, g, train, i), headY(k), middle, most));
  });
  if (shown.length < names.length) parts.push(words(PICTURE.heads, height - 2, `and ${names.length - shown.length} more heads`, SOFT));
  parts.push(...outcome(run, seen.score, train.labels[i], middle));
  const [minus, plus] = train.labelNames.map(signed), kinds = names[0] === "first half";
  const told = `Sequence ${i + 1} alone; “On relevant” at the top is the mean of all. A vote is what these heads add to the score; the score says label ${plus} above 0 and ${minus} below.${kinds ? " The first half of the heads began with one gradient step on fresh sequences, the second half with its opposite." : ""}`;
  if ($("#workTold").textContent !== told) $("#workTold").textContent = told;
  const label = `Sequence ${i + 1}: score ${number(seen.score, 3)}, label ${labelOf(train, train.labels[i])}`;
  const svg = el("svg:svg", { viewBox: `0 0 ${PICTURE.width} ${height}`, role: "img", "aria-label": label }, parts);
  const canvas = el("canvas", { class: "tokens" });
  fill(place, svg, canvas);
  drawTokens(canvas, widthOf(place) / PICTURE.width, height, (c) => {
    for (let t = 0; t < T; t++) drawToken(c, train, i, t, 30, tokenY(t), Math.min(18, room / T * 0.85));
  });
}

const SOFT = { fill: "var(--soft)", "font-size": 12.5 };
const words = (x, y, text, more = {}) => el("svg:text", { x, y, "font-size": 13, fill: "var(--ink)", ...more }, text);
// Few enough digits for its frame.
const short3 = (score) => (Math.abs(score) >= 1e4 ? number(score, 1) : number(score, 3));
const signed = (name) => name.replace(/^-(?=\d)/, "−");
const labelOf = (data, label) => signed(data.labelNames[label > 0 ? 1 : 0]);

// A line from a token to a class of heads, as wide as the attention it gets.
function looking(seen, g, train, i, t, from, to) {
  const relevant = train.relevant && train.relevant[i * train.T + t];
  return el("svg:line", { x1: PICTURE.tokens, y1: from, x2: PICTURE.heads, y2: to, "stroke-opacity": 0.75,
    stroke: ink(relevant ? "test" : "reference"), "stroke-width": 0.4 + 5 * columnShare(seen, g, train.T, t) });
}

// A class of heads, and its contribution to the score.
function headBox(run, seen, g, name, on, y, middle, most) {
  const part = seen.parts[g], role = ["first", "second", "third"][g % 3], right = PICTURE.heads + PICTURE.box, x = PICTURE.heads + 8;
  return [
    el("svg:path", { d: `M${right} ${y} C ${right + 24} ${y}, ${right + 18} ${middle}, ${PICTURE.score - 22} ${middle}`, fill: "none", class: "flow",
      stroke: ink(role), "stroke-width": 1 + 7 * Math.abs(part) / most, "stroke-opacity": 0.6 }),
    el("svg:rect", { x: PICTURE.heads, y: y - 28, width: PICTURE.box, height: 56, rx: 8, fill: "var(--raised)", stroke: "var(--line)" }),
    words(x, y - 14, run.model.counts[g] === 1 ? name : `${name}: ${short(run.model.counts[g])}`, { "font-weight": 600 }),
    words(x, y + 3, on === null ? "" : `${number(100 * on, 3)}% on relevant`, SOFT),
    words(x, y + 20, `vote ${part > 0 ? "+" : ""}${number(part, 3)}`, { fill: ink(role), "font-weight": 600 }),
  ];
}

// The score, the label and the loss.
function outcome(run, score, y, middle) {
  const m = y * score, x = PICTURE.score, loss = Engine.LOSSES[run.settings.loss].value(m);
  const center = { "text-anchor": "middle" }, [said, color] = m > 0 ? ["right", "--holds"] : m < 0 ? ["wrong", "--violated"] : ["undecided", "--soft"];
  return [
    el("svg:rect", { x: x - 27, y: middle - 17, width: 54, height: 34, rx: 17, fill: "var(--tint)", stroke: "var(--accent)" }),
    words(x, middle + 4, short3(score), { ...center, "font-weight": 600 }),
    words(x, middle - 25, "score", { ...SOFT, ...center }),
    words(x + 31, middle - 12, `label ${labelOf(run.train, y)}`, SOFT),
    words(x + 31, middle + 4, said, { fill: `var(${color})`, "font-weight": 600 }),
    words(x + 31, middle + 20, `loss ${number(loss, 2)}`),
  ];
}

function drawTokens(canvas, scale, height, draw) {
  const ratio = devicePixelRatio || 1, width = PICTURE.tokens * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height * scale}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * scale * ratio);
  const c = canvas.getContext("2d");
  c.scale(scale * ratio, scale * ratio);
  draw(c);
}

// The mean over queries of the attention that class g pays to key t, and to all relevant keys.
function columnShare(seen, g, T, t) {
  let sum = 0;
  for (let q = 0; q < seen.queries; q++) sum += seen.attention[(g * seen.queries + q) * T + t];
  return sum / seen.queries;
}

function shareOn(seen, g, train, i) {
  if (!train.relevant) return null;
  let sum = 0;
  for (let t = 0; t < train.T; t++) if (train.relevant[i * train.T + t]) sum += columnShare(seen, g, train.T, t);
  return sum;
}
