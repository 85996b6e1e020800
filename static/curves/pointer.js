// @ts-check
// What pointer and keyboard do to a chart: a cursor that all charts share, the nearest values
// beside it, a zoom by dragging sideways, and the same with keys. A finger that moves up or
// down scrolls the page as ever; a tap sets the cursor.

import { announce, element } from "../dom.js";
import { formatCount, formatValue } from "./scale.js";
import { indexAt, nearest } from "./series.js";
import { sample } from "./colours.js";

// Fewer pixels are a click, not a zoom.
const LEAST_DRAG = { mouse: 5, pen: 8, touch: 24 };

export function listen(chart) {
  const { place, board } = chart;
  let drag = null;
  const pixelOf = (event) => event.clientX - place.getBoundingClientRect().left;
  const valueAt = (pixel) => {
    const { frame, x } = chart.scene.scales;
    return x.invert(Math.min(Math.max(pixel, frame.left), frame.right));
  };
  const ready = () => Boolean(chart.scene?.scales);

  place.addEventListener("pointermove", (event) => {
    if (!ready()) return;
    const pixel = pixelOf(event);
    if (drag) drag.to = pixel;
    board.setCursor(chart, valueAt(pixel), event.clientY - place.getBoundingClientRect().top);
  });
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !ready()) return;
    drag = { from: pixelOf(event), to: pixelOf(event), least: LEAST_DRAG[event.pointerType] ?? 8 };
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointerup", () => {
    const done = drag;
    drag = null;
    if (done && isZoom(done)) board.zoom(chart, [done.from, done.to].sort((a, b) => a - b).map(valueAt));
    chart.drawCursor();
  });
  place.addEventListener("pointercancel", () => {
    drag = null;
    chart.drawCursor();
  });
  // A finger that is lifted has left, and what it pointed at is still to be read.
  place.addEventListener("pointerleave", ({ pointerType }) => {
    if (!drag && pointerType !== "touch") board.setCursor(null);
  });
  place.addEventListener("dblclick", (event) => {
    event.preventDefault();
    board.zoom(chart, null);
  });
  place.addEventListener("blur", () => board.setCursor(null));
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !ready()) return;
    const done = KEYS[event.key]?.(chart, event);
    if (done !== undefined) event.preventDefault();
  });

  // The cursor is drawn on a canvas of its own: moving it repaints no curve.
  chart.drawCursor = () => {
    const context = chart.over.getContext("2d");
    const ratio = chart.over.width / Math.max(1, place.clientWidth);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, chart.over.width, chart.over.height);
    if (!ready()) return;
    if (drag && isZoom(drag)) shade(context, chart, drag);
    const { cursor } = board;
    const mine = cursor && cursor.unit === board.unitOf(chart) ? cursor : null;
    drawCursor(context, chart, mine);
  };
}

const isZoom = ({ from, to, least }) => Math.abs(to - from) >= least;

function shade(context, chart, drag) {
  const { frame } = chart.scene.scales;
  const [from, to] = [drag.from, drag.to]
    .map((pixel) => Math.min(Math.max(pixel, frame.left), frame.right))
    .sort((a, b) => a - b);
  context.fillStyle = context.strokeStyle = chart.board.palette.accent;
  context.globalAlpha = 0.15;
  context.fillRect(from, frame.top, to - from, frame.bottom - frame.top);
  context.globalAlpha = 1;
  for (const at of [from, to]) context.fillRect(Math.round(at), frame.top, 1, frame.bottom - frame.top);
}

function drawCursor(context, chart, cursor) {
  const { tip, board } = chart;
  const { frame, x, y } = chart.scene.scales;
  const at = cursor ? x.map(cursor.x) : NaN;
  chart.read = null;
  if (!(at >= frame.left - 1 && at <= frame.right + 1)) {
    tip.hidden = true;
    return;
  }
  context.strokeStyle = board.palette.cursor;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(Math.round(at) + 0.5, frame.top);
  context.lineTo(Math.round(at) + 0.5, frame.bottom);
  context.stroke();
  context.setLineDash([]);
  if (!y) {
    tip.hidden = true;
    return;
  }
  const lines = chart.lines.filter((line) => !board.isOff(line.key));
  const isMine = cursor.chart === chart;
  const { order, limit } = board.kept.get();
  const found = nearest(
    lines,
    cursor.x,
    y.map,
    isMine && cursor.y !== null ? cursor.y : frame.top,
    isMine ? limit : 3,
    order,
  );
  for (const { line, at: index, value } of found.near) {
    if (!(y.map(value) >= frame.top - 1 && y.map(value) <= frame.bottom + 1)) continue;
    context.fillStyle = board.palette[line.color];
    context.beginPath();
    context.arc(
      x.map(line.data.hasSmooth ? line.data.end[index] : line.data.x[index]),
      y.map(value),
      3,
      0,
      2 * Math.PI,
    );
    context.fill();
  }
  chart.read = { at: cursor.x, ...found };
  fillTip(chart, found, cursor, isMine);
  tip.hidden = found.near.length === 0;
  const left = at > (frame.left + frame.right) / 2;
  tip.classList.toggle("left", left);
  tip.style.left = left ? "" : `${Math.round(at + 10)}px`;
  tip.style.right = left ? `${Math.round(chart.place.clientWidth - at + 10)}px` : "";
}

// Where the cursor is, in words.
const placeOf = ({ board, about }, x) =>
  `${board.axisWord(about.unit)} ${board.sayPlace(board.view.x === "step" ? Math.round(x) : x)}`;

function fillTip(chart, { near, more }, cursor, isMine) {
  const rows = near.map(({ line, at, value }) => {
    const { data } = line;
    const range =
      data.points[at] > 1 && isMine ? ` (${formatValue(data.low[at])} … ${formatValue(data.high[at])})` : "";
    return element(
      "li",
      {},
      sample(line),
      element("bdi", {}, line.label),
      element("b", {}, formatValue(value)),
      range && element("small", {}, range),
    );
  });
  const head = element("p", {}, placeOf(chart, cursor.x));
  if (!isMine) head.hidden = true;
  chart.tip.replaceChildren(
    head,
    element("ul", {}, ...rows),
    ...(more > 0 && isMine ? [element("p", { class: "muted" }, `+ ${formatCount(more)} more`)] : []),
  );
}

// Moves the cursor by `by` places of the line that has most of them.
function move(chart, by) {
  const { board } = chart;
  const lines = chart.lines.filter((line) => !board.isOff(line.key) && line.data.count > 0);
  if (lines.length === 0) return true;
  const { data } = lines.reduce((most, line) => (line.data.count > most.data.count ? line : most));
  const { cursor } = board;
  const here = cursor?.chart === chart ? indexAt(data, cursor.x) : by > 0 ? -1 : data.count;
  // What a logarithmic axis has no place for is not read.
  const first =
    chart.scene.scales.x.kind === "log"
      ? Math.max(
          data.x.findIndex((x) => x > 0),
          0,
        )
      : 0;
  const at = Math.min(Math.max(here + by, first), data.count - 1);
  board.setCursor(chart, data.x[at], null);
  chart.drawCursor();
  say(chart);
  return true;
}

// Reads the values at the cursor aloud.
function say(chart) {
  const { read } = chart;
  if (!read || read.near.length === 0) return;
  const values = read.near
    .map(({ line, value }) => `${line.label} ${Number.isNaN(value) ? "no value" : formatValue(value)}`)
    .join(", ");
  announce(`${placeOf(chart, read.at)}: ${values}${read.more > 0 ? `, and ${read.more} more` : ""}`);
}

// Zooms around the cursor, or around the middle.
function zoomBy(chart, factor) {
  const { frame, x } = chart.scene.scales;
  const cursor = chart.board.cursor?.chart === chart ? x.map(chart.board.cursor.x) : NaN;
  const middle = Number.isNaN(cursor) ? (frame.left + frame.right) / 2 : cursor;
  chart.board.zoom(
    chart,
    [frame.left, frame.right].map((edge) => x.invert(middle + (edge - middle) * factor)),
  );
  return true;
}

const KEYS = {
  ArrowLeft: (chart, { shiftKey }) => move(chart, shiftKey ? -10 : -1),
  ArrowRight: (chart, { shiftKey }) => move(chart, shiftKey ? 10 : 1),
  Home: (chart) => move(chart, -Infinity),
  End: (chart) => move(chart, Infinity),
  "+": (chart) => zoomBy(chart, 0.5),
  "=": (chart) => zoomBy(chart, 0.5),
  "-": (chart) => zoomBy(chart, 2),
  Escape: (chart) => {
    chart.board.zoom(chart, null);
    return true;
  },
};
