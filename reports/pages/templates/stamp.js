// A figure with its title above it, and below it what it is of: study, scale, size, seeds.
const INK = "#1e2227";
function stamped({ data: traces, layout }, { title, source }, width) {
  const letters = Math.floor(width / 8);
  const lines = title.match(new RegExp(`.{1,${letters}}(\\s|$)`, "g")) ?? [title];
  const [above, below] = [20 + 19 * lines.length, 26];
  const { t = 36, b = 48, ...sides } = layout.margin ?? {};
  const height = (layout.height ?? 450) + above + below;
  const note = { xref: "paper", yref: "paper", x: 0, showarrow: false, xanchor: "left", align: "left" };
  const heading = { ...note, y: 1, yanchor: "bottom", yshift: t, text: `<b>${lines.join("<br>")}</b>`, font: { size: 15, color: INK } };
  const origin = { ...note, y: 0, yanchor: "top", yshift: -b - 2, text: source, font: { size: 11, color: "#5d6670" } };
  return {
    data: traces,
    layout: {
      ...layout,
      width,
      height,
      autosize: false,
      paper_bgcolor: "#fff",
      font: { ...layout.font, color: INK },
      margin: { ...sides, t: t + above, b: b + below },
      annotations: [...(layout.annotations ?? []), heading, origin],
    },
  };
}
