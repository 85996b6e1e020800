// @ts-check
// A chart as a list of shapes in pixels: axes, bands, lines, marks, words. It is made of plain
// numbers, so that the canvas, the SVG that is saved and the tests have the same picture.
// Colours are names (`text`, `line`, `c1` …) which the painters know.

import {
  formatElapsed,
  formatMoment,
  formatStep,
  formatTick,
  formatValue,
  logTicks,
  scale,
  ticks,
  timeTicks,
} from "./scale.js";
import { ahead, bestPlace, extent, span, spanAhead } from "./series.js";
import { isLogX } from "./view.js";

// The bands of more lines than this would hide the lines.
const MANY = 8;
// The values of more single points than this would hide one another.
const NAMED = 4;
/** In pixels. @type {{ top: number, right: number, bottom: number, left: number }} */
export const MARGIN = Object.freeze({ top: 8, right: 10, bottom: 22, left: 48 });
// The width of a letter of the labels (pixels), and the most that labels of the y axis take.
const LETTER = 6.4;
const MAX_LEFT = 120;

// The scales of a chart: `frame` in pixels, x and y. `null` where nothing can be drawn.
export function scalesOf(chart) {
  const { width, height, lines, view } = chart;
  /** @type {Record<string, number>} */
  const frame = {
    left: MARGIN.left,
    top: MARGIN.top,
    right: Math.max(width - MARGIN.right, MARGIN.left + 20),
    bottom: height - MARGIN.bottom,
  };
  const whole = chart.domain ?? span(lines);
  if (!whole) return null;
  const domain = isLogX(view) ? spanAhead(lines, whole) : whole;
  if (!domain) return { frame, x: scale("linear", whole, [frame.left, frame.right]), y: null, clipped: 0 };
  const { range, clipped } = extent(lines, domain, { clip: view.clip, log: view.log });
  if (!range) return { frame, x: scale("linear", domain, [frame.left, frame.right]), y: null, clipped };
  const y = scale(view.log ? "log" : "linear", byHand(padded(range, view.log), chart.range, view.log), [
    frame.bottom,
    frame.top,
  ]);
  // Numbers that differ far behind the point need room for all their digits.
  const letters = Math.max(...yMarks(y, frame).map(({ text }) => text.length), 0);
  frame.left = Math.min(Math.max(MARGIN.left, Math.ceil(letters * LETTER) + 10), MAX_LEFT, frame.right - 20);
  return {
    frame,
    x: scale(isLogX(view) ? "log" : "linear", domain[0] === domain[1] ? [domain[0] - 0.5, domain[1] + 0.5] : domain, [
      frame.left,
      frame.right,
    ]),
    y,
    clipped,
  };
}

// The ends that were set by hand, where the axis has a place for them.
/** @type {(range: number[], ends: any, log: boolean) => number[]} */
function byHand([low, high], [from, to] = [null, null], log = false) {
  const [bottom, top] = [from ?? low, to ?? high];
  return bottom < top && (!log || bottom > 0) ? [bottom, top] : [low, high];
}

// A little air above and below; zero stays the floor of what is never below it and begins near it.
/** @type {(range: any, log: boolean) => number[]} */
function padded([low, high], log) {
  if (log) {
    const share = low === high ? 2 : (high / low) ** 0.04;
    return [low / share, high * share];
  }
  const air = low === high ? Math.abs(low) * 0.1 || 1 : (high - low) * 0.05;
  const floor = low >= 0 && low - air < 0 ? 0 : low - air;
  return [floor, high + air];
}

// All shapes, from the back to the front. `chart` is {width, height, lines, view, domain?, rule,
// marks?}; a line is {data, color, dash, role, faded?}.
export function sceneOf(chart) {
  if (isLogX(chart.view)) chart = { ...chart, lines: ahead(chart.lines) };
  const scales = scalesOf(chart);
  const shapes = [];
  const scene = { width: chart.width, height: chart.height, shapes, scales };
  if (!scales) return scene;
  axes(shapes, chart, scales);
  if (!scales.y) return scene;
  const { x, y, frame } = scales;
  for (const at of chart.marks?.attempts ?? []) rule(shapes, x.map(at), frame, "attempt");
  for (const at of chart.marks?.checkpoints ?? []) rule(shapes, x.map(at), frame, "checkpoint");
  const strong = (line) => (line.strong ? 1 : 0);
  const ordered = [...chart.lines].sort((a, b) => strong(a) - strong(b));
  for (const line of ordered) band(shapes, line, x, y, frame, ordered.length > MANY ? 0.08 : 0.2);
  for (const line of ordered) {
    const { data } = line;
    const opacity = line.faded ? 0.25 : 1;
    if (data.hasSmooth) shapes.push(path(line, data.x, data.mean, x, y, { width: 1, opacity: 0.35 * opacity }));
    const [xs, ys] = data.hasSmooth ? [data.end, data.smooth] : [data.x, data.mean];
    shapes.push(path(line, xs, ys, x, y, { width: line.strong ? 2.6 : 1.7, opacity }));
    const alone = single(ys, data.count);
    if (alone !== null)
      level(shapes, line, [xs[alone], ys[alone]], scales, opacity, ordered.filter(isSingle).length <= NAMED);
    else
      for (const dot of lonely(xs, ys, data.count))
        shapes.push({
          kind: "dot",
          clip: true,
          x: x.map(xs[dot]),
          y: y.map(ys[dot]),
          radius: 2,
          fill: line.color,
          opacity,
        });
  }
  for (const line of ordered) nonfiniteMarks(shapes, chart, line, scales);
  if (chart.rule)
    for (const line of ordered.filter((line) => !line.faded && !isSingle(line))) bestMark(shapes, chart, line, scales);
  return scene;
}

function axes(shapes, chart, { x, y, frame }) {
  const columns = Math.max(2, Math.floor((frame.right - frame.left) / 90));
  for (const { value, text } of y ? yMarks(y, frame) : []) {
    const at = y.map(value);
    shapes.push({ kind: "rule", points: [frame.left, at, frame.right, at], stroke: "grid" });
    shapes.push({ kind: "text", x: frame.left - 6, y: at + 4, anchor: "end", text });
  }
  shapes.push({ kind: "rule", points: [frame.left, frame.bottom, frame.right, frame.bottom], stroke: "axis" });
  if (chart.axis)
    shapes.push({ kind: "text", x: 2, y: frame.bottom + 15, anchor: "start", text: chart.axis, fill: "faint" });
  for (const { at, text } of xMarks(chart.view.x, x.domain, columns, x.kind === "log")) {
    const place = x.map(at);
    const anchor = place > frame.right - 18 ? "end" : place < frame.left + 12 ? "start" : "middle";
    shapes.push({ kind: "text", x: anchor === "end" ? frame.right : place, y: frame.bottom + 15, anchor, text });
  }
}

// The marks of the y axis, with their words.
function yMarks(y, frame) {
  const rows = Math.max(2, Math.floor((frame.bottom - frame.top) / 29));
  const marks = (y.kind === "log" ? logTicks : ticks)(...y.domain, rows);
  // Between marks that are not powers of ten and their like, the labels need more digits.
  const apart =
    y.kind === "log" && marks.every((mark) => /^[125]e/.test(mark.toExponential()))
      ? 0
      : marks.length > 1
        ? marks[1] - marks[0]
        : 0;
  return marks.map((value) => ({ value, text: formatTick(value, apart || value) }));
}

// The marks of the x axis, with their words.
export function xMarks(kind, [from, to], count, isLog = false) {
  if (isLog) {
    const marks = logTicks(from, to, count).filter((at) => kind !== "step" || Number.isInteger(at) || to - from < 2);
    return marks.map((at) => ({ at, text: kind === "step" ? formatStep(at) : formatElapsed(at) }));
  }
  if (kind === "wall") {
    const shift = -new Date(from * 1000).getTimezoneOffset() * 60;
    return timeTicks(from, to, count, shift).map((at) => ({ at, text: formatMoment(at, to - from) }));
  }
  if (kind === "relative") return timeTicks(from, to, count).map((at) => ({ at, text: formatElapsed(at) }));
  if (kind === "metric") {
    const marks = ticks(from, to, count);
    return marks.map((at) => ({ at, text: formatTick(at, marks.length > 1 ? marks[1] - marks[0] : at) }));
  }
  return ticks(from, to, count)
    .filter((at) => Number.isInteger(at) || to - from < 2)
    .map((at) => ({ at, text: formatStep(at) }));
}

// Between the least and the greatest of each bucket, where they differ.
function band(shapes, { data, color, faded }, x, y, frame, opacity) {
  let [upper, lower, differs] = [[], [], false];
  const finish = () => {
    if (differs) {
      const style = { clip: true, opacity: faded ? 0.05 : opacity };
      // The edge of a spike that is one pixel wide is all that there is to see of it.
      shapes.push({ kind: "area", ...style, points: [...upper, ...lower.reverse().flat()], fill: color });
      shapes.push({ kind: "line", ...style, opacity: style.opacity * 2, points: [...upper], stroke: color, width: 1 });
    }
    [upper, lower, differs] = [[], [], false];
  };
  for (let at = 0; at < data.count; at += 1) {
    const high = y.map(data.high[at]);
    if (Number.isNaN(high)) {
      finish();
      continue;
    }
    const low = y.map(data.low[at]);
    const place = x.map(data.x[at]);
    upper.push(place, high);
    // What is below everything that a logarithmic axis shows ends at its floor.
    lower.push([place, Number.isNaN(low) ? frame.bottom : low]);
    differs ||= !(low === high);
  }
  finish();
}

// A line with a break at each NaN, thinned to what the pixels can show.
function path(line, xs, ys, x, y, style) {
  const points = [];
  for (let at = 0; at < line.data.count; at += 1) {
    const place = y.map(ys[at]);
    points.push(Number.isNaN(place) ? NaN : x.map(xs[at]), place);
  }
  return { kind: "line", clip: true, points, stroke: line.color, dash: line.dash, ...style };
}

// The place of the only value that there is to draw, or null.
function single(ys, count) {
  let found = null;
  for (let at = 0; at < count; at += 1) {
    if (Number.isNaN(ys[at])) continue;
    if (found !== null) return null;
    found = at;
  }
  return found;
}

const isSingle = ({ data }) => single(data.hasSmooth ? data.smooth : data.mean, data.count) !== null;

// One value is no curve: a dashed line from its large dot to both ends of the chart says at what height it stands.
function level(shapes, line, [at, value], { x, y, frame }, opacity, isNamed) {
  const [px, py] = [x.map(at), y.map(value)];
  if (Number.isNaN(py)) return;
  shapes.push({
    kind: "line",
    clip: true,
    points: [frame.left, py, frame.right, py],
    stroke: line.color,
    dash: [3, 5],
    width: 1,
    opacity: 0.6 * opacity,
  });
  shapes.push({ kind: "dot", clip: true, x: px, y: py, radius: 4.5, fill: line.color, opacity });
  if (isNamed && px >= frame.left && px <= frame.right) {
    const left = px > (frame.left + frame.right) / 2;
    shapes.push({
      kind: "text",
      x: px + (left ? -9 : 9),
      y: py - 7,
      anchor: left ? "end" : "start",
      text: formatValue(value),
      fill: "text",
      bold: true,
    });
  }
}

// Points without a neighbour, which a line would not show.
function lonely(xs, ys, count) {
  const found = [];
  for (let at = 0; at < count; at += 1) {
    if (Number.isNaN(ys[at])) continue;
    const alone = (other) => other < 0 || other >= count || Number.isNaN(ys[other]);
    if (alone(at - 1) && alone(at + 1)) found.push(at);
  }
  return found;
}

function rule(shapes, at, frame, what) {
  if (!(at >= frame.left && at <= frame.right)) return;
  shapes.push({
    kind: "rule",
    points: [at, frame.top, at, frame.bottom],
    stroke: what,
    dash: what === "attempt" ? [6, 3] : [2, 4],
  });
  shapes.push(
    what === "attempt"
      ? { kind: "text", x: at + 3, y: frame.top + 10, anchor: "start", text: "↻" }
      : { kind: "mark", shape: "diamond", x: at, y: frame.top + 4, fill: "checkpoint" },
  );
}

// What is not a number stands on the floor, infinities at the edge they point to.
function nonfiniteMarks(shapes, chart, line, { x, frame }) {
  let before = -Infinity;
  for (const { step, wall_time, value } of line.data.nonfinite) {
    const at = x.map(chart.placeOf ? chart.placeOf(line, step, wall_time) : step);
    if (!(at >= frame.left - 0.5 && at <= frame.right + 0.5) || at - before < 9) continue;
    before = at;
    const top = value === "Infinity";
    shapes.push({
      kind: "mark",
      shape: top ? "up" : value === "-Infinity" ? "down" : "cross",
      x: at,
      y: top ? frame.top + 5 : frame.bottom - 5,
      fill: "bad",
      stroke: line.color,
    });
  }
}

function bestMark(shapes, chart, { data, color }, { x, y, frame }) {
  const found = bestPlace(data, chart.rule);
  if (!found) return;
  const [px, py] = [x.map(found.x), y.map(found.y)];
  if (!(px >= frame.left - 1 && px <= frame.right + 1) || !(py >= frame.top - 1 && py <= frame.bottom + 1)) return;
  shapes.push({ kind: "ring", x: px, y: py, radius: 4, stroke: color });
}
