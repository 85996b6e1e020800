// @ts-check
// How curves are looked at: the axis, the zoom, smoothing, what is shown and hidden. All of it
// is in the address, so that a link shows what its sender saw; only what differs from the
// usual is written. Other parameters of the page are left as they are.

const AXES = ["step", "relative", "wall", "metric"];

/** @type {any} */
export const USUAL = Object.freeze({
  // The axis; with "metric" the tag of the curve whose values it is.
  x: "step",
  by: "",
  log: false,
  logx: false,
  smooth: 0,
  clip: false,
  zoom: Object.freeze({}),
  ranges: Object.freeze({}),
  find: "",
  only: Object.freeze([]),
  off: Object.freeze([]),
  // Of a comparison: which runs, in which order, and what is said of each.
  where: "",
  sort: Object.freeze([]),
  value: "best",
  same: false,
  group: "",
  base: "",
});

const WORDS = ["by", "find", "where", "group", "base"];
const FLAGS = ["log", "logx", "clip", "same"];
// Of the charts themselves; the others are a comparison's, or another table's on the page.
const CHARTS = ["x", "by", "log", "logx", "smooth", "clip", "zoom", "ranges", "find", "only", "off"];
const NAMES = [...CHARTS, "where", "sort", "value", "same", "group", "base"];

// The view that an address tells. What is not understood is as usual.
export function readView(search) {
  const given = new URLSearchParams(search);
  const view = {
    ...USUAL,
    zoom: {},
    ranges: {},
    only: listed(given.get("only")),
    off: listed(given.get("off")),
    sort: listed(given.get("sort")).slice(0, 2),
  };
  if (AXES.includes(given.get("x"))) view.x = given.get("x");
  for (const name of FLAGS) view[name] = given.get(name) === "1";
  const smooth = Number(given.get("smooth"));
  if (smooth > 0 && smooth < 1) view.smooth = Math.min(smooth, 0.999);
  for (const name of WORDS) view[name] = given.get(name) ?? "";
  // One says nothing without the other.
  if (view.x !== "metric") view.by = "";
  else if (!view.by) view.x = USUAL.x;
  if (given.get("value") === "last") view.value = "last";
  for (const part of listed(given.get("zoom"))) {
    const match = /^(step|epoch|time|value):(-?[\d.e+-]+)~(-?[\d.e+-]+)$/.exec(part);
    const [from, to] = match ? [Number(match[2]), Number(match[3])] : [];
    if (match && from < to && Number.isFinite(to - from)) view.zoom[match[1]] = [from, to];
  }
  for (const part of listed(given.get("ranges"))) {
    const match = /^(.+):(-?[\d.e+-]*)~(-?[\d.e+-]*)$/.exec(part);
    if (match)
      view.ranges = rangesWith(
        view.ranges,
        match[1],
        [match[2], match[3]].map((end) => (end === "" ? null : Number(end))),
      );
  }
  return view;
}

// The query of an address with this view in it: `?…`, or nothing. `alone`: what is no view of charts
// is somebody else's.
export function writeView(view, search = "", alone = false) {
  const query = new URLSearchParams(search);
  if (alone) view = { ...USUAL, ...Object.fromEntries(CHARTS.map((name) => [name, view[name]])) };
  for (const name of alone ? CHARTS : NAMES) query.delete(name);
  if (view.x !== USUAL.x) query.set("x", view.x);
  for (const name of FLAGS) if (view[name]) query.set(name, "1");
  if (view.smooth > 0) query.set("smooth", String(view.smooth));
  const ranges = Object.entries(view.ranges).map(
    ([id, [from, to]]) => `${id}:${from === null ? "" : short(from)}~${to === null ? "" : short(to)}`,
  );
  const zooms = Object.entries(view.zoom).map(([unit, [from, to]]) => `${unit}:${short(from)}~${short(to)}`);
  for (const name of WORDS) if (view[name]) query.set(name, view[name]);
  if (view.value !== USUAL.value) query.set("value", view.value);
  for (const [name, list] of [
    ["zoom", zooms],
    ["ranges", ranges],
    ["sort", view.sort],
    ["only", view.only],
    ["off", view.off],
  ])
    if (list.length) query.set(name, list.map(escaped).join(","));
  const text = query
    .toString()
    .replaceAll("%2F", "/")
    .replaceAll("%3A", ":")
    .replaceAll("%7E", "~")
    .replaceAll("%2C", ",");
  return text && `?${text}`;
}

// A list in one parameter: pages refuse one that stands twice. Tags may hold commas themselves.
const escaped = (item) => item.replace(/[\\,]/g, "\\$&");
const listed = (text) =>
  (text ? (text.match(/(?:\\[^]|[^\\,])+/g) ?? []) : []).map((item) => item.replace(/\\([^])/g, "$1"));

const short = (number) => String(Number(number.toPrecision(14)));

// The ranges of y axes set by hand, `[from, to]` by the chart's id, with another one. An end that is
// null follows the data; an empty range is dropped.
/** @type {(ranges: any, id: string, ends: any) => any} */
export function rangesWith(ranges, id, [from, to]) {
  const { [id]: _, ...others } = ranges;
  const isRange =
    [from, to].every((end) => end === null || Number.isFinite(end)) && (from === null || to === null || from < to);
  return !isRange || (from === null && to === null) ? others : { ...others, [id]: [from, to] };
}

// Steps and the time since the beginning may stand on a logarithmic axis; a clock or another curve's values do not.
export const isLogX = ({ x, logx }) => logx && (x === "step" || x === "relative");

// What a zoom of this chart counts in: steps and epochs differ, times are all charts' own.
export const zoomUnit = (view, unit) => ({ step: unit, metric: "value" })[view.x] ?? "time";

// A view on another axis: a zoom in time means nothing on the other time axis, nor one in the
// values of another curve. `by` is the tag of the curve whose values are the axis.
export function onAxis(view, x, by = "") {
  const { time, value, ...steps } = view.zoom;
  return { ...view, x, by, zoom: steps };
}
