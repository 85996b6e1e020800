// @ts-check
// All charts of one element: what there is, how it is looked at, which cursor they share. What
// is asked of the portal is in feed.js; which charts have a place on the page in shelf.js.

import { announce } from "../dom.js";
import { makeKept, toggled } from "./kept.js";
import { onTheme, palette } from "./colours.js";
import { paint } from "./chart.js";
import { makeFeed } from "./feed.js";
import { makeLayout } from "./layout.js";
import { labelled } from "./label.js";
import { saveCharts } from "./save.js";
import { formatCount, formatElapsed, formatMoment, formatStep, formatValue } from "./scale.js";
import { span } from "./series.js";
import { makeShelf } from "./shelf.js";
import { chartsOf } from "./tags.js";
import { makeToolbar } from "./toolbar.js";
import { isLogX, rangesWith, readView, writeView, zoomUnit } from "./view.js";

// `sources` are [{id, name, metrics}]; more than one are compared.
export function makeBoard(root, base, sources) {
  const board = {
    root,
    base,
    sources,
    kept: makeKept(),
    comparing: sources.length > 1 || "overlay" in root.dataset,
    view: readView(location.search),
    palette: palette(root),
    cursor: null,
    lit: null,
    // What there is, in groups, and those of it that have a place on the page.
    groups: [],
    charts: [],
    starts: new Map(),
    // In a comparison, the runs that its filter leaves; null: all of them.
    narrowed: null,
    // And, where they are grouped, which group a run is in: {key, label, color, dash}.
    groupOf: null,
    // A group of charts that are no curves of a run: what a job makes of the machine.
    hardware: null,
  };
  const [now, change] = [() => board.view, (view) => board.setView(view)];
  const toolbar = makeToolbar(now, change, (kind) => board.download(kind));
  const layout = makeLayout(now, change, board.kept, () => {
    board.showView();
    requestPaint(board.charts, true);
  });
  root.append(toolbar.bar, layout.bar);
  const feed = makeFeed(board),
    shelf = makeShelf(board);
  onTheme(() => {
    board.palette = palette(root);
    requestPaint(board.charts, true);
  });
  board.paint = requestPaint;
  Object.assign(board, { schedule: feed.schedule, take: feed.take, refresh: feed.refresh });

  // What there is has changed: charts that are there already stay as they are.
  board.load = () => {
    board.starts = startsOf(sources);
    const all = sources.flatMap((source) =>
      source.metrics.runs.flatMap(({ run, tags }) => tags.map((tag) => ({ ...tag, run, source }))),
    );
    // A page may know of curves that say nothing there.
    const curves = all.filter(({ tag }) => !(root.dataset.hide ?? "").split(" ").includes(tag));
    board.groups = chartsOf(curves, { pair: !board.comparing });
    for (const { charts } of board.groups) for (const about of charts) labelled(about, board);
    if (board.hardware) board.groups.push(board.hardware);
    feed.learnParts();
    board.showView();
  };
  board.abouts = () => board.groups.flatMap(({ charts }) => charts).filter(({ local }) => !local);

  board.setView = (view) => {
    const before = board.view;
    board.view = view;
    const isOther = view.x !== before.x || view.by !== before.by;
    const asksAnew = isOther || view.smooth !== before.smooth || isLogX(view) !== isLogX(before);
    for (const chart of board.charts) {
      const domain = board.domainOf(chart.about);
      if (isOther) chart.single = chart.lines = [];
      if (asksAnew || String(domain) !== String(chart.domain)) chart.stale = true;
    }
    if (isOther) board.cursor = null;
    board.showView();
    feed.bundle();
    clearTimeout(board.writing);
    board.writing = setTimeout(
      () =>
        root.isConnected &&
        history.replaceState(
          history.state,
          "",
          `${location.pathname}${writeView(board.view, location.search, "overlay" in root.dataset)}${location.hash}`,
        ),
      120,
    );
    feed.schedule(view.smooth === before.smooth ? 0 : 150, true);
    requestPaint(board.charts);
  };

  // Which charts and lines are there to be seen.
  board.showView = () => {
    shelf.show();
    root.dataset.size = board.kept.get().size;
    toolbar.show(board.view, board.abouts());
    layout.show(board.view, board.abouts());
    board.onShow?.();
  };

  board.pin = (about) => {
    const { pinned } = board.kept.get();
    board.kept.set({ pinned: toggled(pinned, about.id) });
    board.showView();
    announce(pinned.includes(about.id) ? `${about.title} unpinned` : `${about.title} pinned to the top`);
  };
  board.setRange = (about, ends) =>
    board.setView({ ...board.view, ranges: rangesWith(board.view.ranges, about.id, ends) });
  board.download = async (kind) => {
    if (await feed.settle()) saveCharts(board.charts, kind);
    else announce("Some charts could not be loaded. Nothing was downloaded.");
  };

  const ids = new Set(sources.map(({ id }) => id));
  // A filter speaks of runs alone, not of their groups.
  board.isOff = (key) =>
    board.view.off.includes(key) || (board.narrowed !== null && ids.has(key) && !board.narrowed.has(key));
  board.toggle = (key) => {
    const off = board.view.off.includes(key)
      ? board.view.off.filter((other) => other !== key)
      : [...board.view.off, key];
    board.setView({ ...board.view, off });
  };
  board.highlight = (key) => {
    if (board.lit === key) return;
    board.lit = key;
    requestPaint(board.charts.filter((chart) => chart.near));
  };

  board.unitOf = (chart) => zoomUnit(board.view, chart.about.unit);
  board.domainOf = (about) => board.view.zoom[zoomUnit(board.view, about.unit)] ?? null;
  board.setCursor = (chart, x = 0, y = null) => {
    board.cursor = chart && { chart, x, y, unit: board.unitOf(chart) };
    requestAnimationFrame(() => {
      for (const other of board.charts) if (other.near) other.drawCursor();
    });
  };
  board.zoom = (chart, range) => {
    const zoom = { ...board.view.zoom };
    const unit = board.unitOf(chart);
    if (range) zoom[unit] = within(range, chart);
    else if (!(unit in zoom)) return;
    else delete zoom[unit];
    board.setView({ ...board.view, zoom });
    announce(
      range
        ? `Zoomed to ${board.axisWord(chart.about.unit)} ${board.sayPlace(zoom[unit][0])} to ${board.sayPlace(zoom[unit][1])}`
        : "Zoom reset",
    );
  };

  board.placeOf = (line, step, wall) =>
    ({ step, wall, relative: wall - (board.starts.get(line.source)?.get(line.run) ?? wall), metric: NaN })[
      board.view.x
    ];
  board.axisWord = (unit) => ({ step: unit, relative: "after", wall: "at", metric: board.view.by })[board.view.x];
  board.sayPlace = (x) =>
    ({
      step: () => (Number.isInteger(x) ? formatCount(x) : formatStep(x)),
      relative: () => formatElapsed(x),
      wall: () => formatMoment(x, 0),
      metric: () => formatValue(x),
    })[board.view.x]();
  // Checkpoints are written at steps: where epochs are counted they have no place.
  board.checkpointsOf = ({ parts, unit }) => {
    const lines = board.comparing || (unit === "epoch" && board.view.x === "step") ? [] : parts.slice(0, 1);
    return lines.flatMap((line) =>
      (line.source.metrics.checkpoints ?? []).map((checkpoint) => ({ line, ...checkpoint })),
    );
  };
  return board;
}

// A zoom stays within what there is, and is never narrower than two steps.
function within([from, to], chart) {
  const whole = span(chart.lines) ?? [from, to];
  const byStep = chart.board.view.x === "step";
  const middle = (from + to) / 2;
  const half = Math.max(to - from, byStep ? 2 : 1e-3) / 2;
  const [low, high] = chart.domain
    ? [Math.min(whole[0], chart.domain[0] - half), Math.max(whole[1], chart.domain[1] + half)]
    : whole;
  const range = [Math.max(middle - half, low), Math.min(middle + half, high)];
  return byStep ? [Math.floor(range[0]), Math.ceil(range[1])] : range;
}

// When each run wrote its first point: relative times begin there.
function startsOf(sources) {
  const startOf = ({ run, tags }) => [
    run,
    tags.reduce((least, { first_wall_time }) => Math.min(least, first_wall_time ?? Infinity), Infinity),
  ];
  return new Map(sources.map((source) => [source, new Map(source.metrics.runs.map(startOf))]));
}

// Charts are painted once a frame, however often somebody asks; those off the screen when they
// come onto it, but for a new size or theme, which would be seen while somebody scrolls.
const waiting = new Map();
function requestPaint(charts, far = false) {
  if (waiting.size === 0) {
    requestAnimationFrame(() => {
      const all = [...waiting];
      waiting.clear();
      for (const [chart, far] of all)
        if (chart.figure.isConnected && (chart.near || (far && chart.scene))) paint(chart);
    });
  }
  for (const chart of charts) waiting.set(chart, far || waiting.get(chart) === true);
}
