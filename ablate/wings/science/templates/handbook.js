// Filters the claims by words, topic, standing, grade and kind of test.
const claims = [...document.querySelectorAll(".cards > li")];
const chosen = ["topic", "standing", "grade", "answer"];
const field = (name) => document.getElementById(name);

function showFound() {
  const words = field("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const claim of claims) {
    const text = claim.textContent.toLowerCase();
    claim.hidden = !(words.every((word) => text.includes(word))
      && chosen.every((name) => !field(name).value || claim.dataset[name] === field(name).value));
    shown += !claim.hidden;
  }
  for (const topic of document.querySelectorAll(".topic")) {
    topic.hidden = !topic.querySelector("li:not([hidden])");
  }
  field("count").textContent = `${shown} of ${claims.length} claims`;
}

for (const name of ["search", ...chosen]) field(name).addEventListener("input", showFound);
field("filters").hidden = false;
showFound();
