// Runs on the page's side of the worker: what was recorded so far, the worker that trains, and the pinned run.
const MOST_BYTES = 48e6; // of parameters kept for scrubbing; beyond it every other record loses its parameters

const START_NAMES = { zero: "zero start", first_phase: "first phase", gaussian: "Gaussian start" };

class ShownRun {
  constructor(settings, own, ready) {
    Object.assign(this, { settings, own, model: ready.model, train: ready.train, test: ready.test, fresh: ready.fresh, theory: ready.theory, patterns: ready.patterns, oracle: ready.oracle,
      rows: [ready.row], steps: [0], step: 0, status: "ready", edge: null });
    const { relevant, n, T, mask } = ready.train;
    const real = mask ? mask.reduce((a, b) => a + b, 0) : n * T;
    this.evenShare = relevant ? relevant.reduce((a, b) => a + b, 0) / real : null;
  }

  add(rows) {
    for (const row of rows) {
      if (row.step === this.rows[this.rows.length - 1].step) { this.rows[this.rows.length - 1] = row; continue; }
      this.rows.push(row);
      this.steps.push(row.step);
    }
    const bytes = 16 * (this.model.W.length + this.model.U.length); // the displacement, and the gradients so far
    for (let every = 2; this.rows.filter((row) => row.dW).length * bytes > MOST_BYTES; every *= 2) {
      this.rows.forEach((row, k) => { if (k % every && k < this.rows.length - 1) row.dW = row.dU = row.sums = null; });
    }
  }

  get last() { return this.rows[this.rows.length - 1]; }

  // The record at a step (null: the last one), or the nearest earlier one that still has its parameters.
  rowAt(step) {
    let k = step === null ? this.rows.length - 1 : Math.max(0, recordAt(this.steps, step));
    while (k > 0 && !this.rows[k].dW) k--;
    return this.rows[k];
  }

  recordAt(step) { return step === null ? this.last : this.rows[Math.max(0, recordAt(this.steps, step))]; }

  get name() {
    const { settings: s } = this;
    return `${headsText(s.heads)}, ${START_NAMES[s.start]}, ${s.optimizer === "gd" ? "" : `${s.optimizer === "polyak" ? "Polyak's step" : s.optimizer === "adam" ? "Adam" : "normalized descent"}, `}${isRescaled(s) ? "attention's step times heads, " : ""}step size ${number(s.stepSize)}`;
  }
}

// One worker, made from the text of the page itself: a page opened from disk may not load a worker from a file.
class Worker_ {
  constructor(hear) {
    const text = $("#engine").textContent + $("#worker").textContent;
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    this.worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.id = 0;
    this.worker.onmessage = ({ data }) => { if (data.id === undefined || data.id === this.id) hear(data); };
    this.worker.onerror = (event) => hear({ type: "error", text: event.message || "the engine stopped" });
  }

  // A new question: answers to earlier ones are ignored from now on.
  ask(type, rest = {}) { this.id++; this.worker.postMessage({ type, id: this.id, ...rest }); }

  // More of the same question.
  tell(type, rest = {}) { this.worker.postMessage({ type, id: this.id, ...rest }); }

  end() { this.worker.terminate(); }
}

// A whole run in its own worker, for the takeaways: resolves with its records. With `count`, runs that leave out each of
// that many sequences: resolves with what that changes, and reports progress.
function trial(settings, own, progress, stop, count = 0) {
  return new Promise((resolve, reject) => {
    const worker = new Worker_((heard) => {
      if (heard.type === "progress") { progress(heard.share, heard.found); return; }
      worker.end();
      if (heard.type === "trial") resolve(heard); else reject(new Error(heard.text));
    });
    stop.push(() => { worker.end(); reject(new Error("stopped")); });
    worker.ask("trial", { settings: engineSettings(mended(settings).settings), own, count });
  });
}
