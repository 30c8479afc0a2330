// One flat record of settings is the whole state of a run: controls, presets, tour, takeaways and links all use it.
const SETTINGS = {
  data: { group: "Data", label: "Data", kind: "choice", start: "mixture", term: "data",
    choices: { mixture: "tokenized mixture", parity: "parity", random: "random labels", planted: "planted attention", own: "your own data" } },
  positions: { group: "Data", label: "Positions", kind: "choice", start: "no", term: "parity", only: "parity", choices: { no: "tokens do not know theirs", yes: "tokens know theirs" } },
  T: { group: "Data", label: "Tokens", kind: "whole", start: 8, low: 2, high: 24, unit: "tokens", term: "tokens", drawn: true },
  d: { group: "Data", label: "Width of a token", kind: "whole", start: 12, low: 2, high: 32, term: "width", drawn: true },
  relevant: { group: "Data", label: "Relevant tokens", kind: "whole", start: 2, low: 1, high: 23, unit: "tokens", term: "relevant", only: "mixture" },
  M: { group: "Data", label: "Distracting patterns", kind: "whole", start: 4, low: 1, high: 16, term: "patterns", only: "mixture" },
  signal: { group: "Data", label: "Signal strength", kind: "real", start: 2, low: 0.25, high: 4, step: 0.05, term: "signal", only: "mixture" },
  noise: { group: "Data", label: "Noise on patterns", kind: "real", start: 0.1, low: 0, high: 1, step: 0.01, term: "noiseAlong", only: "mixture" },
  noiseNorm: { group: "Data", label: "Total noise", kind: "real", start: 0.5, low: 0, high: 4, step: 0.05, term: "noise", only: "mixture" },
  tokenNorm: { group: "Data", label: "Norm of a token", kind: "real", start: 2, low: 0.25, high: 4, step: 0.05, term: "radius", only: "random" },
  teacherHeads: { group: "Data", label: "Teacher's heads", kind: "whole", start: 4, low: 1, high: 16, unit: "heads", term: "planted", only: "planted" },
  teacherScale: { group: "Data", label: "Teacher's weights", kind: "real", start: 1, low: 0.25, high: 4, step: 0.05, term: "planted", only: "planted" },
  margin: { group: "Data", label: "Teacher's margin", kind: "real", start: 0.1, low: 0, high: 0.5, step: 0.01, term: "planted", only: "planted" },
  n: { group: "Data", label: "Training sequences", kind: "log", whole: true, start: 100, low: 4, high: 500, unit: "sequences", term: "n", drawn: true },
  nTest: { group: "Data", label: "Test sequences", kind: "whole", start: 200, low: 0, high: 1000, step: 10, unit: "sequences", term: "testLoss" },
  heads: { group: "Try", label: "Heads", kind: "log", whole: true, start: 8, low: 1, high: 1e12, unit: "heads", term: "heads" },
  scaling: { group: "Try", label: "Scaling", kind: "choice", start: "paper", term: "scaling", when: (s) => s.optimizer === "gd",
    choices: { paper: "divided by √heads (paper)", mean_field: "attention's step × heads" } },
  decoder: { group: "Model", label: "Readout", kind: "choice", start: "full", term: "readout",
    choices: { full: "a row per token (paper)", pooled: "one row for all tokens", last: "last token only", query: "a learned query (probe)" } },
  start: { group: "Start", label: "Start", kind: "choice", start: "first_phase", term: "start",
    choices: { zero: "zero", first_phase: "first phase (one step)", gaussian: "Gaussian" } },
  scale: { group: "Start", label: "Size of the weights", kind: "real", start: 1, low: 0, high: 10, step: 0.1, term: "scale", when: (s) => s.start === "gaussian" },
  nFresh: { group: "Start", label: "Fresh sequences", kind: "log", whole: true, start: 200, low: 4, high: 1000, unit: "sequences", term: "fresh", when: (s) => s.start === "first_phase" },
  optimizer: { group: "Descent", label: "Descent", kind: "choice", start: "gd", term: "descent",
    choices: { gd: "plain gradient (paper)", normalized: "normalized gradient", polyak: "Polyak's step", adam: "Adam" } },
  stepSize: { group: "Try", label: "Step size", kind: "log", start: 0.5, low: 1e-5, high: 1e3, term: "stepSize" },
  numSteps: { group: "Descent", label: "Steps", kind: "log", whole: true, start: 300, low: 1, high: 100000, unit: "steps", term: "steps" },
  loss: { group: "Descent", label: "Loss", kind: "choice", start: "logistic", term: "loss", choices: { logistic: "logistic", hyperbolic: "hyperbolic" } },
  target: { group: "Descent", label: "Paper's target", kind: "real", start: 0, low: 0, high: 20, step: 0.1, term: "targetScale", zero: "best" },
  seed: { group: "Descent", label: "Seed", kind: "whole", start: 1, low: 0, high: 9999, term: "seed" },
};
// What the page opens with: one head, which learns to look, beside a million heads, which do not.
const OPENING = { heads: 1, start: "zero", n: 60, nTest: 0, numSteps: 100, noise: 0.5, noiseNorm: 1.2 }, BESIDE = { ...OPENING, heads: 1e6 };
const MOST_EXPLICIT = 256; // heads of a Gaussian start, which all differ
const DEFAULTS = Object.fromEntries(Object.entries(SETTINGS).map(([name, field]) => [name, field.start]));

// The value of a given string (from a link or a box), or null if it is not allowed.
function parsed(name, given) {
  const field = SETTINGS[name];
  if (field.kind === "choice") return Object.hasOwn(field.choices, given) ? given : null;
  const text = String(given).trim().replace(/,(?=\d{3})/g, "").replace(/^10\^(\d+)$/, "1e$1").replace("·10^", "e");
  const value = text === "" ? NaN : Number(text);
  if (!Number.isFinite(value) || value < field.low || value > field.high) return null;
  return field.kind === "whole" || field.whole ? (Number.isInteger(value) ? value : null) : value;
}

function allowed(name) {
  const field = SETTINGS[name];
  if (field.kind === "choice") return `one of ${Object.keys(field.choices).join(", ")}`;
  return `a ${field.kind === "whole" || field.whole ? "whole number" : "number"} from ${number(field.low)} to ${number(field.high)}`;
}

// Settings made consistent, and messages about what was changed.
function mended(given) {
  const settings = { ...DEFAULTS, ...given }, said = [];
  const set = (name, value, why) => { said.push(`${SETTINGS[name].label} is now ${number(value)}: ${why}.`); settings[name] = value; };
  if (settings.data === "mixture") {
    if (settings.relevant >= settings.T) set("relevant", settings.T - 1, `fewer than the ${settings.T} tokens must be relevant`);
    if (settings.d < settings.M + 2) {
      if (settings.M + 2 <= SETTINGS.d.high) set("d", settings.M + 2, `${settings.M} + 2 orthogonal patterns need that width`);
    }
    const least = Math.sqrt(2 + 1 / settings.M) * settings.noise / settings.signal;
    if (settings.noiseNorm < least * (1 - 1e-9)) set("noiseNorm", Math.ceil(least * 100) / 100, "the total noise is at least its part along the patterns");
  }
  if (settings.data === "parity") {
    if (settings.T > 8) set("T", 8, "the page makes all sequences of that length, 256 at most");
    if (settings.start === "first_phase") { settings.start = "gaussian"; said.push("Start is now Gaussian: the first phase needs fresh sequences, and parity has none."); }
    settings.nTest = 0;
  }
  if (settings.start === "gaussian" && settings.heads > MOST_EXPLICIT) set("heads", MOST_EXPLICIT, "Gaussian heads all differ, so each one costs time; starts with equal heads take any number");
  return { settings, said };
}

// The settings under the engine's own names.
function engineSettings(s) {
  return { ...s, sparsity: s.relevant / s.T, noiseMu: s.noise, noiseNu: s.noise };
}

// The part of a link after #: what differs from the defaults. Reading one never fails; it says what it could not use.
function toLink(settings, extra = {}) {
  const query = new URLSearchParams({ v: "1" });
  for (const name of Object.keys(SETTINGS)) if (settings[name] !== DEFAULTS[name]) query.set(name, settings[name]);
  for (const [name, value] of Object.entries(extra)) if (value) query.set(name, value);
  return query.toString();
}

function fromLink(text) {
  const query = new URLSearchParams(text.replace(/^#/, "")), given = {}, said = [], extra = {};
  for (const [name, value] of query) {
    if (Object.hasOwn(SETTINGS, name)) {
      const found = parsed(name, value);
      if (found === null) said.push(`The link has ${name}=${value.slice(0, 40)}; it must be ${allowed(name)}. ${number(DEFAULTS[name])} is used.`);
      else given[name] = found;
    } else if (["run", "pin", "stop", "seq", "against", "at", "all"].includes(name)) extra[name] = value;
    else if (name !== "v") said.push(`The link has “${name.slice(0, 40)}”, which is not a setting; it is ignored.`);
  }
  const fitted = mended(given);
  return { settings: fitted.settings, extra, said: [...said, ...fitted.said] };
}
