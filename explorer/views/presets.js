// Examples: a state each, with a hint that is shown beside it. The later ones are settings of the studies.
const STUDY_MIXTURE = { T: 8, d: 10, M: 4, relevant: 2, signal: 1.5, noise: 0.1, noiseNorm: 0.4 };
const HARD_MIXTURE = { ...STUDY_MIXTURE, relevant: 1, noise: 0.5, noiseNorm: 1.5 };
const LITERAL = { T: 4, d: 6, M: 2, relevant: 2, signal: 1, noise: 0, noiseNorm: 0, n: 40, nFresh: 200 };
const PARITY = { data: "parity", T: 4, start: "gaussian", optimizer: "adam", stepSize: 0.05, numSteps: 400, nTest: 0 };
const PRESETS = {
  opening: { title: "One head and a million heads", says: "One head learns to look; a million heads in the paper's scaling do not. Drag the number of heads.", settings: OPENING, pin: BESIDE },
  scaling: { title: "A million heads, awake", says: "The step of the attention weights is multiplied by the number of heads; pinned: the paper's scaling.", settings: { ...BESIDE, scaling: "mean_field" }, pin: BESIDE },
  parity: { title: "Parity: what several heads can do", says: "Eight heads fit the zigzag, one head (pinned) cannot. Try 2 heads, other seeds, and positions.", settings: { ...PARITY, heads: 8 }, pin: { ...PARITY, heads: 1 } },
  start: { title: "The paper's data and start", says: "Eight heads; half of them start with one gradient step on fresh sequences, half with its opposite.", settings: {} },
  heads: { title: "Does training get faster with more heads?", says: "Strong noise. Try 1, 64 and 10⁶ heads, then the other scaling.",
    settings: { ...HARD_MIXTURE, n: 60, nTest: 300, heads: 64, stepSize: 0.1, numSteps: 150 } },
  attention: { title: "What do eight heads look at?", says: "Eight heads for a thousand steps.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 8, stepSize: 0.5, numSteps: 1000 } },
  initialization: { title: "Which start is better?", says: "Change the start and pin the first run.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 200, heads: 32, stepSize: 0.5, numSteps: 2000 } },
  margins: { title: "Does the margin keep growing?", says: "One head from zero; the margin grows with log k.",
    settings: { ...STUDY_MIXTURE, n: 80, nTest: 0, heads: 1, start: "zero", stepSize: 0.5, numSteps: 5000 } },
  step_size: { title: "How careful is the theory about step sizes?", says: "Show more, and see both marks on the step-size slider: what is guaranteed, and what works.",
    settings: { ...HARD_MIXTURE, n: 100, nTest: 0, heads: 16, stepSize: 1, numSteps: 200 } },
  generalization: { title: "Does it carry over to new sequences?", says: "Wide noise and few sequences: a visible gap.",
    settings: { ...STUDY_MIXTURE, d: 14, M: 6, noise: 0.3, noiseNorm: 1.2, n: 40, nTest: 1000, nFresh: 100, heads: 256, stepSize: 0.2, numSteps: 100 } },
  literal: { title: "Where Theorem 1 applies", says: "100,000 heads and a step size that the theorem allows.",
    settings: { ...LITERAL, nTest: 0, heads: 1e5, stepSize: 0.4, numSteps: 500, target: 3.2 } },
  optimizers: { title: "Does another way of descent find attention?", says: "Normalized descent, 1,024 heads.",
    settings: { ...HARD_MIXTURE, n: 60, nTest: 0, heads: 1024, optimizer: "normalized", stepSize: 0.5, numSteps: 300 } },
  random: { title: "Labels that are coin flips", says: "The labels carry no signal, so they can only be memorized: the test loss stays high.",
    settings: { data: "random", T: 6, d: 6, tokenNorm: 2, n: 40, nTest: 200, start: "gaussian", heads: 16, stepSize: 0.2, numSteps: 2000 } },
};
