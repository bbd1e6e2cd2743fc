// Names beside points that would run out of a narrow drawing move to the other side of their point, or are shortened.
// Names that would cover another name or point move around their own. Hovering shows them in full.
const GAP = 4; // pixels between a name and the frame
const SIDES = [[1, -1], [-1, -1], [1, 1], [-1, 1], [1, 0], [-1, 0], [0, -1], [0, 1]]; // right and down from the point
const AWAY = [0, 16, 32]; // pixels farther from the point; a leader line connects them

function room(name, frame) {
  const { left, right } = name.getBoundingClientRect();
  return Math.min(left - frame.left, frame.right - right) - GAP;
}

// The point of a name: the nearest one of its trace, before the name is moved.
const pointOf = new WeakMap();
function bind(name) {
  const { left, right, top, bottom } = name.getBoundingClientRect();
  const far = (mark) => {
    const box = mark.getBoundingClientRect();
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
  };
  const marks = [...name.closest(".trace").querySelectorAll(".point")];
  pointOf.set(name, marks.reduce((near, mark) => (far(mark) < far(near) ? mark : near)));
}

// Move a name to the other side of its point.
function flip(name) {
  const point = pointOf.get(name).getBoundingClientRect();
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

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const moved = ({ width, height }, left, top) => ({ left, top, right: left + width, bottom: top + height });

// Candidate places of a name around its point: the present one, then the sides, then farther out.
function* places(box, point) {
  yield { box, away: 0 };
  const middle = { x: (point.left + point.right) / 2, y: (point.top + point.bottom) / 2 };
  for (const away of AWAY) {
    for (const [across, down] of SIDES) {
      const [x, y] = [(point.right - point.left) / 2 + away, down && across ? 2 + away : (point.bottom - point.top) / 2 + away];
      const left = across > 0 ? middle.x + x : across < 0 ? middle.x - x - box.width : middle.x - box.width / 2;
      const top = down > 0 ? middle.y + y : down < 0 ? middle.y - y - box.height : middle.y - box.height / 2;
      yield { box: moved(box, left, top), away };
    }
  }
}

function leader(name, box, point) {
  const [x, y] = [(point.left + point.right) / 2, (point.top + point.bottom) / 2];
  const end = { x: Math.min(Math.max(x, box.left), box.right), y: Math.min(Math.max(y, box.top), box.bottom) };
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  const own = name.getScreenCTM().inverse();
  const at = (x, y) => new DOMPoint(x, y).matrixTransform(own);
  const [from, to] = [at(x, y), at(end.x, end.y)];
  for (const [key, value] of Object.entries({ x1: from.x, y1: from.y, x2: to.x, y2: to.y })) line.setAttribute(key, value);
  line.setAttribute("class", "leader");
  name.after(line);
}

// A name without a free place is shown only on hovering.
function separate(div, frame) {
  div.querySelectorAll(".leader").forEach((line) => line.remove());
  const names = [...div.querySelectorAll(".textpoint text")].filter((name) => name.textContent);
  const points = [...div.querySelectorAll(".scatterlayer .point")].map((mark) => [mark, mark.getBoundingClientRect()]);
  const taken = [];
  for (const name of names) {
    name.style.visibility = "";
    const mark = pointOf.get(name);
    const here = name.getBoundingClientRect();
    const own = mark.getBoundingClientRect();
    const others = [...taken, ...points.filter(([other]) => other !== mark).map(([, box]) => box)];
    const isFree = ({ box }) =>
      box.left >= frame.left && box.right <= frame.right && box.top >= frame.top && box.bottom <= frame.bottom &&
      !others.some((other) => overlap(box, other));
    const found = [...places(here, own)].find(isFree);
    if (!found) {
      name.style.visibility = "hidden";
      continue;
    }
    const { box, away } = found;
    name.setAttribute("x", Number(name.getAttribute("x")) + box.left - here.left);
    name.setAttribute("y", Number(name.getAttribute("y")) + box.top - here.top);
    if (away) leader(name, box, own);
    taken.push(box);
  }
}

// An axis title that would run out of its drawing is set in a smaller font. Plotly redraws it at its original size
// whenever the figure changes.
function shrink(title, drawing) {
  const { left, right, width } = title.getBoundingClientRect();
  const middle = (left + right) / 2;
  const share = (2 * (Math.min(middle - drawing.left, drawing.right - middle) - GAP)) / width;
  if (share < 1) title.style.fontSize = `${parseFloat(getComputedStyle(title).fontSize) * share}px`;
}

function fitAll(div) {
  const frame = div.querySelector(".nsewdrag")?.getBoundingClientRect();
  if (frame) {
    div.querySelectorAll(".textpoint text").forEach((name) => pointOf.has(name) || bind(name));
    div.querySelectorAll(".textpoint text").forEach((name) => fit(name, frame));
    separate(div, frame);
  }
  div.querySelectorAll("[class*=xtitle]").forEach((title) => shrink(title, div.getBoundingClientRect()));
}

document.addEventListener("drawn", ({ target: div }) => {
  fitAll(div);
  div.on("plotly_afterplot", () => fitAll(div));
});
