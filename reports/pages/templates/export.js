"use strict";
const { width, figures } = JSON.parse(document.getElementById("data").textContent);
const images = document.createElement("div");
images.hidden = true;
document.body.append(images);
(async () => {
  for (const [alt, figure] of Object.entries(figures)) {
    const src = await Plotly.toImage(figure, { format: "svg", width, height: figure.layout.height });
    images.append(Object.assign(document.createElement("img"), { alt, src }));
  }
})();
