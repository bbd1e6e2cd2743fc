// Draws the figures: visible ones first, then one after another by the clock, as a busy browser is never idle.
const { config, figures } = data;
const drawn = new Map(); // by figure: promise that resolves once it is drawn

const SVG_ICON = { width: 24, height: 24, path: "M11 3h2v10l4-4 1.4 1.4L12 17l-6.4-6.6L7 9l4 4zM4 19h16v2H4z" };

const NARROWEST = 600; // least width in pixels of a saved picture, also on a phone

// Saved pictures carry their own title and source.
function save(div, format) {
  const { stamp } = figures[div.id];
  const width = Math.max(div.getBoundingClientRect().width, NARROWEST);
  const { data: traces, layout } = stamped(div, stamp, width);
  const size = { width, height: layout.height, scale: format === "png" ? 3 : 1 };
  Plotly.downloadImage({ data: traces, layout }, { format, filename: stamp.filename, ...size });
}

const toolbar = () => ({
  ...config,
  modeBarButtonsToAdd: [
    { name: "Download plot as PNG", icon: Plotly.Icons.camera, click: (div) => save(div, "png") },
    { name: "Download plot as SVG", icon: SVG_ICON, click: (div) => save(div, "svg") },
  ],
});

async function plot(key) {
  await plotly;
  const { data: traces, layout } = figures[key];
  const place = document.getElementById(key);
  const least = layout.meta?.leastWidth ?? 0; // pixels; on a narrower screen the figure scrolls
  if (place.clientWidth < least) {
    layout.width = least;
    place.tabIndex = 0; // arrow keys scroll it
  }
  const div = await Plotly.newPlot(place, traces, layout, toolbar());
  div.dispatchEvent(new CustomEvent("drawn", { bubbles: true }));
  return div;
}

function draw(key) {
  if (!drawn.has(key)) drawn.set(key, plot(key));
  return drawn.get(key);
}

// Switches. Plotly keeps attributes that are not named.
document.querySelectorAll(".controls select[data-switch]").forEach((select) => {
  const key = select.closest(".controls").dataset.figure;
  select.addEventListener("change", async () => {
    await draw(key);
    const { switches, chosen, combined } = figures[key];
    chosen[select.dataset.switch] = Number(select.value);
    const { traces, layout } = switches[select.dataset.switch][Number(select.value)];
    const both = Object.values(chosen).reduce((found, place) => found?.[place], combined);
    await Plotly.update(key, { ...traces, ...(Array.isArray(both) ? {} : both) }, layout);
  });
});

const waiting = Object.keys(figures);
const seen = new IntersectionObserver((entries) =>
  entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target.id)),
);
waiting.forEach((key) => seen.observe(document.getElementById(key)));
const drawNext = () => {
  if (waiting.length) draw(waiting.shift()).finally(() => setTimeout(drawNext, 20));
};
plotly.then(() => setTimeout(drawNext, 20)); // after those that are seen

// Paper is narrower than most screens, and Plotly redraws only when the window changes.
const PAPER = 660; // pixels between the margins of A4
const HIGHEST = 320; // so that three figures share a sheet
const heights = new Map(); // by figure: height on the screen
addEventListener("beforeprint", () => {
  waiting.splice(0).forEach(draw);
  for (const drawing of drawn.values()) {
    drawing.then((div) => {
      heights.set(div, div.layout.height);
      const isForest = div.id === "differences" || div.querySelectorAll(".ytick").length > 12;
      const height = isForest ? div.layout.height : Math.min(div.layout.height, HIGHEST);
      Plotly.relayout(div, { width: PAPER, height });
    });
  }
});
addEventListener("afterprint", () => {
  for (const drawing of drawn.values()) {
    drawing.then((div) => Plotly.relayout(div, { width: null, height: heights.get(div), autosize: true }));
  }
});
