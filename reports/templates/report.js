"use strict";
const { config, figures } = JSON.parse(document.getElementById("drawings").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const textColour = () =>
  getComputedStyle(document.documentElement).getPropertyValue("--text").trim();

for (const [key, { data, layout }] of Object.entries(figures)) {
  layout.font.color = textColour();
  Plotly.newPlot(key, data, layout, config);
}
dark.addEventListener("change", () => {
  for (const key of Object.keys(figures)) {
    Plotly.relayout(key, { "font.color": textColour() });
  }
});
