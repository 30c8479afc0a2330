"use strict";
(() => {
  const views = document.getElementById("page-views");  // absent on a static page, whose drawings the style sheet recolors
  const { figures, colors } = views ? JSON.parse(views.textContent) : {};
  const root = document.documentElement;
  const wide = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;
  const remembered = () => { try { return localStorage.getItem("manyheads-theme"); } catch { return null; } };
  const theme = () => remembered() || (wide.matches ? "dark" : "light");
  const variable = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // The same view on a dark background: every color of the light palette has a counterpart.
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
      const name = place.dataset.file;
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

  // For printing: light colors, and everything unfolded.
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

  // Clicking a legend entry hides or shows its series.
  document.addEventListener("click", (event) => {
    const entry = event.target.closest(".legend button");
    if (!entry) return;
    const shown = entry.getAttribute("aria-pressed") !== "true";
    entry.setAttribute("aria-pressed", shown);
    entry.closest(".panel, .first-figure, figure").classList.toggle(`off-${entry.dataset.place}`, !shown);
  });

  // Values of a static drawing: those of the mark under the pointer, or of the nearest point.
  const reach = 28;
  const tip = document.createElement("div");
  tip.id = "page-tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const asked = (event, chart) => {
    const group = event.target.parentNode;
    const own = group.dataset && group.dataset.tips && !group.dataset.tips.match(/^-?[\d.]+,-?[\d.]+,/);
    if (own) return { group, text: group.dataset.tips.split(";")[[...group.children].indexOf(event.target)] };
    let best = { distance: reach };
    for (const each of chart.querySelectorAll("g[data-tips]")) {
      if (getComputedStyle(each).display === "none") continue;
      const frame = each.getScreenCTM();
      for (const point of each.dataset.tips.split(";")) {
        const [x, y, ...rest] = point.split(",");
        if (!rest.length) continue;
        const distance = Math.hypot(frame.a * x + frame.e - event.clientX, frame.d * y + frame.f - event.clientY);
        if (distance < best.distance) best = { distance, group: each, text: rest.join(",") };
      }
    }
    return best;
  };
  const words = (event, chart) => {
    const { group, text } = asked(event, chart);
    if (!text) return "";
    const [series, ...names] = group.dataset.names.split("|");
    return [series, ...text.split("|").map((value, i) => `${names[i] || "95% interval"}: ${value}`)].filter(Boolean).join("\n");
  };
  // Vega shows values only under a mouse; for touch, show those of the nearest mark.
  const carried = (event, chart) => {
    let best = { distance: reach };
    for (const mark of chart.querySelectorAll("path")) {
      const tooltip = mark.__data__ && mark.__data__.tooltip;
      if (!tooltip || typeof tooltip !== "object") continue;
      const box = mark.getBoundingClientRect();
      const distance = mark === event.target ? 0 : Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (box.width && distance < best.distance) best = { distance, tooltip };
    }
    return Object.entries(best.tooltip || {}).map(([name, value]) => (name === "series" ? value : `${name}: ${value}`)).join("\n");
  };
  const tell = (event) => {
    const chart = event.target.closest && event.target.closest(".chart");
    const text = !chart ? "" : !views ? words(event, chart) : event.pointerType === "touch" ? carried(event, chart) : "";
    tip.classList.toggle("visible", Boolean(text));
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect(), width = document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, width - box.width - 4))}px`;
    tip.style.top = `${event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 14 : event.clientY + 18}px`;
  };
  document.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") tell(event); });
  document.addEventListener("click", tell);
  window.addEventListener("scroll", () => tip.classList.remove("visible"), { passive: true });

  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      links.forEach((a) => a.classList.remove("here"));
      const link = links.get(entry.target.id);
      link?.classList.add("here");
      const bar = link?.closest("ol");  // on a narrow screen the contents are a horizontal strip
      if (bar && bar.scrollWidth > bar.clientWidth) bar.scrollTo({ left: link.offsetLeft - 40, behavior: "smooth" });
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  links.forEach((_, id) => { const part = document.getElementById(id); if (part) seen.observe(part); });

  draw(theme());
})();
