// What the pictures of a run are drawn from: the averages that heads see, and slices of the landscape.

// The average that the heads saw of each of the first `count` sequences: the mean over queries and heads of A X.
function averages(model, data, dW, dU, count) {
  const { T, d } = data, { G, H, counts } = model, out = new Float64Array(count * d);
  const objective = new Objective(model, data, "logistic"), scores = new Float64Array(count);
  const W = model.W.map((x, k) => x + dW[k]), U = model.U.map((x, k) => x + dU[k]);
  for (let i = 0; i < count; i++) {
    scores[i] = objective.forward(W, U, i);
    for (let g = 0; g < G; g++) {
      const share = counts[g] / H / realQueries(objective, i);
      for (let row = g * objective.queries; row < (g + 1) * objective.queries; row++) {
        for (let s = 0; s < T; s++) {
          const weight = share * objective.A[row * T + s], token = (i * T + s) * d;
          if (weight) for (let j = 0; j < d; j++) out[i * d + j] += weight * data.tokens[token + j];
        }
      }
    }
  }
  return { averages: out, scores };
}

function realQueries(objective, i) {
  const { mask, T } = objective.data;
  if (!mask || objective.queries === 1) return objective.queries;
  let real = 0;
  for (let t = 0; t < T; t++) real += mask[i * T + t];
  return real;
}

// All heads together: what they read in an average, so that the score of a sequence whose queries all see the same
// average is its inner product with it.
function wholeReadout(model, dU) {
  const { G, rows, d, T, decoder, ofClass, U } = model, out = new Float64Array(d);
  for (let g = 0; g < G; g++) {
    const repeat = decoder === "pooled" ? T : 1;
    for (let t = 0; t < rows; t++) {
      for (let j = 0; j < d; j++) {
        const k = (g * rows + t) * d + j;
        out[j] += ofClass[g] * repeat * (U[k] + dU[k]);
      }
    }
  }
  return out;
}

const along = (a, b, at = 0) => { let sum = 0; for (let j = 0; j < b.length; j++) sum += a[at + j] * b[j]; return sum; };

// Two directions to look along: from one label to the other, and, at a right angle, where the plain averages of the
// tokens vary most. With patterns the first one joins those of the labels, and the second one leaves them alone.
function viewDirections(data, patterns) {
  const { n, T, d, tokens, labels } = data, means = new Float64Array(n * d), across = new Float64Array(d);
  for (let i = 0; i < n; i++) {
    let real = T;
    if (data.mask) { real = 0; for (let t = 0; t < T; t++) real += data.mask[i * T + t]; }
    for (let t = 0; t < T; t++) for (let j = 0; j < d; j++) means[i * d + j] += tokens[(i * T + t) * d + j] / real;
  }
  const plus = labels.reduce((sum, y) => sum + (y > 0), 0);
  for (let j = 0; j < d; j++) {
    if (patterns) { across[j] = patterns[0][j] - patterns[1][j]; continue; }
    for (let i = 0; i < n; i++) across[j] += means[i * d + j] / (labels[i] > 0 ? plus : plus - n);
  }
  const taken = (patterns ? patterns.slice(0, 2) : [across]).map(unit), found = [unit(across)];
  found.push(mainDirection(means, n, d, taken));
  return found;
}

function unit(vector) {
  const size = Math.sqrt(along(vector, vector));
  return size > 0 ? vector.map((x) => x / size) : vector;
}

// The first principal component of rows, at right angles to some unit vectors, by repeated multiplication.
function mainDirection(rows, n, d, taken) {
  const center = new Float64Array(d);
  for (let i = 0; i < n; i++) for (let j = 0; j < d; j++) center[j] += rows[i * d + j] / n;
  const clear = (v) => { for (const u of taken) { const part = along(v, u); for (let j = 0; j < d; j++) v[j] -= part * u[j]; } return v; };
  let v = clear(Float64Array.from({ length: d }, (_, j) => 1 + 0.1 * ((j * 7) % 5)));
  for (let round = 0; round < 60; round++) {
    const next = new Float64Array(d);
    for (let i = 0; i < n; i++) {
      let part = 0;
      for (let j = 0; j < d; j++) part += (rows[i * d + j] - center[j]) * v[j];
      for (let j = 0; j < d; j++) next[j] += part * (rows[i * d + j] - center[j]);
    }
    const size = Math.sqrt(along(clear(next), next));
    if (!(size > 1e-300)) break;
    v = next.map((x) => x / size);
  }
  return unit(v);
}

// The train loss on the straight line from the start (0) through a target (1), at some places on it.
function slice(model, data, loss, target, places) {
  const objective = new Objective(model, data, loss);
  return places.map((s) => objective.meanLoss(model.W.map((x, k) => x + s * target.dW[k]), model.U.map((x, k) => x + s * target.dU[k])));
}
