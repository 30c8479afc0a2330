// Colors by what they show, for a light and a dark page. Blue and pink belong to the two labels and to nothing else.
const PALETTE = {
  plus: { light: "#0072b2", dark: "#4aa8e0" }, minus: { light: "#b3478a", dark: "#e39cc4" },
  train: { light: "#1d2530", dark: "#eef1f5" }, test: { light: "#a86b00", dark: "#f0b040" },
  measured: { light: "#1d2530", dark: "#eef1f5" }, reference: { light: "#6f7783", dark: "#99a2ae" },
  first: { light: "#00785a", dark: "#2fbf94" }, second: { light: "#7a4b1e", dark: "#d0a273" }, third: { light: "#5b4bb5", dark: "#a99cf5" },
  ours: { light: "#5b4bb5", dark: "#a99cf5" }, attention: { light: "#c84e00", dark: "#f5874a" }, construction: { light: "#7a4b1e", dark: "#d0a273" },
};
