// The table of all runs: sorting, filtering, download, and details of each run.
const table = document.querySelector("table.runs");
const MOST = Math.max(table.tBodies[0].rows.length, 200); // rows shown at once: a browser is slow with ten thousand
const packed = document.querySelector("table.runs ~ script.rest");
const written = [...table.tBodies[0].rows];
const entries = [...written.map((row) => [...row.cells].map((cell) => cell.textContent)), ...(await restOf(table))].map(
  (texts, i) => ({ texts, lower: texts.map((text) => text.toLowerCase()), run: data.runs[i], row: written[i] }),
);
let matching = entries;

const numberIn = (text) => {
  const match = text.replaceAll(",", "").replace("−", "-").match(/^[-+]?[\d.]+(?=\s|$)/);
  const units = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  return match ? Number(match[0]) * (units[text.split(" ").at(-1)] ?? 1) : null;
};

function compare([a, x], [b, y]) {
  if (x !== null && y !== null) return x - y;
  if ((x === null) !== (y === null)) return x === null ? 1 : -1;
  return a.localeCompare(b);
}

[...table.tHead.rows[0].cells].forEach((head, column) => {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: head.textContent });
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const keys = new Map(entries.map((entry) => [entry, [entry.texts[column], numberIn(entry.texts[column])]]));
    entries.sort((a, b) => (up ? 1 : -1) * compare(keys.get(a), keys.get(b)));
    showMatching();
  });
});

// Digests match by prefix and numbers as a whole: a short number would occur somewhere in most digests.
const has = ({ lower: [arm, run, status, ...numbers] }, word) =>
  arm.includes(word) || status.includes(word) || numbers.includes(word) || (word.length > 5 && run.startsWith(word));

const filter = document.getElementById("run-filter");
function showMatching() {
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  matching = entries.filter((entry) => wanted.every((word) => has(entry, word)));
  const shown = matching.slice(0, MOST);
  table.tBodies[0].replaceChildren(...shown.map(linked));
  const part = shown.length < matching.length ? `, the first ${shown.length} shown` : "";
  document.getElementById("run-count").textContent = `${matching.length} of ${entries.length} runs${part}`;
}
filter.addEventListener("input", showMatching);

// An apostrophe keeps a spreadsheet from reading a cell as a formula.
const quoted = (value) => {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
document.getElementById("run-csv").addEventListener("click", () => {
  const names = Object.keys(data.runs[0]);
  const values = [names, ...matching.map(({ run }) => names.map((name) => run[name]))];
  const text = values.map((line) => line.map(quoted).join(",") + "\r\n").join("");
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: url, download: "runs.csv" }).click();
  URL.revokeObjectURL(url);
});

// Details of one run, with its own address: #run-<digest>.
const dialog = document.getElementById("run");
const element = (tag, text, attributes = {}) =>
  Object.assign(document.createElement(tag), { textContent: text, ...attributes });
function linked(entry) {
  if (entry.isLinked) return entry.row;
  const { run, texts } = entry;
  entry.row ??= rowOf(texts, Number(packed.dataset.labels));
  entry.row.cells[0].dataset.arm = run.arm;
  entry.row.cells[1].replaceChildren(element("a", texts[1], { href: `#run-${run.digest}` }));
  entry.isLinked = true;
  return entry.row;
}

// The run's section of its arm's raw losses, by step.
function curveOf({ digest }) {
  const { data: traces, switches } = figures.losses ?? { data: [] };
  const place = traces.findIndex((trace) => Array.isArray(trace.meta) && trace.meta.includes(digest));
  if (place < 0) return null;
  const { meta, y } = traces[place];
  const gaps = [-1, ...y.flatMap((value, i) => (value === null ? [i] : []))];
  const part = gaps.slice(meta.indexOf(digest)).slice(0, 2).map((gap) => gap + 1);
  const x = switches.against[0].traces.x[place];
  const look = { mode: "lines", line: { width: 1.2, color: "#2b83c6" } };
  return { x: x.slice(part[0], part[1] - 1), y: y.slice(part[0], part[1] - 1), ...look };
}

function openRun() {
  const run = data.runs.find((each) => location.hash === `#run-${each.digest}`);
  if (!run) return;
  document.getElementById("run-title").textContent = `${run.arm}, seed ${run.seed}`;
  const known = Object.entries(run).filter(([, value]) => value !== null);
  document.getElementById("run-facts").replaceChildren(
    ...known.map(([name, value]) => {
      const line = document.createElement("tr");
      const text = Number.isInteger(value) || typeof value === "string" ? value : value.toPrecision(6);
      line.append(element("th", name.replaceAll("_", " "), { scope: "row" }), element("td", String(text)));
      return line;
    }),
  );
  if (!dialog.open) dialog.showModal();
  drawRun(run);
}

function drawRun(run) {
  const place = document.getElementById("run-drawing");
  const curve = curveOf(run);
  place.hidden = !curve;
  if (!curve) return;
  const axis = { gridcolor: "rgba(128,128,128,0.22)", zeroline: false, automargin: true };
  const layout = {
    height: 260,
    margin: { l: 50, r: 10, t: 10, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif" },
    xaxis: { ...axis, title: { text: "training step" } },
    yaxis: { ...axis, title: { text: "training loss (nats)" } },
  };
  plotly.then(() => Plotly.newPlot(place, [curve], layout, toolbar()));
}

addEventListener("hashchange", openRun);
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
document.getElementById("run-controls").hidden = false;
showMatching();
openRun();
