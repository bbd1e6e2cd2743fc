// Choice of arms: traces and rows of the other arms fade, in every figure and table.
const arms = document.getElementById("arms");
const boxes = arms ? [...arms.querySelectorAll("input")] : [];
const labels = new Set(boxes.map((box) => box.value));
const chosen = () => new Set(boxes.filter((box) => box.checked).map((box) => box.value));
const FADED = Math.min(0.1, 2 / boxes.length); // many faded traces must not hide the chosen ones
const opacities = new Map(); // by figure: initial opacities of its traces

function showChoice(div) {
  if (!opacities.has(div.id)) opacities.set(div.id, div.data.map((trace) => trace.opacity ?? 1));
  const picked = chosen();
  const isFaded = (trace) => picked.size && labels.has(trace.legendgroup) && !picked.has(trace.legendgroup);
  const opacity = div.data.map((trace, i) => opacities.get(div.id)[i] * (isFaded(trace) ? FADED : 1));
  const zorder = div.data.map((trace) => (picked.has(trace.legendgroup) ? 1 : 0));
  if (opacity.some((value, i) => value !== (div.data[i].opacity ?? 1))) Plotly.restyle(div, { opacity, zorder });
}

function choose() {
  for (const drawing of drawn.values()) drawing.then(showChoice);
  const names = new Set(boxes.filter((box) => box.checked).map((box) => box.dataset.arm));
  for (const head of document.querySelectorAll("tbody th")) {
    head.parentElement.classList.toggle("chosen", names.has(head.dataset.arm ?? head.textContent));
  }
}

document.addEventListener("drawn", ({ target: div }) => {
  if (boxes.length && chosen().size) showChoice(div);
  div.on("plotly_legendclick", ({ curveNumber }) => {
    const box = boxes.find((each) => each.value === div.data[curveNumber].legendgroup);
    if (!box) return true;
    box.checked = !box.checked;
    choose();
    return false;
  });
  div.on("plotly_legenddoubleclick", () => false);
});

if (arms) {
  arms.hidden = boxes.length < 2;
  arms.addEventListener("change", choose);
  document.getElementById("all-arms").addEventListener("click", () => {
    boxes.forEach((box) => (box.checked = false));
    choose();
  });
}
