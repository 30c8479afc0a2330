// Where sequences come from, as in the library's data sources: tokenized mixture, random labels, planted attention, parity.
// A dataset is { n, T, d, tokens (n*T*d), labels (n), mask, relevant, pattern (n*T, -1 where unknown), name }.

function emptyData(n, T, d, name) {
  return { n, T, d, name, tokens: new Float64Array(n * T * d), labels: new Float64Array(n), mask: null, relevant: null,
    pattern: new Int16Array(n * T).fill(-1), labelNames: ["-1", "+1"] };
}

function bothClasses(data) {
  if (data.labels.every((y) => y === data.labels[0])) {
    throw new Error(`all ${data.n} labels are equal in this draw; choose another seed or more sequences.`);
  }
  return data;
}

const coinLabels = (data, random) => { for (let i = 0; i < data.n; i++) data.labels[i] = random.uniform() < 0.5 ? 1 : -1; };

class Mixture {
  // (DM1): a share of the tokens is the pattern of the label, the others are patterns nu_j plus bounded noise.
  constructor(settings, random) {
    Object.assign(this, settings); // T, d, M, sparsity, signal, noiseMu, noiseNu, noiseNorm
    this.frame = randomFrame(this.d, random);
    this.patterns = this.frame.slice(0, this.M + 2).map((row) => row.map((x) => this.signal * x));
    this.numRelevant = Math.round(this.sparsity * this.T);
    const { M, signal: S, noiseMu, noiseNu, noiseNorm } = this;
    const rest = noiseNorm ** 2 - 2 * noiseMu ** 2 / S ** 2 - noiseNu ** 2 / (M * S ** 2);
    this.restRadius = Math.sqrt(Math.max(rest, 0));
  }

  get tokenRadius() {
    return Math.max(1, Math.sqrt(this.signal ** 2 + this.noiseNorm ** 2 + 2 * this.noiseNu / this.M));
  }

  sample(n, random) {
    const { T, d, M } = this;
    const data = emptyData(n, T, d, "tokenized mixture");
    data.relevant = new Uint8Array(n * T);
    coinLabels(data, random);
    for (let i = 0; i < n; i++) {
      const order = random.shuffled(T);
      for (let t = 0; t < T; t++) {
        const relevant = order[t] < this.numRelevant;
        const which = relevant ? (data.labels[i] > 0 ? 0 : 1) : 2 + random.below(M);
        const token = data.tokens.subarray((i * T + t) * d, (i * T + t + 1) * d);
        token.set(this.patterns[which]);
        data.relevant[i * T + t] = relevant ? 1 : 0;
        data.pattern[i * T + t] = which;
        if (!relevant) this.addNoise(token, random);
      }
    }
    return bothClasses(data);
  }

  addNoise(token, random) {
    const { d, M, signal: S, frame } = this;
    const z = new Float64Array(d);
    for (let k = 0; k < M + 2; k++) z[k] = (2 * random.uniform() - 1) * (k < 2 ? this.noiseMu / S : this.noiseNu / (M * S));
    const rest = d - M - 2;
    if (rest > 0) {
      let square = 0;
      for (let k = M + 2; k < d; k++) { z[k] = random.normal(); square += z[k] * z[k]; }
      const size = this.restRadius * random.uniform() ** (1 / rest) / Math.sqrt(square);
      for (let k = M + 2; k < d; k++) z[k] *= size;
    }
    for (let k = 0; k < d; k++) if (z[k] !== 0) for (let j = 0; j < d; j++) token[j] += z[k] * frame[k][j];
  }

  // U_opt and W_opt of Eq. (9), both of Frobenius norm 1: what attention should find.
  get oracle() {
    const { T, d, M, signal: S, patterns } = this;
    const [plus, minus, ...others] = patterns;
    const U = new Float64Array(T * d), W = new Float64Array(d * d);
    for (let t = 0; t < T; t++) for (let j = 0; j < d; j++) U[t * d + j] = (plus[j] - minus[j]) / (S * Math.sqrt(2 * T));
    for (let i = 0; i < d; i++) {
      let sum = 0;
      for (const nu of others) sum += nu[i];
      for (let j = 0; j < d; j++) {
        const entry = plus[i] * plus[j] + minus[i] * minus[j] + sum * (plus[j] + minus[j]);
        W[i * d + j] = entry / (S ** 2 * Math.sqrt(2 * (M + 1)));
      }
    }
    return { U, W };
  }
}

class RandomLabels {
  // Tokens of equal norm in uniform directions, labels by a fair coin: they can only be memorized.
  constructor(settings) { Object.assign(this, settings); }

  sample(n, random) {
    const { T, d } = this, data = emptyData(n, T, d, "random labels");
    for (let row = 0; row < n * T; row++) {
      const token = data.tokens.subarray(row * d, (row + 1) * d);
      let square = 0;
      for (let j = 0; j < d; j++) { token[j] = random.normal(); square += token[j] ** 2; }
      for (let j = 0; j < d; j++) token[j] *= this.tokenNorm / Math.sqrt(square);
    }
    coinLabels(data, random);
    return bothClasses(data);
  }
}

class Planted {
  // Gaussian tokens labeled by the sign of a planted attention model, the teacher.
  constructor(settings, random) {
    Object.assign(this, settings);
    const { T, d, teacherHeads: H } = this, scale = this.teacherScale / Math.sqrt(d);
    const W = Float64Array.from({ length: H * d * d }, () => scale * random.normal());
    const U = Float64Array.from({ length: H * T * d }, () => scale * random.normal());
    this.teacher = makeModel({ W, U, counts: new Float64Array(H).fill(1), T, d });
  }

  sample(n, random) {
    const { T, d } = this, data = emptyData(n, T, d, "planted attention model");
    const one = { ...emptyData(1, T, d, ""), labels: Float64Array.of(1) };
    const teacher = new Objective(this.teacher, one, "logistic");
    let tried = 0;
    for (let i = 0; i < n; i++) {
      for (;;) {
        if (++tried > 20000 + 100 * n) throw new Error("the margin rejects nearly every sequence; lower it.");
        for (let k = 0; k < T * d; k++) one.tokens[k] = random.normal();
        const score = teacher.scoresAt(this.teacher.W, this.teacher.U)[0];
        if (Math.abs(score) < this.margin) continue;
        data.tokens.set(one.tokens, i * T * d);
        data.labels[i] = score >= 0 ? 1 : -1;
        break;
      }
    }
    return bothClasses(data);
  }
}

class Parity {
  // All sequences of two kinds of tokens; the label is +1 if the second kind occurs an even number of times. With
  // positions, each token also says where it stands. Nothing is drawn, and there is nothing to test on.
  constructor(settings) { Object.assign(this, settings); }

  sample() {
    const { T, positions } = this, n = 2 ** T, d = positions === "yes" ? 2 + T : 2, data = emptyData(n, T, d, "parity");
    data.kinds = new Uint8Array(n);
    for (let i = 0; i < n; i++) {
      for (let t = 0; t < T; t++) {
        const second = (i >> (T - 1 - t)) & 1, at = (i * T + t) * d;
        data.tokens[at + second] = PARITY_SIGNAL;
        if (positions === "yes") data.tokens[at + 2 + t] = PARITY_SIGNAL;
        data.pattern[i * T + t] = second;
        data.kinds[i] += second;
      }
      data.labels[i] = data.kinds[i] % 2 ? -1 : 1;
    }
    return data;
  }
}

const PARITY_SIGNAL = 2;
const SOURCES = { mixture: Mixture, random: RandomLabels, planted: Planted, parity: Parity };

function makeSource(settings) {
  const kind = SOURCES[settings.data];
  return new kind(settings, makeRandom(settings.seed, settings.data === "planted" ? "teacher" : "frame"));
}

// The largest norm of a token, at least 1: R of Assumption 1 as seen in the data.
function tokenRadius(data) {
  let largest = 1;
  for (let row = 0; row < data.n * data.T; row++) {
    let square = 0;
    for (let j = 0; j < data.d; j++) square += data.tokens[row * data.d + j] ** 2;
    largest = Math.max(largest, Math.sqrt(square));
  }
  return largest;
}
