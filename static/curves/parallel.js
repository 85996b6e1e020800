// @ts-check
// Parallel coordinates: an axis for each hyper-parameter that differs and one for the result; a
// run is a line across them. Dragging along an axis writes bounds into the filter, so several
// axes narrow together, the address holds it, and the keyboard has the same in words.

import { element } from "../dom.js";
import { svgElement } from "./compare.js";
import { rangeIn, withRange } from "./results.js";
import { formatValue, scale } from "./scale.js";

const HEIGHT = 230,
  TOP = 26,
  BOTTOM = 18,
  SIDE = 46;
const LEAST_DRAG = 4;

export function makeParallel(board) {
  const svg = svgElement("svg", {
    class: "parallel",
    role: "img",
    "aria-label": "Parallel coordinates of hyperparameters and results. The table has the same values.",
  });
  const hint = element(
    "p",
    { class: "hint" },
    "Drag along an axis to select a range; click the axis to clear it. The filter above contains the same condition.",
  );
  const figure = element(
    "figure",
    { class: "curve panel wide" },
    element("figcaption", {}, element("h3", {}, "Parallel coordinates")),
    svg,
    hint,
  );
  let last = null;
  new ResizeObserver(() => {
    if (last) draw(...last);
  }).observe(figure);

  function show(columns, rows, kept, parts) {
    last = [columns.slice(-8), rows, kept, parts];
    draw(...last);
  }

  function draw(columns, rows, kept, parts) {
    const width = Math.max(260, figure.clientWidth - 26);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
    const axes = columns.map((column, at) =>
      axisOf(column, rows, SIDE + (at * (width - 2 * SIDE)) / Math.max(1, columns.length - 1)),
    );
    const inside = new Set(kept);
    const lines = [...rows]
      .sort((a, b) => Number(inside.has(a)) - Number(inside.has(b)))
      .map((row) => {
        const points = axes.map((axis) => [axis.x, axis.place(row.cells.get(axis.key))]);
        let d = "";
        for (const [at, [x, y]] of points.entries())
          if (y !== null) d += `${at > 0 && points[at - 1][1] !== null ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        const { color, dash } = parts.get(row.source);
        const isOn = inside.has(row) && !board.view.off.includes(row.id);
        const path = svgElement(
          "path",
          { d, class: `${color}${isOn ? "" : " out"}`, "stroke-dasharray": dash.length ? dash.join(" ") : null },
          svgElement("title", {}, row.name),
        );
        path.addEventListener("pointerenter", () => board.highlight(row.id));
        path.addEventListener("pointerleave", () => board.highlight(null));
        return path;
      });
    svg.replaceChildren(...lines, ...axes.map((axis, at) => drawAxis(axis, at, axes.length)));
  }

  function drawAxis(axis, at, count) {
    const anchor = at === 0 ? "start" : at === count - 1 ? "end" : "middle";
    const group = svgElement("g", { class: "axis" });
    const text = (y, words, name) =>
      svgElement(
        "text",
        {
          x: anchor === "start" ? 2 : anchor === "end" ? axis.x + SIDE - 2 : axis.x,
          y,
          "text-anchor": anchor,
          class: name ?? null,
        },
        words,
      );
    group.append(
      svgElement("path", { d: `M${axis.x} ${TOP}V${HEIGHT - BOTTOM}` }),
      text(12, shorten(axis.label), "name"),
    );
    for (const { y, words } of axis.marks)
      group.append(
        svgElement(
          "text",
          {
            x: axis.x + (at === count - 1 ? -6 : 6),
            y: y + 4,
            "text-anchor": at === count - 1 ? "end" : "start",
            class: "mark",
          },
          shorten(words),
        ),
      );
    const range = axis.numeric ? rangeIn(board.view.where, axis.label) : null;
    if (range) {
      const [low, high] = range.map((value) => axis.pixel(value));
      group.append(
        svgElement("rect", {
          class: "brush",
          x: axis.x - 7,
          width: 14,
          y: high,
          height: Math.max(2, low - high),
          rx: 3,
        }),
      );
    }
    const grip = svgElement("rect", {
      class: "grip",
      x: axis.x - 14,
      y: TOP - 6,
      width: 28,
      height: HEIGHT - TOP - BOTTOM + 12,
    });
    brush(grip, axis);
    group.append(grip);
    return group;
  }

  function brush(grip, axis) {
    let from = null;
    const y = (event) =>
      ((event.clientY - svg.getBoundingClientRect().top) * HEIGHT) / svg.getBoundingClientRect().height;
    grip.addEventListener("pointerdown", (event) => {
      from = y(event);
      grip.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    grip.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const [high, low] = [from, y(event)].sort((a, b) => a - b);
      from = null;
      const isPress = low - high < LEAST_DRAG;
      const range = axis.numeric
        ? isPress
          ? null
          : [axis.value(low), axis.value(high)]
        : axis.pick(high, low, isPress);
      board.setView({ ...board.view, where: withRange(board.view.where, axis.label, range) });
    });
  }
  return { figure, show };
}

const shorten = (words) => (words.length > 16 ? `…${words.slice(-15)}` : words);

// Numbers on a line or, where they span decades, on a logarithm; words at equal distances.
function axisOf(column, rows, x) {
  const values = rows.map((row) => row.cells.get(column.key)).filter((value) => value !== null && value !== undefined);
  const ends = [HEIGHT - BOTTOM, TOP];
  if (!column.numeric) {
    const words = [...new Set(values.map(String))].sort();
    const y = (word) =>
      words.length < 2
        ? (ends[0] + ends[1]) / 2
        : ends[0] + (words.indexOf(word) / (words.length - 1)) * (ends[1] - ends[0]);
    return {
      ...column,
      x,
      place: (value) => (value === null || value === undefined ? null : y(String(value))),
      marks: words.slice(0, 12).map((words) => ({ y: y(words), words })),
      // The one word that was pressed or brushed; several at once are not said in one comparison.
      pick: (high, low) => {
        const hit = words.filter((word) => y(word) >= high - 8 && y(word) <= low + 8);
        return hit.length === 1 ? hit[0] : null;
      },
    };
  }
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const kind = low > 0 && high / low >= 30 ? "log" : "linear";
  const own = scale(kind, [low, high], ends);
  return {
    ...column,
    x,
    place: (value) => (value === null || value === undefined ? null : own.map(value)),
    marks: [low, ...(low < high ? [own.invert((ends[0] + ends[1]) / 2), high] : [])].map((value) => ({
      y: own.map(value),
      words: formatValue(Number(value.toPrecision(3))),
    })),
    value: (pixel) => own.invert(Math.min(Math.max(pixel, ends[1]), ends[0])),
    pixel: (value) =>
      Math.min(
        Math.max(value === -Infinity ? ends[0] : value === Infinity ? ends[1] : own.map(value), ends[1]),
        ends[0],
      ),
  };
}
