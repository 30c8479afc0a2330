// Explanations: any element with data-term shows one sentence and what it quotes, on hover, focus or tap.
function explanation(term) {
  const found = LEDGER.terms[term], quoted = found.ledger && LEDGER.statements[found.ledger];
  return [el("strong", {}, found.title), ` ${found.says}`,
    quoted ? el("span", { class: "quote" }, `${quoted.place}: “${quoted.title}”`, el("code", {}, found.ledger)) : null];
}

// A word with an explanation.
const term = (name, text) => el("button", { class: "term", type: "button", "data-term": name }, text || LEDGER.terms[name].title);

function watchTerms() {
  const tip = $("#tip");
  let shown = null;
  const hide = () => { tip.hidden = true; shown = null; };
  const show = (node) => {
    shown = node;
    fill(tip, explanation(node.dataset.term));
    tip.hidden = false;
    const box = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - own.width - 8));
    const above = box.bottom + own.height + 12 > innerHeight && box.top > own.height + 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${above ? box.top - own.height - 6 : box.bottom + 6}px`;
  };
  const of = (event) => event.target.closest?.("[data-term]");
  document.addEventListener("pointerover", (event) => { const node = of(event); if (node && event.pointerType === "mouse") show(node); });
  document.addEventListener("pointerout", (event) => { if (of(event) && event.pointerType === "mouse" && !of(event).matches(":focus-visible")) hide(); });
  document.addEventListener("focusin", (event) => { const node = of(event); if (node) show(node); });
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => { const node = of(event); if (node) { event.preventDefault(); show(node); } else if (shown) hide(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", hide, { passive: true, capture: true });
}
