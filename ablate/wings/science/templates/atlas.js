// Filters the cards by words, topic, outcome and year.
const cards = [...document.querySelectorAll(".cards > li")];
const FEW = 12; // most hits that are opened
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
  const asked = Boolean(words.length || topic || outcome || year);
  for (const group of document.querySelectorAll(".of-study, .unanswered, .topic")) {
    const found = group.querySelector(".cards > li:not([hidden])");
    group.hidden = !found;
    if (group.matches(".unanswered")) group.open = asked && Boolean(found);
    else if (group.matches(".of-study")) group.open = asked && shown <= FEW;
  }
  field("count").textContent = `${shown} of ${cards.length} claims and questions`;
}

for (const name of ["search", "topic", "outcome", "year"]) field(name).addEventListener("input", showFound);
// A link to a card opens what it lies in.
function showTarget() {
  let place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!place) return;
  for (let at = place; at; at = at.parentElement) if (at.matches("details")) at.open = true;
  place.scrollIntoView();
}
addEventListener("hashchange", showTarget);
field("filters").hidden = false;
showFound();
showTarget();
