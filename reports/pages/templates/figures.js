"use strict";
// Draws the figures: those on the screen first, the others when the browser has time.
const data = JSON.parse(document.getElementById("data").textContent);
const { config, figures } = data;
const drawn = new Map(); // by figure: what becomes true once it is drawn

const SVG_ICON = { width: 24, height: 24, path: "M11 3h2v10l4-4 1.4 1.4L12 17l-6.4-6.6L7 9l4 4zM4 19h16v2H4z" };
const toolbar = {
  ...config,
  modeBarButtonsToAdd: [
    {
      name: "Download plot as SVG",
      icon: SVG_ICON,
      click: (div) => Plotly.downloadImage(div, { format: "svg", filename: div.id }),
    },
  ],
};

function draw(key) {
  if (!drawn.has(key)) {
    const { data: traces, layout } = figures[key];
    const options = { ...toolbar, toImageButtonOptions: { filename: key, scale: 3 } };
    drawn.set(
      key,
      Plotly.newPlot(key, traces, layout, options).then((div) => {
        drawFront(key);
        div.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
        return div;
      }),
    );
  }
  return drawn.get(key);
}

// Switches. Plotly keeps what is not named.
document.querySelectorAll(".controls select[data-switch]").forEach((select) => {
  const key = select.closest(".controls").dataset.figure;
  select.addEventListener("change", async () => {
    await draw(key);
    figures[key].chosen[select.dataset.switch] = Number(select.value);
    const { traces, layout } = figures[key].switches[select.dataset.switch][Number(select.value)];
    await Plotly.update(key, traces, layout);
    await drawFront(key);
  });
});

// The points that no other is at least as good as in both and better in one, from left to right.
function front(points, betterX, betterY) {
  const sign = (better) => (better === "high" ? -1 : 1);
  const cost = ([x, y]) => [sign(betterX) * x, sign(betterY) * y];
  const beats = ([ax, ay], [bx, by]) => ax <= bx && ay <= by && (ax < bx || ay < by);
  const costs = points.map(cost);
  return points
    .filter((_, i) => !costs.some((other) => beats(other, costs[i])))
    .sort(([ax, ay], [bx, by]) => ax - bx || ay - by);
}

function drawFront(key) {
  const figure = figures[key];
  if (!figure.front) return;
  const div = document.getElementById(key);
  const means = div.data.filter((trace) => trace.meta === "mean").map((trace) => [trace.x[0], trace.y[0]]);
  const { x, y } = figure.chosen;
  const known = means.filter((point) => !point.includes(null));
  const line = front(known, figure.switches.x[x].better, figure.switches.y[y].better);
  const place = div.data.length - 1;
  return Plotly.restyle(div, { x: [line.map((p) => p[0])], y: [line.map((p) => p[1])] }, [place]);
}

const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 20));
const waiting = Object.keys(figures);
const seen = new IntersectionObserver((entries) =>
  entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target.id)),
);
waiting.forEach((key) => seen.observe(document.getElementById(key)));
const drawNext = () => {
  if (waiting.length) draw(waiting.shift()).then(() => idle(drawNext));
};
addEventListener("load", () => idle(drawNext));

// Paper is narrower than most screens, and Plotly draws again only when the window changes.
const PAPER = 660; // pixels between the margins of A4
addEventListener("beforeprint", () => {
  waiting.splice(0).forEach(draw);
  for (const drawing of drawn.values()) drawing.then((div) => Plotly.relayout(div, { width: PAPER }));
});
addEventListener("afterprint", () => {
  for (const drawing of drawn.values()) drawing.then((div) => Plotly.relayout(div, { width: null, autosize: true }));
});
