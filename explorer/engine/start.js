// Where descent starts: zero, Gaussian, or one gradient step on fresh data (the paper's first phase).

function zeroStart({ T, d, heads, decoder }) {
  const rows = decoder === "full" ? T : 1, sizeW = decoder === "query" ? d : d * d;
  return makeModel({ W: new Float64Array(sizeW), U: new Float64Array(rows * d), counts: Float64Array.of(heads), T, d, decoder });
}

// Every head its own class; E|W_h|^2 and E|U_h|^2 are the square of the scale.
function gaussianStart({ T, d, heads, decoder, scale }, random) {
  const rows = decoder === "full" ? T : 1, sizeW = decoder === "query" ? d : d * d;
  const U = Float64Array.from({ length: heads * rows * d }, () => random.normal() * scale / Math.sqrt(rows * d));
  const W = Float64Array.from({ length: heads * sizeW }, () => random.normal() * scale / Math.sqrt(sizeW));
  return makeModel({ W, U, counts: new Float64Array(heads).fill(1), T, d, decoder });
}

// theta_h = -alpha_h H^c gradient(0), half of the heads with alpha = +1 and half with -1 (the odd one gets +1).
function firstPhase({ T, d, heads, decoder, loss }, fresh) {
  const one = zeroStart({ T, d, heads: 1, decoder });
  const objective = new Objective(one, fresh, loss);
  objective.evaluate(one.W, one.U);
  const plus = Math.ceil(heads / 2), signs = heads > 1 ? [1, -1] : [1];
  const W = new Float64Array(signs.length * one.sizeW), U = new Float64Array(signs.length * objective.gU.length);
  signs.forEach((sign, g) => {
    objective.gW.forEach((x, k) => { W[g * one.sizeW + k] = -sign * x + 0; });
    objective.gU.forEach((x, k) => { U[g * objective.gU.length + k] = -sign * x + 0; });
  });
  const counts = Float64Array.from(heads > 1 ? [plus, heads - plus] : [1]);
  return makeModel({ W, U, counts, T, d, decoder });
}
