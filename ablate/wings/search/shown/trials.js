// Details of one trial, with its own address: #trial-<number>. A click on its point or its number opens them.
const trials = new Map(data.trials.map((trial) => [String(trial.number), trial]));
const dialog = document.getElementById("trial");
const element = (tag, text, attributes = {}) =>
  Object.assign(document.createElement(tag), { textContent: text, ...attributes });

document.querySelectorAll("table.trials tbody th").forEach((head) => {
  head.replaceChildren(element("a", head.textContent, { href: `#trial-${head.textContent}` }));
});

addEventListener("drawn", ({ target }) => {
  target.on("plotly_click", ({ points }) => {
    const number = points.map((point) => point.customdata).find((each) => each != null);
    if (number !== undefined) location.hash = `#trial-${number}`;
  });
});

const told = (value) => (Array.isArray(value) ? value.join(" ") : String(value ?? "–"));
const line = (name, value, tag = "td") => {
  const row = document.createElement("tr");
  const cell = document.createElement("td");
  cell.append(element(tag === "td" ? "span" : tag, value));
  row.append(element("th", name, { scope: "row" }), cell);
  return row;
};

function openTrial() {
  const trial = trials.get(location.hash.replace("#trial-", ""));
  if (!trial || !location.hash.startsWith("#trial-")) return;
  document.getElementById("trial-title").textContent = `Trial ${trial.number}, ${trial.state}`;
  document.getElementById("trial-facts").replaceChildren(
    ...(trial.error ? [line("error", trial.error)] : []),
    ...Object.entries(trial.scores).map(([name, value]) => line(name, told(value))),
    ...Object.entries(trial.settings).map(([path, value]) => line(path, told(value))),
    ...trial.runs.map((run) => line(`run, seed ${told(run.seed)}, ${run.status}`, run.logs, "code")),
  );
  if (!dialog.open) dialog.showModal();
  drawTrial(trial);
}

function drawTrial(trial) {
  const place = document.getElementById("trial-drawing");
  const curves = trial.runs.filter((run) => run.steps.length);
  place.hidden = !curves.length;
  if (!curves.length) return;
  const axis = { gridcolor: "rgba(128,128,128,0.22)", zeroline: false, automargin: true };
  const colour = getComputedStyle(document.body).color;
  const layout = {
    height: 260,
    margin: { l: 50, r: 10, t: 10, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", color: colour },
    showlegend: curves.length > 1,
    xaxis: { ...axis, title: { text: "training step" } },
    yaxis: { ...axis, title: { text: "training loss (nats per token)" } },
  };
  const traces = curves.map((run) => ({ x: run.steps, y: run.losses, mode: "lines", name: `seed ${run.seed}` }));
  plotly.then(() => Plotly.newPlot(place, traces, layout, toolbar()));
}

addEventListener("hashchange", openTrial);
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
openTrial();
