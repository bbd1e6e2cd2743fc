const { width, figures } = data;
const images = document.createElement("div");
images.hidden = true;
document.body.append(images);
await plotly;
for (const [alt, { stamp, ...drawing }] of Object.entries(figures)) {
  const plain = document.body.appendChild(document.createElement("div"));
  const figure = stamped(await Plotly.newPlot(plain, drawing.data, { ...drawing.layout, width }), stamp, width);
  plain.remove();
  const src = await Plotly.toImage(figure, { format: "svg", width, height: figure.layout.height });
  images.append(Object.assign(document.createElement("img"), { alt, src }));
}
