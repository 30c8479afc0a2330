// The left side: one control for each setting, made from the table of settings; the step size has the theory's marks.
const LOG_STEPS = 240; // positions of a logarithmic slider

// A tidy number near a position of a logarithmic slider: two digits.
function fromPosition(field, position) {
  const raw = field.low * (field.high / field.low) ** (position / LOG_STEPS), tidy = Number(raw.toPrecision(2));
  const value = field.whole ? Math.round(tidy) : tidy;
  return Math.min(Math.max(value, field.low), field.high);
}
const toPosition = (field, value) => LOG_STEPS * Math.log(value / field.low) / Math.log(field.high / field.low);

class Controls {
  // `change(name, value)` is called with every value that is allowed, and with undefined after one that is not.
  constructor(place, change) {
    this.nodes = {};
    // What a newcomer tries first is open, the rest is folded.
    const groups = Object.fromEntries(["Try", "Model", "Start", "Descent", "Data"].map((group) => [group, place.appendChild(group === "Try" ? el("div", {}) : el("details", { class: "group" }, el("summary", {}, group)))]));
    for (const [name, field] of Object.entries(SETTINGS)) {
      const node = field.kind === "choice" ? this.choice(name, field, change) : this.slider(name, field, change);
      groups[field.group].append(node.box);
      this.nodes[name] = node;
    }
    const file = el("input", { type: "file", accept: ".npz,.csv", id: "file", "aria-label": "A file with your own data", hidden: true });
    file.addEventListener("change", () => { if (file.files.length) this.onfile(file.files[0]); file.value = ""; });
    this.file = file;
    this.nodes.data.box.after(el("button", { type: "button", class: "drop", id: "open", onclick: () => file.click() }, "Open your own data (.npz, .csv)"), file,
      el("p", { class: "note" }, "An .npz with tokens (sequences, tokens, numbers) and labels, or a .csv with one row per token: the columns sequence, label, and one for each number. It does not leave this page."));
  }

  choice(name, field, change) {
    const input = el("select", { id: `set-${name}`, name, "aria-label": field.label }, Object.entries(field.choices).map(([value, text]) => el("option", { value }, text)));
    input.addEventListener("change", () => change(name, input.value));
    return { input, box: el("div", { class: "control" }, term(field.term, field.label), input) };
  }

  slider(name, field, change) {
    const log = field.kind === "log";
    const range = el("input", { type: "range", id: `set-${name}`, name, "aria-label": field.label, min: log ? 0 : field.low, max: log ? LOG_STEPS : field.high, step: log ? 1 : field.step || 1 });
    const box = el("input", { type: "text", inputmode: "decimal", class: "value", "aria-label": `${field.label}, exact value` });
    const marks = el("div", { class: "marks" }), problem = el("p", { class: "problem", id: `problem-${name}`, role: "alert", hidden: true });
    range.addEventListener("input", () => change(name, log ? this.moved(name, field, Number(range.value)) : Number(range.value)));
    // What is refused stays out of the run: the field shows the value that runs, and the reason stands below it.
    const judge = (text = "") => {
      problem.textContent = text;
      problem.hidden = !text;
      box.classList.toggle("bad", Boolean(text));
      if (text) { box.setAttribute("aria-invalid", "true"); box.setAttribute("aria-describedby", problem.id); }
      else { box.removeAttribute("aria-invalid"); box.removeAttribute("aria-describedby"); }
    };
    box.addEventListener("input", () => judge());
    box.addEventListener("change", () => {
      const value = parsed(name, box.value);
      judge(value === null ? `“${box.value.slice(0, 40)}” is not possible; it must be ${allowed(name)}.` : "");
      if (value === null) box.value = ""; // so that the value that runs is written again
      change(name, value === null ? undefined : value, box);
    });
    return { input: range, value: box, marks, field, log, judge,
      box: el("div", { class: "control" }, term(field.term, field.label), box, el("div", { class: "track" }, range, marks), problem) };
  }

  // Where a logarithmic slider was moved to; a whole number changes by one at least, or a key could not leave a small one.
  moved(name, field, position) {
    const value = fromPosition(field, position), now = this.shown[name];
    return value === now && field.whole ? Math.max(field.low, now + Math.sign(position - toPosition(field, now))) : value;
  }

  show(settings) {
    this.shown = settings;
    for (const [name, node] of Object.entries(this.nodes)) {
      const field = SETTINGS[name], own = settings.data === "own";
      const hidden = (field.only && field.only !== settings.data) || (settings.data === "parity" && ["d", "n", "nTest"].includes(name)) || (field.when && !field.when(settings)) || (own && field.drawn);
      node.box.hidden = Boolean(hidden);
      if (!node.value) { node.input.value = settings[name]; continue; }
      if (name === "relevant") node.input.max = settings.T - 1;
      node.input.value = node.log ? toPosition(field, settings[name]) : settings[name];
      if (document.activeElement !== node.value || !node.value.value) node.value.value = field.zero && !settings[name] ? field.zero : number(settings[name]);
      node.input.setAttribute("aria-valuetext", withUnit(settings[name], field.unit));
    }
  }

  // Marks on the step-size slider: [{ value, label, kind }].
  mark(found) {
    const { marks, field } = this.nodes.stepSize;
    fill(marks, found.map(({ value, label, kind }) => {
      const share = Math.min(Math.max(toPosition(field, value) / LOG_STEPS, 0), 1);
      return el("button", { type: "button", class: `mark ${kind}`, style: `left:${100 * share}%;transform:translateX(${-100 * share}%);--at:${100 * share}%`, "data-value": value,
        "data-term": kind === "edge" ? "markEdge" : "markTheory", onclick: () => this.onmark && this.onmark(value) }, label);
    }));
  }
}
