// A drawn figure with its title, and below that its source: study, scale, size, seeds.
const INK = "#1e2227";
const [EDGE, LINE] = [16, 20]; // pixels
const SLACK = 0.95; // share of the width: fonts differ between machines
const ruler = document.createElement("canvas").getContext("2d");

function lines(text, font, width) {
  ruler.font = font;
  const found = [""];
  for (const word of text.split(" ")) {
    const longer = `${found.at(-1)} ${word}`.trim();
    if (found.at(-1) && ruler.measureText(longer).width > width) found.push(word);
    else found[found.length - 1] = longer;
  }
  return found;
}

function stamped({ data: traces, layout, _fullLayout }, { title, source }, width) {
  const family = layout.font?.family ?? "sans-serif";
  const room = SLACK * (width - 2 * EDGE);
  const heading = lines(title, `bold 15px ${family}`, room);
  const origin = lines(source, `11px ${family}`, room).map((line) => `<span style="font-size: 11px; color: #5d6670">${line}</span>`);
  const above = EDGE + LINE * (heading.length + origin.length);
  const { t } = _fullLayout._size; // includes the legend, which may have several rows
  return {
    data: traces,
    layout: {
      ...layout,
      title: {
        text: [`<b>${heading.join("<br>")}</b>`, ...origin].join("<br>"),
        font: { size: 15, color: INK },
        ...{ xref: "container", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top" },
        pad: { l: EDGE, t: EDGE + 15 }, // to the baseline of the text
      },
      width,
      height: (layout.height ?? 450) + above,
      autosize: false,
      paper_bgcolor: "#fff",
      font: { ...layout.font, color: INK },
      margin: { ...layout.margin, t: t + above },
    },
  };
}
