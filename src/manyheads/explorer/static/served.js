// What needs the library: asked of `manyheads explore` if it serves the page, else a note on how to start it.
const MOST_UPLOAD = 64e6; // bytes
const served = location.protocol.startsWith("http") && document.documentElement.dataset.served === "yes";

function runArrays(run) {
  const lists = (data) => data && { tokens: base64(data.tokens), labels: Array.from(data.labels), shape: [data.n, data.T, data.d],
    mask: data.mask && Array.from(data.mask), relevant: data.relevant && Array.from(data.relevant), label_names: data.labelNames };
  const { settings: s, model } = run, mixture = run.mixture && { frame: run.mixture.frame, num_tokens: s.T, dim: s.d, num_patterns: s.M,
    sparsity: s.relevant / s.T, signal: s.signal, noise_mu: s.noise, noise_nu: s.noise, noise_norm: s.noiseNorm };
  return { train: lists(run.train), test: lists(run.test), mixture,
    start: { key_query: base64(model.W), readout: base64(model.U), classes: model.G, multiplicity: Array.from(model.counts), decoder: s.decoder },
    plan: { step_size: s.stepSize, num_steps: s.numSteps, optimizer: s.optimizer, loss: s.loss } };
}

// Ask the server; every line of the answer is one JSON object, handed to `hear`. Aborting ends the work there.
async function ask(path, body, hear, signal) {
  const answer = await fetch(path, { method: "POST", body, signal, headers: { "X-Manyheads": "explorer" } });
  if (!answer.ok) throw new Error((await answer.text()) || `the server answered ${answer.status}`);
  const reader = answer.body.getReader(), decoder = new TextDecoder();
  for (let kept = ""; ;) {
    const { done, value } = await reader.read();
    kept += decoder.decode(value || new Uint8Array(), { stream: !done });
    const lines = kept.split("\n");
    kept = lines.pop();
    for (const line of lines) if (line) hear(JSON.parse(line));
    if (done) return;
  }
}

class Library {
  constructor(place, app) {
    this.app = app;
    this.place = place;
    this.out = el("div", { id: "libraryOut", "aria-live": "polite" });
    this.stop = null;
    if (!served) {
      fill(place, el("p", {}, "The verdicts of all theorems, the good-start card, hard margins and your own data need the library. Run"),
        el("pre", {}, "pip install 'manyheads[explore]'\nmanyheads explore"),
        el("p", { class: "note" }, "and the same page opens with these panels enabled. Nothing leaves your machine."));
      return;
    }
    const button = (id, label, kind) => el("button", { type: "button", id, onclick: () => this.ask(kind) }, label);
    this.file = el("input", { type: "file", id: "ownFile", accept: ".npz,.csv", hidden: true });
    this.file.addEventListener("change", () => { if (this.file.files[0]) this.upload(this.file.files[0]); this.file.value = ""; });
    const drop = el("button", { type: "button", id: "drop", class: "drop", onclick: () => this.file.click() }, "Drop an .npz or .csv here, or press to choose");
    drop.addEventListener("dragover", (event) => event.preventDefault());
    drop.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) this.upload(event.dataTransfer.files[0]); });
    const questions = [button("askCertify", "All theorems", "certify"), button("askStart", "Good start", "good-start"),
      button("askMargins", "Hard margins", "margins"), el("button", { type: "button", id: "askDraw", onclick: () => this.draw() }, "Draw with the library")];
    fill(place, el("div", { class: "row" }, questions), drop, this.file, this.out);
  }

  // One question at a time; a new one cancels the previous one.
  async talk(path, body, answer) {
    this.cancel();
    const control = (this.stop = new AbortController());
    const stop = el("button", { type: "button", class: "mini", id: "askStop", onclick: () => this.cancel("stopped") }, "stop");
    fill(this.out, el("p", { class: "note" }, "asking the library …"), stop);
    try {
      await ask(path, body, (line) => {
        if (line.progress) this.out.firstChild.textContent = line.progress;
        else if (line.error) throw new Error(line.error);
        else if (!line.alive) answer(line);
      }, control.signal);
    } catch (error) {
      if (!control.signal.aborted) fill(this.out, el("p", { class: "warning", id: "libraryError" }, error.message));
    }
  }

  cancel(text) {
    if (this.stop) this.stop.abort();
    this.stop = null;
    if (text) fill(this.out, el("p", { class: "note" }, text));
  }

  ask(kind) { return this.app.run && this.talk(`api/${kind}`, JSON.stringify(runArrays(this.app.run)), (told) => this.show(told)); }

  show(told) {
    const cards = told.cards.map((card) => verdictCard(card.verdict, card.title, card.lines));
    const counted = ([verdict, count]) => el("span", { class: `chip ${verdict.toLowerCase()}` }, `${count} ${verdict.toLowerCase()}`);
    const line = ([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value));
    fill(this.out, el("p", { class: "note" }, told.title), told.tally ? el("p", { class: "row" }, Object.entries(told.tally).map(counted)) : null,
      cards, told.rows ? el("table", {}, told.rows.map(line)) : null);
  }

  upload(file) {
    if (file.size > MOST_UPLOAD) {
      const text = `${file.name} has ${number(file.size / 1e6, 3)} MB; at most ${MOST_UPLOAD / 1e6} MB can be read here.`;
      fill(this.out, el("p", { class: "warning", id: "libraryError" }, text));
      return;
    }
    this.talk(`api/upload?name=${encodeURIComponent(file.name)}`, file, (told) => {
      fill(this.out, el("p", { id: "ownTold" }, told.text));
      this.app.useOwn(told.data);
    });
  }

  draw() {
    if (!this.app.run) return;
    const s = this.app.run.settings;
    this.talk("api/draw", JSON.stringify(s.data === "own" ? { ...s, data: "mixture" } : s), (told) => {
      fill(this.out, el("p", { id: "drawTold" }, told.text));
      this.app.useDrawn(told.data);
    });
  }
}
