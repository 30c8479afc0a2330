// A picture of the model with the numbers of one sequence flowing through it: tokens, classes of heads, score, loss.
function showPicture(place, run, sequence, row) {
  const { train, model } = run, i = Math.min(sequence, train.n - 1), seen = Engine.lookAt(model, train, row.dW, row.dU, i);
  const names = classNames(run), shown = names.length <= 3 ? names.map((_, g) => g) : [0, 1, names.length - 1];
  const { T } = train, width = 440, height = 64 + Math.max(shown.length * 62, 120), middle = height / 2 + 6;
  const y = train.labels[i], m = y * seen.score, loss = run.settings.loss === "logistic" ? Math.log1p(Math.exp(-Math.abs(m))) + Math.max(-m, 0) : (m > 0 ? 1 / (Math.sqrt(1 + m * m) + m) : Math.sqrt(1 + m * m) - m);
  const most = Math.max(...seen.parts.map(Math.abs), 1e-12), text = (x, at, words, attributes = {}) => el("svg:text", { x, y: at, "font-size": 11, fill: paint("--ink"), ...attributes }, words);
  const soft = { fill: paint("--soft"), "font-size": 10 }, parts = [];
  const tokenY = (t) => 34 + (t + 0.5) * (height - 48) / T, headY = (k) => 34 + (k + 0.5) * (height - 48) / shown.length;
  shown.forEach((g, k) => {
    const on = shareOn(seen, g, train, i), wide = 1 + 7 * Math.abs(seen.parts[g]) / most, role = seen.parts[g] >= 0 ? "plus" : "minus";
    for (let t = 0; t < T; t++) {
      const weight = columnShare(seen, g, T, t);
      parts.push(el("svg:line", { x1: 46, y1: tokenY(t), x2: 150, y2: headY(k), stroke: train.relevant && train.relevant[i * T + t] ? ink("test") : ink("reference"), "stroke-width": 0.4 + 5 * weight, "stroke-opacity": 0.75 }));
    }
    parts.push(el("svg:path", { d: `M242 ${headY(k)} C 270 ${headY(k)}, 270 ${middle}, 300 ${middle}`, fill: "none", stroke: ink(role), "stroke-width": wide, "stroke-opacity": 0.6, class: "flow" }),
      el("svg:rect", { x: 150, y: headY(k) - 21, width: 92, height: 42, rx: 8, fill: paint("--raised"), stroke: paint("--line") }),
      text(158, headY(k) - 7, names[g], { "font-weight": 600 }), text(158, headY(k) + 5, `${short(model.counts[g])} of them`, soft),
      text(158, headY(k) + 16, on === null ? "" : `${number(100 * on, 3)}% relevant`, soft),
      text(247, headY(k) - 4, `${seen.parts[g] >= 0 ? "+" : ""}${number(seen.parts[g], 3)}`, { fill: ink(role) }));
  });
  if (shown.length < names.length) parts.push(text(150, height - 2, `and ${names.length - shown.length} more heads`, soft));
  parts.push(el("svg:circle", { cx: 322, cy: middle, r: 22, fill: paint("--tint"), stroke: paint("--accent") }),
    text(322, middle + 4, number(seen.score, 3), { "text-anchor": "middle", "font-weight": 600 }), text(322, middle - 28, "score", { "text-anchor": "middle", ...soft }),
    text(354, middle - 8, `label ${train.labelNames[y > 0 ? 1 : 0]}`, soft), text(354, middle + 5, m > 0 ? "right" : "wrong", { fill: paint(m > 0 ? "--holds" : "--violated"), "font-weight": 600 }),
    text(354, middle + 19, `loss ${number(loss, 3)}`), text(8, 16, "tokens", soft), text(150, 16, "heads: where they look", soft), text(300, 16, "what they say", soft));
  const svg = el("svg:svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Sequence ${i + 1}: score ${number(seen.score, 3)}, label ${train.labelNames[y > 0 ? 1 : 0]}` }, parts);
  const canvas = el("canvas", { class: "tokens" });
  fill(place, svg, canvas);
  const scale = widthOf(place) / width, ratio = devicePixelRatio || 1;
  canvas.style.width = `${46 * scale}px`;
  canvas.style.height = `${height * scale}px`;
  canvas.width = Math.round(46 * scale * ratio);
  canvas.height = Math.round(height * scale * ratio);
  const c = canvas.getContext("2d");
  c.scale(scale * ratio, scale * ratio);
  for (let t = 0; t < T; t++) drawToken(c, train, i, t, 30, tokenY(t), Math.min(18, (height - 48) / T * 0.85));
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
