#include "schedule/io/html_viewer.h"

namespace penstock::schedule {

const std::string_view kViewerHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Pipeline schedules</title>
<style>
  body { font: 14px/1.4 Helvetica, Arial, "DejaVu Sans", sans-serif; margin: 16px; color: #111; }
  header { position: sticky; top: 0; background: #fff; padding: 4px 0 8px; z-index: 1; }
  h2 { font-size: 15px; margin: 14px 0 0; }
  p { margin: 2px 0 4px; color: #444; }
  canvas { display: block; width: 100%; cursor: crosshair; touch-action: none; }
  button { font: inherit; }
  #legend span { display: inline-block; margin-right: 16px; white-space: nowrap; }
  #legend canvas { display: inline-block; width: auto; vertical-align: -3px; }
  #details { position: fixed; display: none; background: #fff; border: 1px solid #888;
             padding: 5px 8px; font-size: 12px; white-space: pre; pointer-events: none;
             box-shadow: 0 2px 6px #0004; z-index: 2; }
</style>
</head>
<body>
<header>
  <div id="legend"></div>
  <p>Wheel: zoom at the pointer. Drag: move. <button id="all">Show all</button>
     Keys: + and − zoom, arrows move, 0 shows all.</p>
</header>
<main></main>
<div id="details" role="tooltip"></div>
<script type="application/json" id="data">)html";

const std::string_view kViewerTail = R"html(</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
for (const {ranks} of data.traces) for (const rank of ranks) rank.spans = rank.spans.map(decode);
const box = 26, marks = 8, pitch = box + marks + 6, axis = 22, right = 104, band = 5;
const fontOf = size => `${size}px Helvetica, Arial, 'DejaVu Sans', sans-serif`;
const short = value => String(Number(value.toPrecision(6)));

function decode([opcode, chunk, microBatch, buffer, stage, step, start, end]) {
  const [name, letter] = data.opcodes[opcode];
  const operands = [["c", chunk], ["m", microBatch], ["b", buffer]];
  const text = operands.filter(([, value]) => value >= 0).map(pair => pair.join("")).join(" ");
  return {letter, text: `${name}(${text})`, chunk, microBatch, stage, step, start, end};
}

// All pictures show the same times, each counted from its own start.
const longest = Math.max(...data.traces.map(t => t.end - t.start), 1e-300);
const view = {from: 0, to: longest};
const pictures = [];
let left = 40;  // where time begins, the same in all pictures: as wide as the longest name

function setView(from, to) {
  const least = longest * 1e-6;
  const length = Math.min(Math.max(to - from, least), longest);
  view.from = Math.min(Math.max(from, 0), longest - length);
  view.to = view.from + length;
  requestAnimationFrame(() => pictures.forEach(draw));
}

function zoom(factor, at) {
  setView(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

function patternOf(name) {
  if (name === "solid") return "rgba(0,0,0,0.62)";
  const tile = document.createElement("canvas");
  tile.width = tile.height = name === "hatched" ? 4 : 5;
  const c = tile.getContext("2d");
  if (name === "hatched") {
    c.fillStyle = "rgba(0,0,0,0.62)";
    for (let y = 0; y < 4; ++y) for (const x of [y, y + 1]) c.fillRect(x % 4, 3 - y, 1, 1);
  } else {
    c.fillStyle = "rgba(255,255,255,0.95)";
    c.fillRect(1, 1, 2, 2);
  }
  return c.createPattern(tile, "repeat");
}
for (const style of Object.values(data.styles)) {
  style.pattern = style.band === "none" ? null : patternOf(style.band);
}

function drawBox(c, style, shade, x, y, w, h, label) {
  const gap = Math.min(0.8, w / 6);
  c.fillStyle = shade.fill;
  c.fillRect(x, y, w - gap, h - 0.8);
  const strip = style.pattern ? Math.min(band, h / 4) : 0;
  if (strip) {
    c.fillStyle = style.pattern;
    c.fillRect(x, y + h - 0.8 - strip, w - gap, strip);
  }
  if (!label || w < 8) return;
  c.fillStyle = shade.ink;
  c.textAlign = "center";
  const size = h < box ? 9 : 11;
  c.font = fontOf(size);
  const texts = [label, label.slice(1)];
  const text = texts.find(t => t && c.measureText(t).width <= w - 3);
  if (text) c.fillText(text, x + w / 2, y + (h - strip) / 2 + size * 0.35);
  c.font = fontOf(11);
}

function makePicture(trace) {
  const main = document.querySelector("main");
  const title = document.createElement("h2");
  title.textContent = trace.title;
  const facts = document.createElement("p");
  facts.textContent = `makespan ${short(trace.makespan)}, bubble ` +
      `${Number((100 * trace.bubble).toPrecision(3))} % of the busy time`;
  const canvas = document.createElement("canvas");
  main.append(title, facts, canvas);
  const picture = {trace, canvas, context: canvas.getContext("2d"), lit: null};
  for (const rank of trace.ranks) placeSpans(rank);
  picture.context.font = fontOf(11);
  for (const rank of trace.ranks) {
    left = Math.max(left, 14 + picture.context.measureText(rank.name).width);
  }
  pictures.push(picture);
  listen(picture);
}

// Passes that overlap share the height of the row.
function placeSpans(rank) {
  let occupied = -Infinity, before = null;
  const slack = 1e-9 * longest;
  for (const span of rank.spans) {
    if (!span.letter) continue;
    span.lower = span.start < occupied - slack;
    if (span.lower && before) {
      before.upper = true;
      before.busyTo = Math.max(before.end, span.end);
    }
    occupied = Math.max(occupied, span.end);
    before = span;
  }
}

function geometry(picture) {
  const width = picture.canvas.clientWidth;
  const scale = (width - left - right) / (view.to - view.from);
  const x = time => left + (time - picture.trace.start - view.from) * scale;
  const at = px => (px - left) / scale + view.from;
  return {width, x, at};
}

function place(span, row) {
  const half = span.lower || span.upper;
  return {y: row * pitch + (span.lower ? box / 2 : 0), h: half ? box / 2 : box};
}

function draw(picture) {
  const {canvas, context: c, trace} = picture;
  const {width, x} = geometry(picture);
  const height = trace.ranks.length * pitch + axis;
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.font = fontOf(11);
  c.save();
  c.beginPath();
  c.rect(left - 4, 0, width - left - right + 8, height);
  c.clip();
  drawAxis(c, x, trace, height);
  trace.ranks.forEach((rank, row) => drawRank(c, x, trace, rank, row));
  if (picture.lit) drawLit(picture, x);
  c.restore();
  c.fillStyle = "#111";
  trace.ranks.forEach((rank, row) => {
    c.textAlign = "left";
    c.fillText(rank.name, 2, row * pitch + 17);
    const idle = trace.makespan > 0 ? 100 * rank.idle / trace.makespan : 0;
    c.fillText(`idle ${Number(idle.toPrecision(3))} %`, width - right + 8, row * pitch + 12);
    c.fillText(`peak ${rank.peak}`, width - right + 8, row * pitch + 25);
  });
}

function drawAxis(c, x, trace, height) {
  const rough = (view.to - view.from) / 12, power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map(f => f * power).find(d => d >= rough);
  c.textAlign = "center";
  for (let i = Math.ceil(view.from / distance); i * distance <= view.to; ++i) {
    const px = x(trace.start + i * distance);
    c.fillStyle = "#e2e2e2";
    c.fillRect(px, 0, 1, height - 14);
    c.fillStyle = "#444";
    c.fillText(short(i * distance), px, height - 4);
  }
}

function drawRank(c, x, trace, rank, row) {
  const y = row * pitch, end = x(trace.start + trace.makespan);
  c.fillStyle = "#f1f1f1";
  c.fillRect(x(trace.start), y, end - x(trace.start), box);
  c.fillStyle = "#b4b4b4";
  c.fillRect(x(trace.start), y + box / 2, end - x(trace.start), 1);
  const from = trace.start + view.from, to = trace.start + view.to;
  for (const span of rank.spans) {
    if (span.end < from || span.start > to) continue;
    if (!span.letter) { drawMark(c, x, span, y); continue; }
    if (span.end <= span.start) continue;
    const style = data.styles[span.letter];
    const shade = trace.shades[span.letter][Math.max(0, span.chunk)];
    const {y: top, h} = place(span, row);
    if (span.upper) {  // the rank is busy until the longer one ends
      c.fillStyle = "#fff";
      c.fillRect(x(span.start), y, x(span.busyTo) - x(span.start), box);
    }
    const number = span.microBatch < 0 ? "" : span.microBatch;
    drawBox(c, style, shade, x(span.start), top, x(span.end) - x(span.start), h,
            span.letter + number);
  }
}

function drawMark(c, x, span, y) {
  const gradient = span.text.includes("Grad(");
  c.fillStyle = gradient ? data.gradient : data.activation;
  const top = y + box + 1 + (gradient ? marks / 2 : 0);
  if (span.text.startsWith("Send")) c.fillRect(x(span.start) - 0.7, top, 1.4, 3.5);
  if (span.text.startsWith("Recv")) {
    c.fillRect(x(span.start), top + 1.3, Math.max(x(span.end) - x(span.start), 0), 0.9);
  }
}

// The same micro batch on every stage, and its transfers.
function drawLit(picture, x) {
  const {context: c, trace, lit} = picture;
  c.lineWidth = 2;
  trace.ranks.forEach((rank, row) => {
    for (const span of rank.spans) {
      if (!span.letter || span.microBatch !== lit.microBatch || span.microBatch < 0) continue;
      c.strokeStyle = span === lit ? "#000" : "#000a";
      const {y, h} = place(span, row);
      c.strokeRect(x(span.start) + 1, y + 1, x(span.end) - x(span.start) - 2, h - 3);
    }
  });
  c.lineWidth = 1;
  for (const [fromRank, fromSpan, toRank, toSpan] of trace.transfers) {
    const send = trace.ranks[fromRank].spans[fromSpan], recv = trace.ranks[toRank].spans[toSpan];
    if (send.microBatch !== lit.microBatch) continue;
    c.strokeStyle = send.text.includes("Grad(") ? data.gradient : data.activation;
    c.beginPath();
    c.moveTo(x(send.start), fromRank * pitch + (toRank > fromRank ? box : 0));
    c.lineTo(x(recv.end), toRank * pitch + (toRank > fromRank ? 0 : box));
    c.stroke();
  }
}

function spanAt(picture, px, py) {
  const row = Math.floor(py / pitch), rank = picture.trace.ranks[row];
  if (!rank || px < left) return null;
  const {x} = geometry(picture), inBox = py - row * pitch < box;
  let best = null;
  for (const span of rank.spans) {
    if (Boolean(span.letter) !== inBox) continue;
    const slack = span.letter ? 0 : 2;
    if (px < x(span.start) - slack || px > x(span.end) + slack) continue;
    const {y, h} = place(span, row);
    if (!inBox || (py >= y && py < y + h)) best = span;
  }
  return best && {span: best, rank};
}

function listen(picture) {
  const {canvas} = picture, details = document.getElementById("details");
  let drag = null;
  const hide = () => {
    details.style.display = "none";
    if (picture.lit) { picture.lit = null; draw(picture); }
  };
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.002), geometry(picture).at(event.offsetX));
  }, {passive: false});
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    drag = {at: geometry(picture).at(event.offsetX)};
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("pointermove", event => {
    if (drag) {
      const shift = drag.at - geometry(picture).at(event.offsetX);
      return setView(view.from + shift, view.to + shift);
    }
    const found = spanAt(picture, event.offsetX, event.offsetY);
    if (!found) return hide();
    const {span, rank} = found, start = span.start - picture.trace.start;
    details.textContent = `${span.text}\n${rank.name}, step ${span.step}` +
        (span.stage < 0 ? "" : `, stage ${span.stage}`) +
        `\nfrom ${short(start)} to ${short(start + span.end - span.start)}` +
        ` (${short(span.end - span.start)})`;
    details.style.display = "block";
    const room = window.innerWidth - details.offsetWidth - 12;
    details.style.left = `${Math.min(event.clientX + 14, room)}px`;
    details.style.top = `${event.clientY + 16}px`;
    if (picture.lit !== span) { picture.lit = span; draw(picture); }
  });
}

function legendEntry(style, shades, words) {
  const canvas = document.createElement("canvas");
  canvas.width = shades.length > 1 ? 14 * shades.length : 24;
  canvas.height = 15;
  const c = canvas.getContext("2d"), w = canvas.width / shades.length;
  shades.forEach((shade, i) => drawBox(c, style, shade, i * w, 0, w, 15, ""));
  const entry = document.createElement("span");
  entry.append(canvas, ` ${words}`);
  document.getElementById("legend").append(entry);
}

function makeLegend() {
  const letters = new Set();
  for (const {ranks} of data.traces) {
    for (const {spans} of ranks) for (const span of spans) letters.add(span.letter);
  }
  for (const [letter, style] of Object.entries(data.styles)) {
    if (!letters.has(letter)) continue;
    legendEntry(style, [data.traces[0].shades[letter][0]], `${letter} ${style.name}`);
  }
  const forwards = data.traces.map(trace => trace.shades.F);
  const most = forwards.reduce((a, b) => a.length < b.length ? b : a, []);
  if (most.length > 1) legendEntry(data.styles.F, most, "chunks of a rank, first to last");
}

document.getElementById("all").addEventListener("click", () => setView(0, longest));
window.addEventListener("resize", () => pictures.forEach(draw));
window.addEventListener("keydown", event => {
  const length = view.to - view.from, middle = (view.from + view.to) / 2;
  if (event.key === "+") zoom(0.7, middle);
  if (event.key === "-") zoom(1 / 0.7, middle);
  if (event.key === "0") setView(0, longest);
  if (event.key === "ArrowLeft") setView(view.from - length / 5, view.to - length / 5);
  if (event.key === "ArrowRight") setView(view.from + length / 5, view.to + length / 5);
});
makeLegend();
data.traces.forEach(makePicture);
pictures.forEach(draw);
</script>
</body>
</html>
)html";

}  // namespace penstock::schedule
