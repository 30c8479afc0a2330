// A state for each study of the report that the page can reproduce. Numbers are those of the studies.
const STUDY_MIXTURE = { T: 8, d: 10, M: 4, relevant: 2, signal: 1.5, noise: 0.1, noiseNorm: 0.4 };
const HARD_MIXTURE = { ...STUDY_MIXTURE, relevant: 1, noise: 0.5, noiseNorm: 1.5 };
const LITERAL = { T: 4, d: 6, M: 2, relevant: 2, signal: 1, noise: 0, noiseNorm: 0, n: 40, nFresh: 200 };
const PRESETS = {
  start: { title: "The default settings", says: "Eight heads, the paper's data and start.", settings: {} },
  heads: { title: "heads: does training get faster with more heads?", says: "Strong noise; try 1, 64 and 10⁶ heads.",
    settings: { ...HARD_MIXTURE, n: 60, nTest: 300, heads: 64, stepSize: 0.1, numSteps: 150 } },
  attention: { title: "attention: what do the heads look at?", says: "Eight heads for a thousand steps.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 8, stepSize: 0.5, numSteps: 1000 } },
  initialization: { title: "initialization: which start is better?", says: "Change the start and pin the first run.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 200, heads: 32, stepSize: 0.5, numSteps: 2000 } },
  margins: { title: "margins: does descent reach the best margin?", says: "One head from zero; the margin grows with log k.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 1, start: "zero", stepSize: 0.5, numSteps: 5000 } },
  step_size: { title: "step size: how careful is the theory?", says: "See both marks on the step-size slider.",
    settings: { ...HARD_MIXTURE, n: 100, nTest: 0, heads: 16, stepSize: 1, numSteps: 200 } },
  generalization: { title: "generalization: does it carry over?", says: "Wide noise and few sequences: a visible gap.",
    settings: { ...STUDY_MIXTURE, d: 14, M: 6, noise: 0.3, noiseNorm: 1.2, n: 40, nTest: 1000, nFresh: 100, heads: 256, stepSize: 0.2, numSteps: 100 } },
  literal: { title: "literal: where Theorem 1 applies", says: "100,000 heads and a step size that the theorem allows.",
    settings: { ...LITERAL, nTest: 0, heads: 1e5, stepSize: 0.4, numSteps: 500, target: 3.2 } },
  optimizers: { title: "optimizers: does another one find attention?", says: "Normalized descent, 1,024 heads.",
    settings: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 1024, optimizer: "normalized", stepSize: 0.5, numSteps: 300 } },
  random: { title: "needed heads: labels that are coin flips", says: "Labels carry no signal and can only be memorized.",
    settings: { data: "random", T: 6, d: 6, tokenNorm: 2, n: 40, nTest: 200, start: "gaussian", heads: 16, stepSize: 0.2, numSteps: 2000 } },
};
