// Attention maps of a chosen sequence: a row for each query, a column for each key, relevant keys framed.
class Maps {
  constructor(place, app) {
    this.app = app;
    this.sequence = el("input", { type: "number", min: "1", value: "1", id: "sequence", "aria-label": "Which sequence" });
    this.count = el("span", { class: "note" });
    this.which = el("select", { id: "headClass", "aria-label": "Which heads" });
    const move = (by) => () => { this.sequence.value = Number(this.sequence.value) + by; this.changed(); };
    this.sequence.addEventListener("change", () => this.changed());
    this.which.addEventListener("change", () => app.redraw());
    this.grid = el("div", { class: "maps" });
    this.told = el("p", { class: "note", id: "mapTold", "aria-live": "polite" });
    const arrow = (label, by, text) => el("button", { type: "button", class: "mini", "aria-label": label, onclick: move(by) }, text);
    const chooser = el("label", {}, "Sequence ", arrow("Previous sequence", -1, "◀"), this.sequence, arrow("Next sequence", 1, "▶"));
    this.legend = el("p", { class: "note", id: "mapLegend" });
    place.append(el("div", { class: "row" }, chooser, this.count, (this.whose = el("label", {}, "Heads ", this.which))), this.grid, this.told, this.legend);
  }

  changed() {
    const n = this.app.run ? this.app.run.train.n : 1;
    this.app.sequence = Math.min(Math.max(Math.round(Number(this.sequence.value)) || 1, 1), n) - 1;
    this.sequence.value = this.app.sequence + 1;
    this.app.redraw();
  }

  show(run, pinned, cursor) {
    const i = Math.min(this.app.sequence, run.train.n - 1), names = classNames(run);
    this.sequence.max = run.train.n;
    if (document.activeElement !== this.sequence) this.sequence.value = i + 1;
    this.count.textContent = `of ${run.train.n}, label ${labelOf(run.train, run.train.labels[i])}`;
    const kind = `${run.train.pattern[0] < 0 ? "strips" : run.settings.data}${run.model.decoder}${run.train.relevant ? 1 : 0}`;
    if (this.kind !== kind) fill(this.legend, mapLegend(run));
    this.kind = kind;
    const options = names.length === 2 ? ["both halves", ...names] : names.length > 2 ? ["mean of all", ...names] : names;
    this.whose.hidden = options.length < 2;
    if (this.which.dataset.options !== options.join()) {
      fill(this.which, options.map((name, k) => el("option", { value: k }, name)));
      this.which.dataset.options = options.join();
    }
    const chosen = Number(this.which.value), panels = [];
    const add = (one, tail) => {
      const row = one.rowAt(cursor), at = Math.min(i, one.train.n - 1), own = classNames(one);
      const seen = Engine.lookAt(one.model, one.train, row.dW, row.dU, at);
      for (const g of this.wanted(own.length, one === run ? chosen : 0)) panels.push({ one, at, seen, g, title: `${g === "mean" ? "mean of all heads" : own[g]}${tail}` });
    };
    add(run, pinned ? ", this run" : "");
    if (pinned) add(pinned, ", pinned");
    if (this.grid.children.length !== panels.length) { // add all frames before widths are read again
      while (this.grid.children.length > panels.length) this.grid.lastChild.remove();
      while (this.grid.children.length < panels.length) this.grid.append(this.frame());
      for (const box of this.grid.children) widths.delete(box.lastChild);
    }
    panels.forEach((panel, k) => this.draw(this.grid.children[k], panel));
  }

  // Which classes to draw: the chosen one, else both of two, or the mean of many.
  wanted(count, chosen) {
    if (count === 1) return [0];
    if (chosen && chosen <= count) return [chosen - 1];
    return count === 2 ? [0, 1] : ["mean"];
  }

  frame() {
    const canvas = el("canvas", { role: "img", tabindex: "0" }), box = el("div", { class: "map" }, el("p", {}), canvas);
    const tell = (event) => {
      const { panel, cell, edge } = box, s = Math.floor((event.offsetX - edge) / cell), t = Math.floor((event.offsetY - edge) / cell);
      const { T } = panel.one.train, { queries } = panel.seen;
      if (s < 0 || t < 0 || s >= T || t >= queries) return;
      const query = panel.one.model.decoder === "last" ? T - 1 : t;
      const name = (k) => `${k + 1} (${tokenName(panel.one.train, panel.at, k)})`, weight = number(box.values[t * T + s], 3);
      this.told.textContent = `${panel.title}: ${panel.one.model.decoder === "query" ? "the learned query" : `query ${name(query)}`} gives ${weight} of its attention to key ${name(s)}.`;
    };
    canvas.addEventListener("pointermove", tell);
    canvas.addEventListener("pointerdown", tell);
    return box;
  }

  draw(box, panel) {
    const { one, at, seen, g, title } = panel, { T, relevant } = one.train, { queries } = seen, canvas = box.lastChild;
    const values = new Float64Array(queries * T), { counts, H } = one.model;
    for (let c = 0; c < counts.length; c++) {
      const weight = g === "mean" ? counts[c] / H : Number(g === c);
      if (weight) for (let k = 0; k < values.length; k++) values[k] += weight * seen.attention[c * queries * T + k];
    }
    Object.assign(box, { panel, values });
    box.firstChild.textContent = title;
    const width = widthOf(canvas) || 180, edge = Math.max(14, Math.min(22, width / (T + 2))), cell = (width - edge - 2) / T, ratio = devicePixelRatio || 1;
    Object.assign(box, { edge, cell });
    const height = Math.ceil(edge + cell * queries + 4);
    if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    canvas.setAttribute("aria-label", `Attention map, ${title}, sequence ${at + 1}`);
    const c = cleared(canvas, width, height, ratio);
    const [r, gr, b] = rgb(ink("train"));
    for (let t = 0; t < queries; t++) {
      for (let s = 0; s < T; s++) {
        c.fillStyle = `rgba(${r},${gr},${b},${Math.min(1, 0.04 + 0.96 * Math.sqrt(values[t * T + s]))})`;
        c.fillRect(edge + s * cell + 0.5, edge + t * cell + 0.5, cell - 1, cell - 1);
      }
      const query = one.model.decoder === "last" ? T - 1 : t;
      if (one.model.decoder === "query") { c.fillStyle = paint("--ink"); c.font = "600 12px ui-sans-serif, system-ui, sans-serif"; c.textAlign = "center"; c.textBaseline = "middle"; c.fillText("?", edge / 2, edge + 0.5 * cell); }
      else drawToken(c, one.train, at, query, edge / 2, edge + (t + 0.5) * cell, Math.min(edge, cell) * 0.8);
    }
    for (let s = 0; s < T; s++) {
      drawToken(c, one.train, at, s, edge + (s + 0.5) * cell, edge / 2, Math.min(edge, cell) * 0.8);
      if (!relevant || !relevant[at * T + s]) continue;
      c.strokeStyle = ink("test");
      c.lineWidth = 2;
      c.strokeRect(edge + s * cell, edge, cell, cell * queries);
    }
  }
}

// What a row, a column, a shade and a glyph mean.
function mapLegend(run) {
  const { train, model } = run, asks = model.decoder === "query" ? "The one row is a query that was learned" : model.decoder === "last" ? "The one row is the last token, which looks" : "Row: a token that looks";
  const glyphs = train.pattern[0] < 0 ? "A strip of bars shows the numbers of a token, green up for positive and brown down for negative ones."
    : run.settings.data === "parity" ? "The two marks are the two kinds of tokens." : "Filled marks carry the label (framed), open ones distract.";
  const [r, g, b] = rgb(ink("train")), ramp = [0, 0.05, 0.15, 0.4, 1].map((x) => `rgba(${r},${g},${b},${0.04 + 0.96 * Math.sqrt(x)}) ${100 * x}%`);
  return [el("span", { class: "scale" }, "0", el("i", { style: `background:linear-gradient(90deg,${ramp.join(",")})` }), "1"),
    ` share of its attention. ${asks}; column: a token looked at. ${glyphs}`];
}

const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
