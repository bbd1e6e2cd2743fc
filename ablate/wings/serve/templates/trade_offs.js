// Finds arms by name, opens the study of a point, and keeps the choices in the address.
const find = document.getElementById("arm-filter");
const selects = [...document.querySelectorAll(".controls select[data-switch]")];
const nameOf = (select) => `${select.closest(".controls").dataset.figure}.${select.dataset.switch}`;

function showFound() {
  const wanted = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (text) => wanted.every((word) => text.toLowerCase().includes(word));
  for (const [key, drawing] of drawn) {
    drawing.then((div) => Plotly.restyle(div, { visible: div.data.map((trace) => fits(trace.name)) }));
  }
  for (const row of document.querySelectorAll("tbody tr")) row.hidden = !fits(row.cells[0].textContent);
}

function remember() {
  const state = new URLSearchParams(selects.map((select) => [nameOf(select), select.value]));
  if (find.value) state.set("find", find.value);
  history.replaceState(null, "", `#${state}`);
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  find.value = state.get("find") ?? "";
  for (const select of selects) {
    const value = state.get(nameOf(select));
    if (value === null || value === select.value) continue;
    select.value = value;
    select.dispatchEvent(new Event("change"));
  }
}

document.addEventListener("drawn", ({ target: div }) => {
  div.on("plotly_click", ({ points }) => (location.href = figures[div.id].links[points[0].curveNumber]));
  if (find.value) showFound();
});
recall();
find.addEventListener("input", () => [showFound(), remember()]);
for (const select of selects) select.addEventListener("change", remember);
