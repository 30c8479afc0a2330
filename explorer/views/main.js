// The page: one state, one place that redraws. Training happens in the worker; here are only records and views.
class App {
  constructor() {
    Object.assign(this, { settings: DEFAULTS, own: null, run: null, pinned: null, cursor: null, sequence: 0, perSecond: 0, playing: null, wanted: null, against: "paper", goal: null, deep: false });
    this.worker = new Worker_((heard) => this.hear(heard));
    this.edgeWorker = null;
    this.controls = new Controls($("#controls"), (name, value) => this.change(name, value));
    this.controls.onfile = (file) => this.openFile(file);
    this.controls.onmark = (value) => this.change("stepSize", parsed("stepSize", roundedDown(value)) ?? SETTINGS.stepSize.high);
    this.clouds = new Clouds($("#cloud"));
    this.bowl = new Bowl($("#bowl"));
    this.charts = new Charts($("#charts"), (step) => this.scrub(step));
    this.decomposition = new Decomposition($("#identity"), (name) => { this.against = name; this.showLink(); this.redraw(); });
    this.maps = new Maps($("#mapsBody"), this);
    this.takeaways = new Takeaways($("#takeawaysBody"), (one, sets) => this.showTwo(one, sets), (one, sets) => { if (this.tour.asking) this.showTwo(one, sets); });
    this.tour = new Tour($("#tour"), this);
    this.bind();
    this.unfold(false);
    if (location.hash.length < 2) this.welcome(); else this.open(location.hash);
  }

  // What a newcomer sees first: one head beside a million heads, trained in silence and played once.
  welcome() {
    this.invitation = "That was one head beside a million heads. Now drag the number of heads.";
    this.visit(OPENING, BESIDE, "play");
  }

  // Show what a link says: settings, a pinned run, a stop of the tour.
  open(link) {
    const { settings, extra, said } = fromLink(link), pin = extra.pin ? fromLink(extra.pin) : null;
    if (said.length) this.say(said.join(" "), true);
    this.sequence = Math.max(0, (Math.floor(Number(extra.seq)) || 1) - 1);
    this.against = Object.hasOwn(TARGETS, extra.against || "") ? extra.against : "paper";
    if (extra.all) this.unfold(true);
    const step = Number(extra.at), goal = extra.at && step >= 0 ? step : Boolean(extra.run);
    if (extra.stop && TOUR[Number(extra.stop) - 1]) this.tour.go(Number(extra.stop) - 1);
    else this.visit(settings, pin && pin.settings, goal);
  }

  // Three panels, or all of them.
  unfold(deep) {
    this.deep = deep;
    this.folding();
    $("#depth").textContent = deep ? "Show less: cloud, map and loss" : "Show more: margin, attention, the model at work, the theory";
    $("#depth").setAttribute("aria-expanded", deep);
    this.redraw();
  }

  // The tour keeps theory folded until it comes to it.
  folding() {
    const { at } = this.tour;
    const simple = at === null ? !this.deep : !TOUR[at].theory, loss = $("#lossChart");
    document.body.classList.toggle("simple", simple);
    if (simple && at === null) $("#maps").after(loss); else $("#charts").prepend(loss); // three panels fit one screen
  }

  bind() {
    $("#train").addEventListener("click", (event) => { if (event.detail < 2) this.toggle(); }); // a double click starts, and does not pause
    $("#step").addEventListener("click", () => this.stepOnce());
    $("#reset").addEventListener("click", () => this.prepare());
    $("#pin").addEventListener("click", () => this.pin());
    $("#play").addEventListener("click", () => this.play());
    $("#time").addEventListener("input", (event) => { this.stopPlaying(); this.cursorAt(Number(event.target.value)); });
    $("#speed").addEventListener("change", (event) => { this.perSecond = Number(event.target.value); if (this.training) this.start(); });
    $("#share").addEventListener("click", () => this.copy(this.link(), "The link is copied. It trains this run again and shows this step."));
    $("#python").addEventListener("click", () => this.run && this.copy(pythonCode(this.run), "The Python code is copied; the library repeats this run with it."));
    $("#download").addEventListener("click", () => this.download());
    $("#startTour").addEventListener("click", () => this.tour.go(0));
    $("#preset").addEventListener("change", (event) => this.preset(PRESETS[event.target.value]));
    $("#depth").addEventListener("click", () => { this.unfold(!this.deep); this.showLink(); });
    $("#message").addEventListener("click", () => this.say(""));
    $("#present").addEventListener("click", () => this.present());
    fill($("#preset"), el("option", { value: "" }, "choose …"), Object.entries(PRESETS).map(([name, { title }]) => el("option", { value: name }, title)));
    $(".theme").addEventListener("click", () => this.theme(dark() ? "light" : "dark", true));
    addEventListener("hashchange", () => { if (location.hash.slice(1) !== this.shownLink) this.open(location.hash); });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files.length) this.openFile(event.dataTransfer.files[0]); });
    document.addEventListener("keydown", (event) => this.key(event));
    const wide = matchMedia("(prefers-color-scheme: dark)");
    wide.addEventListener("change", () => { if (!remembered()) this.theme(wide.matches ? "dark" : "light", false); });
    watchTerms();
  }

  key(event) {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      " ": () => this.toggle(), s: () => this.stepOnce(), r: () => this.prepare(), p: () => this.pin(), f: () => this.present(),
      ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1),
      Escape: () => (document.body.classList.contains("presenting") ? this.present() : this.tour.at !== null && this.tour.go(null)),
    }[event.key];
    if (!act || (event.key === " " && event.target.matches("button, summary, a"))) return;
    event.preventDefault();
    act();
  }

  // Cloud, map and curve alone, in large type; the same key, or Escape, ends it.
  present() {
    document.body.classList.toggle("presenting");
    if (this.tour.at !== null) this.tour.go(null);
    this.redraw();
  }

  // An example shows its hint and starts.
  preset(chosen) {
    if (!chosen) return;
    this.say("");
    $("#hint").textContent = chosen.says;
    this.invitation = null;
    this.sequence = 0;
    this.visit(chosen.settings, chosen.pin || null, "play");
  }

  // Settings ------------------------------------------------------------------------------------------------
  change(name, value) {
    if (value === undefined || value === this.settings[name]) { this.controls.show(this.settings); return; }
    if (name === "data" && value === "own" && !(this.own && this.own.tokens)) {
      this.controls.show(this.settings);
      this.controls.file.click();
      return;
    }
    if (name === "data" && value !== "own") this.own = null;
    const { settings, said } = mended({ ...this.settings, [name]: value }), trained = this.following || (this.run && this.run.step > 0 && !this.queue);
    this.settings = settings;
    if (said.length) this.say(said.join(" "), true); else this.say("");
    $("#preset").value = "";
    $("#hint").textContent = "";
    $("#controls .invited")?.classList.remove("invited");
    // While a run is shown, its pictures follow the sliders: the new run is trained at once.
    const follows = trained && settings.numSteps <= MOST_FOLLOWED;
    this.prepare(false);
    if (follows) this.following = setTimeout(() => { this.following = null; this.follow(settings); }, 250);
  }

  follow(settings) {
    if (this.settings !== settings || this.training) return;
    if (this.run && this.run.settings === settings) { if (!this.run.step) this.start(); } else this.wanted = true;
  }

  // Show a state; with `pin`, first train that run unless it exists, pin it, then train this one. `train` is false; true:
  // show it at its end; "play": train in silence, then play; or a step: train in silence, then show that one.
  visit(settings, pin, train, own = null) {
    this.goal = train === false || train === true ? null : train;
    this.visiting = true;
    const there = (one) => one && one.status === "finished" && !one.own && pin && toLink(one.settings) === toLink(mended({ ...pin }).settings);
    $("#controls .invited")?.classList.remove("invited");
    if (settings.data === "parity" && !this.sequence) this.sequence = Math.floor(2 ** settings.T / 3); // one with tokens of both kinds
    this.own = own;
    this.pinned = [this.run, this.pinned].find(there) || null;
    const fitted = mended({ ...settings });
    if (fitted.settings.data === "own" && !own) {
      fitted.settings.data = "mixture";
      this.say("The link refers to its author's own data, which it does not contain; the mixture is shown.", true);
    }
    const first = pin && !this.pinned;
    this.queue = first ? { settings: fitted.settings, train: train !== false } : null;
    this.settings = first ? mended({ ...pin }).settings : fitted.settings;
    this.goalOf = this.queue ? this.queue.settings : this.settings;
    this.prepare(first ? true : train !== false);
  }

  prepare(train = false) {
    clearTimeout(this.following);
    this.following = null;
    this.stopPlaying();
    this.wanted = train;
    if (this.goalOf !== this.settings && !this.queue) this.goal = null;
    this.training = false;
    this.cursor = null;
    this.controls.show(this.settings);
    this.worker.ask("prepare", { settings: engineSettings(this.settings), own: this.own });
    this.showLink();
    this.measureEdge();
  }

  // The edge of stability, in a separate worker, once the settings have not changed for a moment.
  measureEdge() {
    clearTimeout(this.edgeTimer);
    if (this.edgeWorker) this.edgeWorker.end();
    this.edgeWorker = null;
    this.edge = undefined;
    if (this.settings.numSteps > 5000 || (this.settings.start === "gaussian" && this.settings.heads > 32)) return;
    this.edgeTimer = setTimeout(() => {
      this.edgeWorker = new Worker_((heard) => {
        if (heard.type === "edge") { this.edge = heard; this.showMarks(); }
        this.edgeWorker.end();
        this.edgeWorker = null;
      });
      this.edgeWorker.ask("edge", { settings: engineSettings(this.settings), own: this.own });
    }, 1500);
  }

  showMarks() {
    const { admissible } = this.run.theory, found = this.edge && Number.isFinite(this.edge.edge) ? this.edge : null;
    const { settings: s } = this.run, promised = isPlain(s) && s.decoder === "full" && s.loss === "logistic";
    const marks = promised ? [{ value: admissible, label: `guaranteed up to ${number(admissible, 2)}`, kind: "theory" }] : [];
    if (found) marks.push({ value: found.edge, label: `works up to ${number(Math.min(found.edge, SETTINGS.stepSize.high), 2)}${found.capped ? " or more" : ""}`, kind: "edge" });
    this.controls.mark(marks);
  }

  // Training ------------------------------------------------------------------------------------------------
  hear(heard) {
    if (heard.type === "error") { this.say(heard.text, true); this.training = false; this.buttons(); return; }
    if (heard.type === "ready") {
      this.run = new ShownRun(this.settings, this.own, heard);
      this.showMarks();
      this.redraw();
      document.documentElement.dataset.ready = "yes";
      if (this.tour.at !== null && this.visiting) this.tour.look(); // its position may have changed
      this.visiting = Boolean(this.queue);
      if (this.wanted) this.start();
      this.buttons();
      return;
    }
    if (heard.type !== "rows") return;
    this.run.add(heard.rows);
    this.run.step = heard.step;
    this.run.status = heard.status === "running" && !this.training ? "paused" : heard.status; // a message sent before the pause
    if (heard.status === "diverged") this.say(`The loss is no longer finite after step ${number(this.run.last.step)}: the step size is too large for this run.`, true);
    if (heard.status !== "running") {
      this.training = false;
      if (this.queue) { this.pinAndGoOn(); return; }
      this.reach();
    }
    if (this.training && this.goal !== null) { this.numbers(this.run.rows[0]); this.tour.follow(); return; } // in silence
    this.later();
  }

  // The run to be pinned is done: pin it and train the requested one.
  pinAndGoOn() {
    const { settings, train } = this.queue;
    Object.assign(this, { queue: null, pinned: this.run, settings });
    this.prepare(train);
  }

  // A run that was trained in silence is there: play it, or show the step that was asked for.
  reach() {
    const { goal } = this;
    this.goal = null;
    if (goal === null) return;
    if (typeof goal === "number") { this.cursor = goal >= this.run.last.step ? null : goal; this.showLink(); }
    else if (still.matches) { this.cursor = null; this.invite(); }
    else this.play();
  }

  // After the first play the page asks for a hand on the slider.
  invite() {
    if (!this.invitation) return;
    $("#hint").textContent = this.invitation;
    this.invitation = null;
    this.controls.nodes.heads.box.classList.add("invited");
  }

  start() {
    if ($("#message").className === "told") this.say("");
    this.training = true;
    this.run.status = "running";
    this.stopPlaying();
    this.cursor = this.goal === null ? null : 0;
    this.worker.tell("train", { perSecond: this.perSecond });
    this.buttons();
  }

  toggle() {
    if (!this.run) return;
    if (this.training) { this.worker.tell("pause"); this.training = false; this.goal = this.cursor = null; this.run.status = "paused"; this.redraw(); }
    else if (["finished", "diverged"].includes(this.run.status)) this.prepare(true);
    else this.start();
    this.buttons();
    this.showLink();
  }

  stepOnce() {
    if (!this.run || ["finished", "diverged"].includes(this.run.status)) return;
    this.training = false;
    this.cursor = null;
    this.worker.tell("step", { count: this.run.step === 0 ? 2 : 1 });
    this.run.status = "paused";
    this.buttons();
  }

  pin() {
    this.pinned = this.pinned ? null : this.run;
    this.showLink();
    this.redraw();
  }

  // Show two of the runs that decided a sentence; in the tour they are framed, and the sentences stay.
  showTwo(one, sets) {
    if (this.tour.asking) this.tour.showAnswer(one, sets); else { this.tour.go(null); scrollTo({ top: 0 }); }
    this.visit(sets[sets.length - 1][0], sets[0][0], true);
  }

  // Data of the user ------------------------------------------------------------------------------------------
  // A file that was chosen, or dropped on the page.
  async openFile(file) {
    try {
      const { data, said } = await readData(file);
      this.say("");
      this.useOwn(data, said);
    } catch (error) { this.say(error.message, true); }
  }

  useOwn(data, said) {
    const given = { ...this.settings, data: "own" };
    if (data.d > MOST.width && given.decoder !== "query") {
      given.decoder = "query";
      said.push(`A token has ${number(data.d)} numbers, so the model is now a learned query, which is quick for wide tokens.`);
    }
    this.visit(mended(given).settings, null, "play", data);
    said.push(`${number(data.n)} sequences of ${number(data.T)} tokens; label ${data.labelNames[1]} counts as +1. A quarter is kept for the test.`);
    $("#hint").textContent = said.join(" ");
  }

  // Time ----------------------------------------------------------------------------------------------------
  cursorAt(index) { const { steps } = this.run; this.cursor = index >= steps.length - 1 ? null : steps[index]; this.redraw(); }

  scrub(step) { this.stopPlaying(); this.cursorAt(recordAt(this.run.steps, step)); }

  move(by) { if (this.run) this.cursorAt(Math.max(0, (this.cursor === null ? this.run.steps.length - 1 : recordAt(this.run.steps, this.cursor)) + by)); }

  // Six seconds from the shown step to the last one; the early steps, in which most happens, take most of the time.
  play() {
    if (this.playing) { this.stopPlaying(); return; }
    const began = performance.now(), { last } = this.run, from = this.cursor === null || this.cursor >= last.step ? 0 : this.cursor;
    const [low, high] = [Math.log1p(from), Math.log1p(last.step)];
    const frame = () => {
      const part = Math.min((performance.now() - began) / PLAY_TIME, 1);
      this.cursor = part < 1 ? Math.expm1(low + (high - low) * part) : null;
      if (part < 1) this.playing = requestAnimationFrame(frame);
      else { this.stopPlaying(); this.invite(); }
      this.redraw();
    };
    this.playing = requestAnimationFrame(frame);
    this.buttons();
  }

  stopPlaying() { if (this.playing) cancelAnimationFrame(this.playing); this.playing = null; this.buttons(); }

  // Views ---------------------------------------------------------------------------------------------------
  later() { this.frame ??= requestAnimationFrame(() => { this.frame = null; this.redraw(); }); }

  redraw() {
    const { run, pinned, cursor } = this;
    if (!run) return;
    const row = run.recordAt(cursor), look = run.rowAt(cursor);
    const time = $("#time");
    time.max = run.steps.length - 1;
    time.value = cursor === null ? run.steps.length - 1 : recordAt(run.steps, cursor);
    time.setAttribute("aria-valuetext", `step ${row.step}`);
    this.numbers(row);
    const theme = dark();
    if (this.taskFor !== run.train || this.taskTheme !== theme) showTask($("#task"), run);
    Object.assign(this, { taskFor: run.train, taskTheme: theme });
    this.clouds.show(run, pinned, cursor);
    this.charts.show(run, pinned, cursor === null ? row.step : cursor, this.tour.line);
    this.maps.show(run, pinned, cursor);
    if (isSeen("#identity")) this.decomposition.show(run, look, this.against, pinned);
    if (isSeen("#work")) showPicture($("#picture"), run, this.sequence, look);
    if (isSeen("#verdicts")) showVerdicts($("#verdictsBody"), run, row);
    if (isSeen("#bowl")) this.bowl.show(run);
    $("#pinned").textContent = this.tour.asking ? this.tour.shownFor() : pinned ? `Pinned: ${pinned.name}${pinned.settings.n === this.run.settings.n ? "" : `, n = ${pinned.settings.n}`}${pinned.settings.optimizer === this.run.settings.optimizer || pinned.settings.optimizer !== "gd" ? "" : ", plain descent"}` : "";
    this.buttons();
    this.tour.follow();
  }

  numbers(row) {
    const focus = meanMass(this.run, row);
    const show = (id, value, digits = 4) => {
      $(id).textContent = value === null ? "none" : number(value, digits);
      $(id).dataset.value = value;
    };
    show("#nowStep", row.step, 6);
    show("#nowTrain", row.trainLoss);
    show("#nowTest", row.testLoss);
    show("#nowMargin", row.margin);
    show("#nowFocus", focus);
    const share = Math.round(100 * this.run.step / this.run.settings.numSteps), part = this.queue ? "1 of 2, " : "";
    $("#status").textContent = this.training ? `training ${part}${share}%` : this.run.status;
    document.documentElement.dataset.status = this.training ? "training" : this.run.status;
  }

  buttons() {
    const status = this.run ? this.run.status : "preparing", ended = ["finished", "diverged"].includes(status);
    $("#train").textContent = this.training ? "Pause" : ended ? "Train again" : "Train";
    $("#step").disabled = ended;
    $("#pin").textContent = this.pinned ? "Unpin" : "Pin this run";
    $("#play").textContent = this.playing ? "Stop" : "Play";
    document.body.classList.toggle("flowing", Boolean(this.training || this.playing));
  }

  // Links, code, messages -----------------------------------------------------------------------------------
  link() {
    const step = this.run && this.run.recordAt(this.cursor).step;
    const extra = { at: step ? String(step) : "", all: this.deep ? "1" : "", pin: this.pinned ? toLink(this.pinned.settings) : "", seq: this.sequence ? this.sequence + 1 : "",
      against: this.against === "paper" ? "" : this.against };
    return `${location.href.split("#")[0]}#${toLink(this.settings, extra)}`;
  }

  showLink() {
    this.shownLink = this.link().split("#")[1];
    try { history.replaceState(null, "", `#${this.shownLink}`); } catch { location.hash = this.shownLink; }
  }

  async copy(text, said) {
    this.copied = text;
    try { await navigator.clipboard.writeText(text); this.say(said); } catch {
      const area = el("textarea", {}, text);
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      this.say(done ? said : "The browser does not allow copying here; use “Save .py”, or copy the address.", !done);
    }
  }

  download() {
    if (!this.run) return;
    const address = URL.createObjectURL(new Blob([pythonCode(this.run)], { type: "text/x-python" }));
    el("a", { href: address, download: "explorer_run.py" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  // A message; one that is no warning goes away by itself.
  say(text, warn = false) {
    clearTimeout(this.saying);
    if (text && !warn) this.saying = setTimeout(() => this.say(""), 8000);
    const node = $("#message"); node.textContent = text; node.hidden = !text; node.className = warn ? "warning" : "told";
  }

  theme(mode, keep) {
    document.documentElement.dataset.theme = mode;
    if (keep) try { localStorage.setItem("manyheads-theme", mode); } catch { /* a page opened from a file may not remember */ }
    this.redraw();
  }
}

const PLAY_TIME = 6000, MOST_FOLLOWED = 2000; // milliseconds; steps of a run that follows the sliders
const still = matchMedia("(prefers-reduced-motion: reduce)");
const remembered = () => { try { return localStorage.getItem("manyheads-theme"); } catch { return null; } };
document.documentElement.dataset.theme = remembered() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
const app = new App();
window.explorer = { app, Engine, pythonCode, readData, placeAt, number, terms: LEDGER.terms, stops: TOUR, presets: PRESETS, takeaways: TAKEAWAYS };
