// Filters the cards by words, topic, outcome and year.
const cards = [...document.querySelectorAll(".cards > li")];
const field = (name) => document.getElementById(name);

function showFound() {
  const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const topic = field("topic").value, outcome = field("outcome").value, year = Number(field("year").value);
  let shown = 0;
  for (const card of cards) {
    const text = card.textContent.toLowerCase();
    card.hidden = !(words.every((word) => text.includes(word))
      && (!topic || card.dataset.topics.split("|").includes(topic))
      && (!outcome || card.dataset.outcome === outcome)
      && Number(card.dataset.year) >= year);
    shown += !card.hidden;
  }
  field("count").textContent = `${shown} of ${cards.length}`;
}

for (const name of ["search", "topic", "outcome", "year"]) field(name).addEventListener("input", showFound);
field("filters").hidden = false;
showFound();
