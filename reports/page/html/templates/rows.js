// Long tables: the page has their first rows; the others follow in compressed form.
async function restOf(table) {
  const packed = table.parentElement.querySelector("script.rest");
  return packed ? JSON.parse(await unpack(packed)) : [];
}

function rowOf(texts, labels) {
  const row = document.createElement("tr");
  row.append(
    ...texts.map((text, column) => {
      const cell = document.createElement(column ? "td" : "th");
      if (!column) cell.scope = "row";
      if (column < labels) cell.className = "label";
      cell.textContent = text;
      return cell;
    }),
  );
  return row;
}

// Most are collapsed, and filled when opened.
for (const packed of document.querySelectorAll("details script.rest")) {
  const table = packed.parentElement.querySelector("table");
  const fill = async () => {
    const rows = await restOf(table);
    table.tBodies[0].append(...rows.map((texts) => rowOf(texts, Number(packed.dataset.labels))));
  };
  packed.closest("details").addEventListener("toggle", fill, { once: true });
}
