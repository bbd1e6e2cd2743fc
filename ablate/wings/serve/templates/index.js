// Searches and sorts the studies.
const list = document.getElementById("studies");
const cards = [...list.children];
const search = document.getElementById("study-filter");
const order = document.getElementById("study-order");
const ORDERS = {
  created: (a, b) => b.dataset.created.localeCompare(a.dataset.created),
  name: (a, b) => a.dataset.name.localeCompare(b.dataset.name),
  rank: (a, b) => a.dataset.rank - b.dataset.rank,
};

function showFound() {
  const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const card of cards) {
    const text = card.textContent.toLowerCase();
    card.hidden = !wanted.every((word) => text.includes(word));
  }
  const shown = cards.filter((card) => !card.hidden).length;
  document.getElementById("study-count").textContent = `${shown} of ${cards.length}`;
}

search.addEventListener("input", showFound);
order.addEventListener("change", () => list.append(...cards.sort(ORDERS[order.value])));
document.getElementById("study-controls").hidden = cards.length < 2;
showFound();
