// Numbers and elements as text: units, superscripts, and text that is never parsed as markup.
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const raised = (k) => (k < 0 ? "⁻" : "") + String(Math.abs(k)).replace(/\d/g, (c) => SUPERSCRIPT[c]);

const commas = (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ",");

// A number with the given significant digits: 0.0331, 24,300, 6.8·10⁷.
function number(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "none" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size >= 1e7 || size < 1e-4) {
    const [front, exponent] = size.toExponential(digits - 1).split("e");
    const short = front.includes(".") ? front.replace(/\.?0+$/, "") : front;
    return `${sign}${short === "1" ? "" : `${short}·`}10${raised(Number(exponent))}`;
  }
  if (Number.isInteger(value) || size >= 10 ** digits) return sign + commas(String(Math.round(size)));
  const [whole, part] = String(Number(size.toPrecision(digits))).split(".");
  return sign + commas(whole) + (part ? `.${part}` : "");
}

// A count in few characters: 12, 3,200, 10⁶.
const short = (count) => {
  if (count < 1e5) return number(count, 3);
  const [front, exponent] = count.toExponential(1).split("e");
  return `${front === "1.0" ? "" : `${front.replace(".0", "")}·`}10${raised(Number(exponent))}`;
};

// Three digits, never above the value.
function roundedDown(value) {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 2);
  return Number((Math.floor(value / unit) * unit).toPrecision(3));
}

const withUnit = (value, unit) => (unit ? `${number(value)} ${value === 1 ? unit.replace(/s$/, "") : unit}` : number(value));

// An element with attributes and children; strings become text, never markup.
function el(tag, attributes = {}, ...children) {
  const [name, space] = tag.startsWith("svg:") ? [tag.slice(4), "http://www.w3.org/2000/svg"] : [tag, "http://www.w3.org/1999/xhtml"];
  const node = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const $ = (selector) => document.querySelector(selector);
const fill = (place, ...children) => place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
const dark = () => document.documentElement.dataset.theme === "dark";
const ink = (role) => PALETTE[role][dark() ? "dark" : "light"];
// Colors of the style sheet, read once per theme: reading styles between two changes of the page is slow.
const painted = {};
const paint = (name) => (painted[`${dark()}${name}`] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());

// The width of an element, kept up to date by an observer for the same reason.
const widths = new WeakMap();
const watchWidth = new ResizeObserver((entries) => {
  let moved = false; // redraw after a change of width, or the browser stretches the canvas
  for (const { target, contentRect: { width } } of entries) { moved ||= width > 0 && Math.abs(width - widths.get(target)) > 0.5; widths.set(target, width); }
  if (moved && window.explorer) window.explorer.app.later();
});
function widthOf(node) {
  if (!widths.has(node)) { widths.set(node, node.clientWidth); watchWidth.observe(node); }
  return widths.get(node);
}
