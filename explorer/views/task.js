// The task in one sentence, with one example drawn.
const TASKS = {
  mixture: (s) => `Some tokens carry the label (here ${number(s.relevant)} of ${number(s.T)}), most are distractions; nobody says which. The heads must find them.`,
  parity: (s) => `Each sequence has ${number(s.T)} tokens of two kinds. The label says whether the second kind occurs an even number of times.`,
  random: () => "Tokens and labels are drawn at random: there is nothing to find, only to memorize.",
  planted: () => "Another attention model, the teacher, has given the labels. The heads must imitate it.",
  own: () => "Your own sequences. The heads must find the tokens that tell the label.",
};

function showTask(place, run) {
  const { train, settings } = run, { T } = train, i = train.kinds ? Math.floor(train.n / 3) : Math.max(0, train.labels.findIndex((y) => y > 0)), size = 22, gap = 8, shown = Math.min(T, 24);
  const canvas = el("canvas", { role: "img", "aria-label": `An example: ${shown} tokens with label ${labelOf(train, train.labels[i])}` });
  const width = shown * (size + gap) + 4, ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = 38 * ratio;
  canvas.style.width = `${width}px`;
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  for (let t = 0; t < shown; t++) {
    const x = 4 + t * (size + gap);
    if (train.relevant && train.relevant[i * T + t]) { c.strokeStyle = paint("--ink"); c.lineWidth = 1.5; c.strokeRect(x - 2, 5, size + 4, size + 6); }
    drawToken(c, train, i, t, x + size / 2, 19, size - 4);
  }
  const framed = train.relevant ? " The framed tokens carry the label." : "";
  fill(place, el("p", {}, el("b", {}, "The task. "), TASKS[settings.data](settings)),
    el("p", { class: "example", title: `One example.${framed}` }, canvas, el("span", {}, "→ label ", el("b", { style: `color:${ink(train.labels[i] > 0 ? "plus" : "minus")}` }, labelOf(train, train.labels[i])))));
}
