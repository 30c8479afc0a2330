// The model of Eq. (2): score = H^-c sum_g N_g <U_g, softmax(X W_g X^T) X>. Class g stands for N_g identical heads, so
// 10^12 heads cost as much as two. For one sequence and one head, with S = X W X^T, A = softmax of its rows, B = U X^T:
//   Phi = sum A*B,   dPhi/dU = A X,   dPhi/dW = X^T D X,   D_ts = A_ts (B_ts - sum_s' A_ts' B_ts').

// Losses of the margin m = y * score, with their logarithms where they underflow (the library's LOSSES).
const logAddExp = (m) => (m > 0 ? m + Math.log1p(Math.exp(-m)) : Math.log1p(Math.exp(m))); // log(1 + e^m)
const hyperbolic = (m) => { const root = Math.sqrt(1 + m * m); return m > 0 ? 1 / (root + m) : root - m; };
const LOSSES = {
  logistic: {
    value: (m) => logAddExp(-m),
    slope: (m) => -1 / (1 + Math.exp(m)),
    logValue: (m) => {
      if (m <= 15) return Math.log(logAddExp(-m));
      const x = Math.exp(-m);
      return -m + Math.log1p(x * (x / 3 - 0.5));
    },
    logSlope: (m) => -logAddExp(m),
  },
  hyperbolic: {
    value: hyperbolic,
    slope: (m) => -hyperbolic(m) / Math.sqrt(1 + m * m),
    logValue: (m) => Math.log(hyperbolic(m)),
    logSlope: (m) => Math.log(hyperbolic(m)) - 0.5 * Math.log1p(m * m),
  },
};

function makeModel({ W, U, counts, T, d, decoder = "full", exponent = 0.5 }) {
  const G = counts.length, H = counts.reduce((a, b) => a + b, 0), scale = H ** -exponent;
  return { W, U, counts, T, d, G, H, decoder, exponent, ofHead: scale, ofClass: counts.map((N) => N * scale),
    rows: decoder === "full" ? T : 1, sizeW: decoder === "query" ? d : d * d };
}

// The last token asks alone, and so does a learned query, which has a vector w in place of W X^T x.
const asksOnce = (decoder) => decoder === "last" || decoder === "query";

class Objective {
  // Loss, scores, gradient of one head of each class, and attention on the relevant tokens, on fixed data.
  constructor(model, data, loss) {
    if (data.T !== model.T || data.d !== model.d) throw new Error("the model does not fit the data.");
    this.model = model;
    this.data = data;
    this.loss = LOSSES[loss];
    const { n, T, d } = data, { G, rows } = model;
    this.queries = asksOnce(model.decoder) ? 1 : T;
    this.A = new Float64Array(G * this.queries * T);
    this.D = new Float64Array(G * this.queries * T);
    this.Q = new Float64Array(d);
    this.P = new Float64Array(this.queries * d);
    this.phi = new Float64Array(G);
    this.scores = new Float64Array(n);
    this.gW = new Float64Array(G * model.sizeW);
    this.gU = new Float64Array(G * rows * d);
    this.mass = new Float64Array(G);
    this.last = new Int32Array(n).fill(T - 1);
    if (data.mask) for (let i = 0; i < n; i++) while (!data.mask[i * T + this.last[i]]) this.last[i]--;
  }

  // Attention A, its derivative D and the part of each class in the score, for sequence i.
  forward(W, U, i) {
    const { T, d, tokens, mask } = this.data, { G, rows, decoder } = this.model, { A, D, Q, queries } = this;
    const X = i * T * d, full = decoder === "full", learned = decoder === "query", { sizeW } = this.model;
    for (let g = 0; g < G; g++) {
      let total = 0;
      for (let t = 0; t < queries; t++) {
        const query = decoder === "last" ? this.last[i] : t, row = (g * queries + t) * T;
        if (mask && !learned && !mask[i * T + query]) { A.fill(0, row, row + T); D.fill(0, row, row + T); continue; }
        const x = X + query * d, w = g * sizeW, u = (g * rows + (full ? t : 0)) * d;
        if (learned) for (let b = 0; b < d; b++) Q[b] = W[w + b];
        else for (let b = 0; b < d; b++) {
          let sum = 0;
          for (let a = 0, k = w + b; a < d; a++, k += d) sum += tokens[x + a] * W[k];
          Q[b] = sum;
        }
        let largest = -Infinity;
        for (let s = 0; s < T; s++) {
          const xs = X + s * d;
          let logit = 0, read = 0;
          for (let b = 0; b < d; b++) { logit += Q[b] * tokens[xs + b]; read += U[u + b] * tokens[xs + b]; }
          if (mask && !mask[i * T + s]) logit = -Infinity;
          A[row + s] = logit;
          D[row + s] = read;
          if (logit > largest || logit !== logit) largest = logit;
        }
        let sum = 0;
        for (let s = 0; s < T; s++) { const e = Math.exp(A[row + s] - largest); A[row + s] = e; sum += e; }
        let mean = 0;
        for (let s = 0; s < T; s++) { A[row + s] /= sum; mean += A[row + s] * D[row + s]; }
        for (let s = 0; s < T; s++) D[row + s] = A[row + s] * (D[row + s] - mean);
        total += mean;
      }
      this.phi[g] = total;
    }
    let score = 0;
    for (let g = 0; g < G; g++) score += this.model.ofClass[g] * this.phi[g];
    return score;
  }

  scoresAt(W, U) {
    for (let i = 0; i < this.data.n; i++) this.scores[i] = this.forward(W, U, i);
    return this.scores;
  }

  meanLoss(W, U) {
    const scores = this.scoresAt(W, U), { n, labels } = this.data;
    let total = 0;
    for (let i = 0; i < n; i++) total += this.loss.value(labels[i] * scores[i]) / n;
    return total;
  }

  // Loss and gradient; with `top`, both divided by e^top, so that nothing underflows.
  evaluate(W, U, wantMass = false, top = null) {
    const { n, labels, relevant } = this.data, { loss } = this;
    this.gW.fill(0);
    this.gU.fill(0);
    this.mass.fill(0);
    let total = 0, margin = Infinity;
    for (let i = 0; i < n; i++) {
      const score = this.forward(W, U, i), m = labels[i] * score;
      this.scores[i] = score;
      margin = Math.min(margin, m);
      total += (top === null ? loss.value(m) : Math.exp(loss.logValue(m) - top)) / n;
      const slope = top === null ? loss.slope(m) : -Math.exp(loss.logSlope(m) - top);
      this.addGradient(i, (slope / n) * labels[i] * this.model.ofHead);
      if (wantMass && relevant) this.addMass(i);
    }
    return { loss: total, margin: margin === 0 ? 0 : margin };
  }

  // Sums run in registers and are stored once; P holds D X, one row for each query.
  addGradient(i, weight) {
    const { T, d, tokens } = this.data, { G, rows, decoder } = this.model, { A, D, P, queries, gW, gU } = this;
    const X = i * T * d, full = decoder === "full", first = decoder === "last" ? X + this.last[i] * d : X;
    for (let g = 0; g < G; g++) {
      for (let t = 0; t < queries; t++) {
        const row = (g * queries + t) * T, u = (g * rows + (full ? t : 0)) * d, p = t * d;
        for (let b = 0; b < d; b++) {
          let read = 0, turn = 0;
          for (let s = 0, k = X + b; s < T; s++, k += d) {
            const token = tokens[k];
            read += A[row + s] * token;
            turn += D[row + s] * token;
          }
          gU[u + b] += weight * read;
          P[p + b] = weight * turn;
        }
      }
      if (decoder === "query") { for (let b = 0; b < d; b++) gW[g * d + b] += P[b]; continue; }
      for (let a = 0; a < d; a++) {
        const w = g * d * d + a * d;
        for (let b = 0; b < d; b++) {
          let sum = 0;
          for (let t = 0, k = 0; t < queries; t++, k += d) sum += tokens[first + k + a] * P[k + b];
          gW[w + b] += sum;
        }
      }
    }
  }

  // The share of the attention of the real queries that falls on relevant tokens, averaged over sequences.
  addMass(i) {
    const { n, T, relevant, mask } = this.data, { A, queries } = this;
    let real = queries;
    if (mask && !asksOnce(this.model.decoder)) { real = 0; for (let t = 0; t < T; t++) real += mask[i * T + t]; }
    for (let g = 0; g < this.model.G; g++) {
      let on = 0;
      for (let t = 0; t < queries; t++) {
        const row = (g * queries + t) * T;
        for (let s = 0; s < T; s++) if (relevant[i * T + s]) on += A[row + s];
      }
      this.mass[g] += on / real / n;
    }
  }
}

// Inner product and norm of the full model: every head counts.
function inner(model, aW, aU, bW, bU) {
  const { G, counts } = model, sizeW = aW.length / G, sizeU = aU.length / G;
  let total = 0;
  for (let g = 0; g < G; g++) {
    let sum = 0;
    for (let k = g * sizeW; k < (g + 1) * sizeW; k++) sum += aW[k] * bW[k];
    for (let k = g * sizeU; k < (g + 1) * sizeU; k++) sum += aU[k] * bU[k];
    total += counts[g] * sum;
  }
  return total;
}

function fullNorm(model, W, U) {
  let largest = 0;
  for (const x of W) largest = Math.max(largest, Math.abs(x));
  for (const x of U) largest = Math.max(largest, Math.abs(x));
  const unit = largest > 0 && Number.isFinite(largest) ? largest : 1;
  const w = W.map((x) => x / unit), u = U.map((x) => x / unit);
  return unit * Math.sqrt(inner(model, w, u, w, u));
}

// max_h |U_h|; a pooled readout u stands for U = 1_T u^T.
function readoutNorm(model, U) {
  const size = U.length / model.G, repeat = model.decoder === "pooled" ? model.T : 1;
  let largest = 0;
  for (let g = 0; g < model.G; g++) {
    let square = 0;
    for (let k = g * size; k < (g + 1) * size; k++) square += U[k] * U[k];
    largest = Math.max(largest, square);
  }
  return Math.sqrt(repeat * largest);
}
