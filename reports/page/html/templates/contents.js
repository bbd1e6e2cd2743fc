// A list of the page's sections.
const contents = document.getElementById("contents");
for (const head of document.querySelectorAll("main section > h2[id]")) {
  const link = document.createElement("a");
  link.href = `#${head.id}`;
  link.textContent = head.firstChild.textContent.trim();
  contents.append(link);
}
contents.hidden = contents.children.length < 3;
