"use strict";
// Unpacks the page's data: deflated text in base 85, five characters for every four bytes.
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGIT = new Uint8Array(128);
[...DIGITS].forEach((digit, value) => (DIGIT[digit.charCodeAt(0)] = value));

function bytesOf(text) {
  const bytes = new DataView(new ArrayBuffer(Math.ceil(text.length / 5) * 4));
  for (let i = 0; i < text.length; i += 5) {
    let word = 0;
    // An incomplete last group is padded with the highest digit.
    for (let j = i; j < i + 5; j++) word = word * 85 + (j < text.length ? DIGIT[text.charCodeAt(j)] : 84);
    bytes.setUint32((i / 5) * 4, word);
  }
  return bytes.buffer.slice(0, Math.floor((text.length * 4) / 5));
}

function unpack(element) {
  const packed = new Blob([bytesOf(element.textContent)]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

// The page's policy lists this text's hash, so no other text would run.
function run(source) {
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);
}

const plotly = unpack(document.getElementById("plotly")).then(run);
const data = JSON.parse(await unpack(document.getElementById("data")));
