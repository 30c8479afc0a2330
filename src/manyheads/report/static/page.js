"use strict";
(() => {
  const views = document.getElementById("views");  // none on a page of drawings, which the style sheet recolors
  const { figures, colors } = views ? JSON.parse(views.textContent) : {};
  const root = document.documentElement;
  const wide = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const remembered = () => { try { return localStorage.getItem("manyheads-theme"); } catch { return null; } };
  const theme = () => remembered() || (wide.matches ? "dark" : "light");
  const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // The same view on dark paper: every color of the light palette has its counterpart.
  const recolor = (part) => {
    if (Array.isArray(part)) return part.map(recolor);
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([k, v]) => [k, k === "values" ? v : recolor(v)]));
    return typeof part === "string" && colors[part] ? colors[part] : part;
  };
  const still = (view) => {
    const copy = structuredClone(view);
    for (const layer of copy.layer || []) delete layer.params;
    return copy;
  };
  const look = () => {
    const ink = variable("--ink"), soft = variable("--soft"), line = variable("--line"), font = "ui-sans-serif, system-ui, sans-serif";
    return {
      background: "transparent", font,
      view: { stroke: null },
      axis: { labelColor: soft, titleColor: ink, titleFontWeight: 500, titleFontSize: 12, labelFontSize: 11.5, gridColor: line, domainColor: soft, tickColor: line, titlePadding: 8 },
      title: { color: ink, fontSize: 13, fontWeight: 600, anchor: "start", offset: 8 },
      legend: { labelColor: soft, titleColor: ink, titleFontWeight: 500, labelFontSize: 11.5, titleFontSize: 12 },
    };
  };

  let drawn = [];
  const draw = async (mode) => {
    root.dataset.theme = mode;
    drawn.forEach((result) => result.finalize());
    drawn = await Promise.all([...document.querySelectorAll(views ? ".chart" : "no-chart")].map(async (place) => {
      let view = figures[place.dataset.view];
      if (mode === "dark") view = recolor(view);
      if (coarse) view = still(view);
      const name = place.closest("figure").id.replace("figure-", "");
      const result = await vegaEmbed(place, view, { renderer: "svg", config: look(), downloadFileName: name, actions: { export: true, source: false, compiled: false, editor: false } });
      place.dataset.drawn = "yes";
      return result;
    }));
    root.dataset.ready = mode;
  };

  document.querySelector(".theme").addEventListener("click", () => {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("manyheads-theme", next); } catch { /* a page opened from a file may not remember */ }
    draw(next);
  });
  wide.addEventListener("change", () => { if (!remembered()) draw(theme()); });

  // Paper is white, and what is folded away cannot be opened there.
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    document.querySelectorAll("details.settings, details.numbers").forEach((d) => { d.dataset.was = d.open; d.open = true; });
    if (before === "dark") draw("light");
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll("details[data-was]").forEach((d) => { d.open = d.dataset.was === "true"; });
    if (before === "dark") draw("dark");
  });

  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      links.forEach((a) => a.classList.remove("here"));
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  links.forEach((_, id) => { const part = document.getElementById(id); if (part) seen.observe(part); });

  draw(theme());
})();
