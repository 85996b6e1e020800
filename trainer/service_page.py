"""The page of a model service: images are chosen or dropped, and each is shown with its prediction, boxes or
mask drawn over it. It looks like the portal, in both themes, and everything that it needs is in it.
"""

from __future__ import annotations

import html
import json
from typing import Any

_RUNTIMES = {"onnx": "ONNX Runtime", "keras": "Keras"}


def page(about: dict[str, Any], base: str) -> str:
    """Addresses are relative: it does not matter where it is seen."""
    size = about["input"]
    words = {
        "NAME": about["name"],
        "TASK": about["task"],
        "CLASSES": str(len(about["classes"])),
        "SIZE": f"{size['width']} × {size['height']} × {size['channels']}",
        "SNAPSHOT": about["snapshot"],
        "RUNTIME": _RUNTIMES[about["runtime"]],
        "PROVIDER": about["provider"],
        "BATCH": str(about["batch"]),
        "BASE": base,
    }
    text = _PAGE
    for name, word in words.items():
        text = text.replace(f"[[{name}]]", html.escape(str(word)))
    # In a script nothing may end it, whatever a class is called.
    data = json.dumps({"classes": about["classes"], "input": size, "task": about["task"]}).replace("<", "\\u003c")
    return text.replace("[[DATA]]", data)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>[[NAME]] · Model service</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark;
  --bg: light-dark(#f6f7f9, #0f1217); --panel: light-dark(#ffffff, #171b22); --sunk: light-dark(#eef0f3, #1f242d);
  --line: light-dark(#dfe3e8, #2a313c); --line-strong: light-dark(#b9c0ca, #434d5b);
  --text: light-dark(#1b2028, #e6e9ee); --muted: light-dark(#566070, #a5afbd);
  --accent: light-dark(#3651d4, #93a5ff); --accent-ink: light-dark(#ffffff, #0f1217);
  --ok: light-dark(#116a50, #5fd3a6); --ok-soft: light-dark(#def3ea, #12332a); --bad: light-dark(#b3261e, #ff8f86);
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace }
* { box-sizing: border-box }
body { margin: 0; background: var(--bg); color: var(--text); font: 14px/1.45 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
header { background: var(--panel); border-bottom: 1px solid var(--line); padding: 12px 28px; display: flex; flex-wrap: wrap; gap: 6px 12px; align-items: center }
main { padding: 20px 28px 48px; max-width: 1240px }
h1 { font-size: 20px; line-height: 1.3; margin: 0; font-weight: 650 } h2 { font-size: 15px; margin: 26px 0 10px }
.chip { border: 1px solid var(--line); border-radius: 5px; padding: 0 6px; font-size: 12.5px; color: var(--muted); background: var(--sunk) }
.state { border-radius: 999px; padding: 1px 9px; font-size: 12.5px; font-weight: 600; color: var(--ok); background: var(--ok-soft) }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px 20px; margin: 0 } dd { margin: 0 } dt { color: var(--muted); font-size: 12.5px }
.drop { border: 1px dashed var(--line-strong); text-align: center; padding: 22px 16px; margin: 14px 0 } .drop.over { border-color: var(--accent) }
.drop input { position: absolute; opacity: 0; width: 1px; height: 1px }
.btn { display: inline-block; border-radius: 6px; padding: 6px 16px; background: var(--accent); color: var(--accent-ink); font-weight: 600; cursor: pointer }
input:focus-visible + .btn { outline: 2px solid var(--accent); outline-offset: 2px }
.muted, .hint { color: var(--muted) } .hint { font-size: 12.5px; margin: 6px 0 0 } .bad { color: var(--bad) }
#answers { list-style: none; padding: 0; margin: 0; display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); gap: 14px }
#answers .stage { position: relative; background: var(--sunk); border-radius: 6px; overflow: hidden } canvas { display: block; width: 100%; image-rendering: pixelated }
#answers svg { position: absolute; inset: 0; width: 100%; height: 100% } rect { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke } svg text { fill: #fff; stroke: #000c; stroke-width: .18em; paint-order: stroke; font-weight: 600 }
.below { display: none }
#answers h3 { font-size: 13px; margin: 0 0 8px; font-weight: 600 }
table { border-collapse: collapse; width: 100%; margin-top: 8px } td, th { padding: 3px 8px 3px 0; text-align: left; font-weight: 400; vertical-align: middle } td:first-of-type { width: 50% } td:last-child { text-align: right; white-space: nowrap } meter { width: 100%; height: 12px }
.legend { display: flex; flex-wrap: wrap; gap: 4px 14px; list-style: none; padding: 0; margin: 8px 0 0; font-size: 12.5px } .swatch { width: 10px; height: 10px; border-radius: 2px; display: inline-block; margin-right: 5px; vertical-align: 0 }
.slider { display: flex; gap: 8px; align-items: center; flex-wrap: wrap } .slider[hidden] { display: none }
pre { white-space: pre-wrap; margin: 0; font: 12.9px/1.5 var(--mono) }
@media (max-width: 640px) { header, main { padding-left: 12px; padding-right: 12px } dl { grid-template-columns: repeat(2, minmax(0, 1fr)) } }
</style></head><body>
<header><h1>[[NAME]]</h1><span class="state">serving</span><span class="chip">[[TASK]]</span></header>
<main>
<dl class="panel">
<div><dt>Checkpoint</dt><dd>[[SNAPSHOT]]</dd></div><div><dt>Classes</dt><dd>[[CLASSES]]</dd></div><div><dt>Input</dt><dd>[[SIZE]]</dd></div>
<div><dt>Computed by</dt><dd>[[RUNTIME]], [[PROVIDER]]</dd></div><div><dt>Batching</dt><dd>up to [[BATCH]] requests</dd></div>
<div><dt>Latency, last minute</dt><dd id="latency">–</dd></div><div><dt>Rate</dt><dd id="rate">–</dd></div><div><dt>Requests</dt><dd id="requests">–</dd></div>
</dl>
<div class="panel drop" id="drop"><label><input type="file" accept="image/*" id="picture" multiple aria-label="Images"><span class="btn">Choose images</span></label><p class="hint">or drop them here</p></div>
<p class="slider" hidden><label for="score">Minimum score</label><input type="range" id="score" min="5" max="100" value="30"><output id="least">0.30</output></p>
<ul id="answers" aria-live="polite"></ul>
<h2>From a program</h2>
<pre class="panel">curl -H "Authorization: Bearer $LYCEUM_TOKEN" --data-binary @picture.png "$LYCEUM_URL[[BASE]]/predict?top=3"</pre>
</main>
<script type="application/json" id="model">[[DATA]]</script>
<script>
const COLOURS = ["#4e79a7", "#f28e2b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f", "#bab0ac"];
const here = location.href.replace(/[?#].*/, "").replace(/\\/?$/, "/");
const { classes, input, task } = JSON.parse(document.getElementById("model").textContent);
const answers = document.getElementById("answers"), score = document.getElementById("score");
const colour = (name) => COLOURS[Math.max(0, classes.indexOf(name)) % COLOURS.length];
const make = (name, text, parent) => { const one = document.createElement(name); if (text != null) one.textContent = text; parent?.append(one); return one; };
const draw = (name, about, parent) => { const one = document.createElementNS("http://www.w3.org/2000/svg", name); for (const key in about) one.setAttribute(key, about[key]); parent.append(one); return one; };

// The picture as the model sees it, which is what boxes and masks refer to.
function resized(bitmap) {
  const along = input.width / bitmap.width, across = input.height / bitmap.height;
  const [x, y] = { squash: [along, across], crop: Array(2).fill(Math.max(along, across)), fill: Array(2).fill(Math.min(along, across)) }[input.resize] ?? Array(2).fill((along + across) / 2);
  const canvas = make("canvas"), zoom = Math.max(1, Math.ceil(300 / Math.max(input.width, input.height)));
  [canvas.width, canvas.height] = [input.width * zoom, input.height * zoom];
  const paper = canvas.getContext("2d"), width = bitmap.width * x * zoom, height = bitmap.height * y * zoom;
  paper.drawImage(bitmap, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
  return canvas;
}

async function cover(canvas, mask) {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${mask}`)).blob());
  const sheet = make("canvas");
  [sheet.width, sheet.height] = [bitmap.width, bitmap.height];
  const paper = sheet.getContext("2d", { willReadFrequently: true });
  paper.drawImage(bitmap, 0, 0);
  const pixels = paper.getImageData(0, 0, sheet.width, sheet.height);
  for (let at = 0; at < pixels.data.length; at += 4) {
    const paint = COLOURS[pixels.data[at] % COLOURS.length];
    for (const side of [0, 1, 2]) pixels.data[at + side] = parseInt(paint.slice(1 + 2 * side, 3 + 2 * side), 16);
    pixels.data[at + 3] = 150;
  }
  paper.putImageData(pixels, 0, 0);
  const over = canvas.getContext("2d");
  over.imageSmoothingEnabled = false;
  over.drawImage(sheet, 0, 0, canvas.width, canvas.height);
}

function boxes(stage, found) {
  const svg = draw("svg", { viewBox: `0 0 ${input.width} ${input.height}`, role: "img", "aria-label": "Detected objects" }, stage);
  const font = input.height * 11 / 300;
  // The surest is drawn last, over the others.
  for (const one of [...found].reverse()) {
    const group = draw("g", { "data-score": one.score }, svg);
    draw("rect", { x: one.x, y: one.y, width: one.width, height: one.height, stroke: colour(one.class) }, group);
    const above = one.y - 0.25 * font;
    draw("text", { x: one.x, y: above < font ? one.y + font : above, "font-size": font }, group).textContent = `${one.class} ${one.score.toFixed(2)}`;
  }
}

function table(place, rows) {
  const list = make("table", null, place);
  for (const [name, value] of rows) {
    const row = list.insertRow();
    if (task === "detection") row.dataset.score = value;
    make("th", name, row).scope = "row";
    const meter = make("meter", null, row.insertCell());
    meter.value = value;
    meter.setAttribute("aria-label", name);
    row.insertCell().textContent = `${(100 * value).toFixed(1)} %`;
  }
}

function limit() {
  const least = Number(score.value) / 100;
  document.getElementById("least").textContent = least.toFixed(2);
  for (const one of document.querySelectorAll("[data-score]")) one.classList.toggle("below", Number(one.dataset.score) < least);
  for (const one of answers.children) {
    const nothing = one.querySelector(".nothing");
    if (nothing) nothing.hidden = one.querySelector("[data-score]:not(.below)") !== null;
  }
}
score.addEventListener("input", limit);

async function ask(file) {
  const item = make("li");
  item.className = "panel";
  answers.prepend(item);
  make("h3", file.name, item);
  const stage = make("div", null, item), says = make("p", "Computing…", item);
  stage.className = "stage";
  says.className = "hint";
  try {
    const bitmap = await createImageBitmap(file).catch(() => null);
    const canvas = bitmap && resized(bitmap);
    if (canvas) { stage.append(canvas); canvas.setAttribute("role", "img"); canvas.setAttribute("aria-label", file.name); }
    const answer = await fetch(`${here}predict?top=5&score=0.05`, { method: "POST", body: file });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.detail);
    if (said.top) table(item, said.top.map((one) => [one.class, one.probability]));
    if (said.boxes) {
      document.querySelector(".slider").hidden = false;
      boxes(stage, said.boxes);
      const nothing = make("p", "Nothing was detected.", item);
      nothing.className = "nothing muted";
      table(item, said.boxes.map((one) => [one.class, one.score]));
      limit();
    }
    if (said.mask && canvas) {
      await cover(canvas, said.mask);
      const legend = make("ul", null, item);
      legend.className = "legend";
      for (const [name, share] of Object.entries(said.share).sort((one, other) => other[1] - one[1])) {
        if (!share) continue;
        const line = make("li", null, legend), swatch = make("span", null, line);
        swatch.className = "swatch";
        swatch.style.background = colour(name);
        line.append(`${name} ${(100 * share).toFixed(1)} %`);
      }
    }
    says.textContent = `${said.milliseconds.toFixed(1)} ms${said.batch > 1 ? `, in a batch of ${said.batch}` : ""}`;
    item.append(says);
  } catch (error) {
    says.className = "bad";
    says.textContent = `Prediction failed: ${error.message}`;
  }
  statistics();
}

const choose = (files) => Promise.all([...files].map(ask));
document.getElementById("picture").addEventListener("change", (event) => choose(event.target.files));
const drop = document.getElementById("drop");
for (const kind of ["dragover", "dragleave", "drop"]) drop.addEventListener(kind, (event) => {
  event.preventDefault();
  drop.classList.toggle("over", kind === "dragover");
  if (kind === "drop") choose(event.dataTransfer.files);
});

async function statistics() {
  const said = await fetch(`${here}stats`).then((answer) => answer.json()).catch(() => null);
  if (!said) return;
  const time = (number) => `${number.toFixed(1)} ms`;
  document.getElementById("latency").textContent = said.latency_ms == null ? "–" : `${time(said.latency_ms)}, 95 %: ${time(said.latency_95_ms)}`;
  document.getElementById("rate").textContent = `${said.per_second.toFixed(1)} requests/s`;
  document.getElementById("requests").textContent = `${said.requests}${said.failed ? `, ${said.failed} failed` : ""}`;
}
statistics();
setInterval(() => { if (!document.hidden) statistics(); }, 5000);
</script></body></html>
"""
