// Names beside points that would run out of a narrow drawing stand on the other side of their point, or are cut short;
// hovering tells them whole.
const GAP = 4; // pixels between a name and the frame

function room(name, frame) {
  const { left, right } = name.getBoundingClientRect();
  return Math.min(left - frame.left, frame.right - right) - GAP;
}

// To the other side of its point; every trace of a plane has one.
function flip(name) {
  const point = name.closest(".trace").querySelector(".point").getBoundingClientRect();
  const { left, right } = name.getBoundingClientRect();
  const middle = (point.left + point.right) / 2;
  const isRight = left + right > 2 * middle;
  name.setAttribute("x", Number(name.getAttribute("x")) + 2 * (middle - (isRight ? left : right)));
  name.setAttribute("text-anchor", isRight ? "end" : "start");
}

function fit(name, frame) {
  const whole = (name.dataset.whole ??= name.textContent);
  const arm = whole.slice(whole.lastIndexOf(": ") + 1).trim(); // without its study
  const fits = (text) => ((name.textContent = text), room(name, frame) >= 0);
  if (fits(whole) || fits(arm)) return;
  const here = room(name, frame);
  flip(name);
  if (room(name, frame) < here) flip(name);
  for (let length = arm.length; length > 2 && room(name, frame) < 0; ) fits(`${arm.slice(0, --length)}…`);
}

// The title of an axis that would run out of its drawing is set in smaller letters. Plotly draws it anew, and first at
// its own size, whenever the figure changes.
function shrink(title, drawing) {
  const { left, right, width } = title.getBoundingClientRect();
  const middle = (left + right) / 2;
  const share = (2 * (Math.min(middle - drawing.left, drawing.right - middle) - GAP)) / width;
  if (share < 1) title.style.fontSize = `${parseFloat(getComputedStyle(title).fontSize) * share}px`;
}

function fitAll(div) {
  const frame = div.querySelector(".nsewdrag")?.getBoundingClientRect();
  if (frame) div.querySelectorAll(".textpoint text").forEach((name) => fit(name, frame));
  div.querySelectorAll("[class*=xtitle]").forEach((title) => shrink(title, div.getBoundingClientRect()));
}

document.addEventListener("drawn", ({ target: div }) => {
  fitAll(div);
  div.on("plotly_afterplot", () => fitAll(div));
});
