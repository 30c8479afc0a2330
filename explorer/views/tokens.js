// Tokens drawn as their patterns: a filled mark for the label's pattern, an open one for a distracting pattern; where no
// patterns are known, a strip of the token's numbers.
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "cross", "bar", "ring", "hex"];

function tokenName(data, i, t) {
  const which = data.pattern[i * data.T + t];
  if (data.kinds) return which ? "second kind" : "first kind";
  if (which === 0 || which === 1) return `label ${which ? "−1" : "+1"}`;
  return which > 1 ? `distraction ${which - 1}` : `token ${t + 1}`;
}

function drawToken(c, data, i, t, x, y, size) {
  const which = data.pattern[i * data.T + t], real = !data.mask || data.mask[i * data.T + t];
  c.save();
  c.translate(x, y);
  if (!real) { c.globalAlpha = 0.25; }
  if (which < 0) drawStrip(c, data, i, t, size);
  else drawMark(c, data.kinds ? [2, 4][which] : which, size);
  c.restore();
}

function drawMark(c, which, size) {
  const r = size / 2 - 1, relevant = which < 2;
  c.lineWidth = 1.5;
  c.strokeStyle = c.fillStyle = relevant ? ink(which === 0 ? "plus" : "minus") : ink("reference");
  c.beginPath();
  path(c, relevant ? (which === 0 ? "circle" : "square") : SHAPES[(which - 2 + 2) % SHAPES.length], r);
  if (relevant) c.fill(); else c.stroke();
}

function path(c, shape, r) {
  const corners = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], triangle: [[0, -1], [1, 0.9], [-1, 0.9]], down: [[0, 1], [1, -0.9], [-1, -0.9]],
    diamond: [[0, -1], [1, 0], [0, 1], [-1, 0]], hex: [[-1, 0], [-0.5, -0.9], [0.5, -0.9], [1, 0], [0.5, 0.9], [-0.5, 0.9]] }[shape];
  const k = shape === "square" ? 0.86 : 1;
  if (corners) { corners.forEach(([x, y], n) => c[n ? "lineTo" : "moveTo"](x * r * k, y * r * k)); c.closePath(); }
  else if (shape === "cross") { c.moveTo(-r, -r); c.lineTo(r, r); c.moveTo(r, -r); c.lineTo(-r, r); }
  else if (shape === "bar") { c.moveTo(-r, -r / 2.5); c.lineTo(r, -r / 2.5); c.moveTo(-r, r / 2.5); c.lineTo(r, r / 2.5); }
  else if (shape === "ring") { c.arc(0, 0, r, 0, 7); c.moveTo(r / 2.5, 0); c.arc(0, 0, r / 2.5, 0, 7); }
  else c.arc(0, 0, r, 0, 7);
}

function drawStrip(c, data, i, t, size) {
  const { d, T, tokens } = data, at = (i * T + t) * d, width = size / d;
  let most = 1e-300;
  for (let j = 0; j < d; j++) most = Math.max(most, Math.abs(tokens[at + j]));
  for (let j = 0; j < d; j++) {
    const value = tokens[at + j] / most;
    c.fillStyle = ink(value >= 0 ? "first" : "second");
    const height = Math.abs(value) * size / 2;
    c.fillRect(-size / 2 + j * width, value >= 0 ? -height : 0, Math.max(width - 0.5, 0.8), height);
  }
}
