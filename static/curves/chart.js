// @ts-check
// One chart on the page: its picture on a canvas, what is written around it, its legend. What
// pointer and keyboard do to it is in pointer.js; what it shows comes from the board.

import { element } from "../dom.js";
import { MANY, sample } from "./colours.js";
import { BEST_RULE, bestOf } from "./tags.js";
import { formatCount, formatStep, formatValue } from "./scale.js";
import { behind, best, nonPositive, shown } from "./series.js";
import { isLogX } from "./view.js";
import { paintCanvas } from "./paint.js";
import { sceneOf } from "./scene.js";
import { listen } from "./pointer.js";
import { menu } from "./menu.js";

// `about` is a chart of tags.js whose parts have {key, label, color, dash, source, run, tag} and
// the summary of all their points. `board` has view, palette, and what a chart tells it.
export function makeChart(about, board) {
  const place = element("div", { class: "place", tabindex: "0", role: "application", "aria-roledescription": "chart" });
  const [under, over] = ["picture", "cursor"].map((name) => element("canvas", { class: name, "aria-hidden": "true" }));
  const tip = element("div", { class: "tip", "aria-hidden": "true", hidden: true });
  place.append(under, over, tip);
  const title = element("h3", { title: about.name.slice(0, 1000) }, element("bdi", {}, about.title));
  const now = element("span", { class: "now" });
  const star = element("span", { class: "star", title: BEST_RULE });
  const marks = element("span", { class: "star", hidden: true });
  const badges = element("p", { class: "badges" });
  const legend = element("ul", { class: "keys" });
  // Of many lines the legend is folded, and empty until somebody opens it.
  const fold = element("details", { class: "fold", hidden: true }, element("summary", {}));
  const table = element("details", { class: "as-table" }, element("summary", {}, "As a table"));
  const chart = {
    about,
    board,
    place,
    under,
    over,
    tip,
    table,
    figure: element("figure", { class: "curve panel", "data-chart": about.id }),
    rule: bestOf(about.name),
    single: [],
    lines: [],
    domain: null,
    scene: null,
    near: false,
    stale: true,
    failed: null,
    at: null,
  };
  chart.figure.append(
    element("figcaption", {}, title, now, menu(chart)),
    place,
    element("div", { class: "below-curve" }, legend, fold, marks, star),
    badges,
    table,
  );
  chart.model = (width, height) => model(chart, width, height);
  listen(chart);
  table.addEventListener("toggle", () => {
    if (table.open) fillTable(chart);
  });
  fold.addEventListener("toggle", () => describe(chart));
  chart.words = { now, star, marks, badges, legend, fold };
  describe(chart);
  return chart;
}

// Writes what is known of all points: last values, the best one, the legend.
export function describe(chart) {
  const { about, board } = chart;
  const { now, star, legend, fold } = chart.words;
  const isOne = !board.comparing;
  now.textContent = isOne
    ? about.parts
        .map(
          (part) =>
            `${about.parts.length > 1 ? `${part.label} ` : ""}${part.last === null ? "not finite" : formatValue(part.last)}`,
        )
        .slice(0, 3)
        .join(" · ")
    : "";
  const judged = about.parts.filter((part) => !board.isOff(part.key));
  const found = bestPart(
    judged.some((part) => part.role === "validation") ? judged.filter((part) => part.role === "validation") : judged,
    chart.rule,
  );
  star.hidden = !found;
  if (found)
    star.textContent = `○ best ${formatValue(found.value)} at ${about.unit} ${formatStep(found.step)}${board.comparing || (about.parts.length > 1 && found.part.role) ? ` (${found.part.label})` : ""}`;
  // In a comparison one legend stands above all charts.
  const isMany = isOne && about.parts.length > MANY;
  fold.hidden = !isMany;
  fold.firstChild.textContent = `${about.parts.length} lines`;
  if (isMany && legend.parentElement !== fold) fold.append(legend);
  const keys = isOne && about.parts.length > 1 && (!isMany || fold.open) ? about.parts : [];
  if (legend.childElementCount !== keys.length)
    legend.replaceChildren(...keys.map((part) => element("li", {}, keyButton(part, board))));
  for (const button of legend.querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(!board.isOff(button.dataset.key)));
  const parts = about.parts.length > 1 ? `${about.parts.length} lines` : "one line";
  chart.place.setAttribute(
    "aria-label",
    `${about.title}, ${parts}${found ? `, ${star.textContent.slice(2)}` : ""}. Arrow keys read values, plus and minus zoom, Escape resets the zoom.`,
  );
}

// The best of several parts: {part, value, step}, or null.
export function bestPart(parts, rule) {
  let found = null;
  for (const part of parts) {
    const own = best(part, rule);
    if (own && (!found || (rule === "min" ? own.value < found.value : own.value > found.value)))
      found = { part, ...own };
  }
  return found;
}

export function keyButton(part, board) {
  const button = element(
    "button",
    { type: "button", class: "key", "data-key": part.key, "aria-pressed": "true" },
    sample(part),
    element("bdi", {}, part.label),
  );
  button.addEventListener("click", () => board.toggle(part.key));
  button.addEventListener("pointerenter", () => board.highlight(part.key));
  button.addEventListener("pointerleave", () => board.highlight(null));
  return button;
}

// Draws the picture, as large as there is room for it.
export function paint(chart) {
  const [width, height] = [chart.place.clientWidth, chart.place.clientHeight];
  if (width === 0 || height === 0) return;
  const ratio = Math.min(devicePixelRatio || 1, 3);
  for (const canvas of [chart.under, chart.over]) {
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
  }
  chart.scene = sceneOf(model(chart, width, height));
  const context = chart.under.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  paintCanvas(context, chart.scene, chart.board.palette);
  badge(chart);
  chart.drawCursor();
  if (chart.table.open) fillTable(chart);
}

// What scene.js needs to know, at any size: also for what is saved.
function model(chart, width, height) {
  const { board, about } = chart;
  const lit = board.lit && about.parts.some((part) => part.key === board.lit) ? board.lit : null;
  const lines = chart.lines
    .filter((line) => !board.isOff(line.key))
    .map((line) => ({ ...line, strong: line.key === lit, faded: lit !== null && line.key !== lit }));
  const marks = { attempts: [], checkpoints: [] };
  // Neither has a place among another curve's values.
  const isPlaced = !board.comparing && board.view.x !== "metric";
  for (const line of isPlaced ? lines : []) {
    for (const attempt of line.data.attempts.slice(1)) {
      const at = board.placeOf(line, attempt.first_step, attempt.first_wall_time);
      if (!marks.attempts.includes(at)) marks.attempts.push(at);
    }
  }
  for (const { line, step, wall_time } of isPlaced ? board.checkpointsOf(about) : [])
    marks.checkpoints.push(board.placeOf(line, step, wall_time));
  return {
    width,
    height,
    lines,
    view: board.view,
    axis: { step: about.unit, relative: "time", wall: "clock", metric: board.view.by }[board.view.x],
    domain: chart.domain,
    range: board.view.ranges[about.id],
    rule: board.comparing && lines.length > 8 ? null : chart.rule,
    marks,
    placeOf: board.placeOf,
  };
}

// What the picture leaves out, or what it has that nobody expects.
function badge(chart) {
  const { board, scene, words } = chart;
  const lines = chart.lines.filter((line) => !board.isOff(line.key));
  const said = [];
  if (chart.failed) said.push(["bad", chart.failed]);
  if (scene.scales?.clipped)
    said.push([
      "warn",
      `clipped to the 5th–95th percentile: ${formatCount(scene.scales.clipped)} outliers are outside`,
    ]);
  if (board.view.log) {
    const { points, partly } = nonPositive(lines);
    if (points) said.push(["warn", `${formatCount(points)} points at or below 0 are gaps on a log axis`]);
    if (partly) said.push(["warn", `${formatCount(partly)} buckets contain points at or below 0`]);
  }
  const before = isLogX(board.view) ? behind(lines) : 0;
  if (before)
    said.push([
      "warn",
      `${formatCount(before)} ${before === 1 ? "point" : "points"} at or before ${board.view.x === "step" ? chart.about.unit : "time"} 0 ${before === 1 ? "is a gap" : "are gaps"} on a log axis`,
    ]);
  for (const part of chart.about.parts) {
    if (part.nonfinite && !board.isOff(part.key)) {
      said.push([
        "bad",
        `${part.label}: ${formatCount(part.nonfinite)} not finite, first at ${chart.about.unit} ${formatStep(part.first_nonfinite_step)}`,
      ]);
    }
  }
  const most = 4;
  const shownHere = said.slice(0, most);
  if (said.length > most) shownHere.push(["warn", `and ${said.length - most} more`]);
  words.badges.replaceChildren(...shownHere.map(([level, text]) => element("span", { class: `badge ${level}` }, text)));
  const kinds = new Set(scene.shapes.map(({ stroke }) => stroke));
  words.marks.textContent = [kinds.has("checkpoint") && "◆ checkpoint", kinds.has("attempt") && "↻ restarted"]
    .filter(Boolean)
    .join(" · ");
  words.marks.hidden = words.marks.textContent === "";
  const empty = !chart.failed && !chart.stale && !scene.scales?.y;
  chart.place.classList.toggle("no-points", empty);
  chart.place.dataset.says = empty ? (lines.length === 0 ? "All lines are hidden." : "No data in this range.") : "";
}

const ROWS = 200;

// The same as a table: what the picture shows, thinned to what somebody may read.
function fillTable(chart) {
  const lines = chart.lines.filter((line) => !chart.board.isOff(line.key));
  const rows = [];
  for (const line of lines) {
    const every = Math.max(1, Math.ceil((line.data.count * lines.length) / ROWS));
    for (let at = every - 1; at < line.data.count; at += every) rows.push({ line, at });
  }
  rows.sort((a, b) => a.line.data.end[a.at] - b.line.data.end[b.at]);
  const smooth = lines.some((line) => line.data.hasSmooth);
  const head = ["Line", chart.board.axisWord(chart.about.unit), smooth ? "Smoothed" : "Mean", "Min", "Max", "Points"];
  const cell = (text) => element("td", { class: "n" }, text);
  const body = rows.map(({ line, at }) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("bdi", {}, line.label)),
      cell(chart.board.sayPlace(line.data.end[at])),
      cell(formatValue(shown(line.data, at))),
      cell(formatValue(line.data.low[at])),
      cell(formatValue(line.data.high[at])),
      cell(formatCount(line.data.points[at])),
    ),
  );
  const made = element(
    "table",
    { "aria-label": `${chart.about.title} as a table` },
    element(
      "thead",
      {},
      element("tr", {}, ...head.map((text, at) => element("th", { scope: "col", class: at ? "n" : null }, text))),
    ),
    element("tbody", {}, ...body),
  );
  const before = chart.table.querySelector(".scroll-x");
  // Whoever reads it is not torn away by what comes.
  if (before) return before.replaceChildren(made);
  chart.table.append(
    element(
      "div",
      { class: "scroll-x", tabindex: "0", role: "group", "aria-label": `${chart.about.title}, the table` },
      made,
    ),
  );
}
