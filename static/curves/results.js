// @ts-check
// Runs as rows: which hyper-parameters differ, what each metric came to, in which order, and
// which rows an expression leaves. Correlation is that of ranks (Spearman), so that a learning
// rate needs no logarithm. Nothing here draws or asks.

import { Fault, columnsOf, conditions, parse, picks, quoted } from "./expression.js";
import { shorten } from "./label.js";
import { bestOf, kindOf, partOf } from "./tags.js";

// A row of each source: {id, name, source, cells: Map(column key → value)}.
// A column is {key, label, kind: "param" | "metric", numeric, differs}.
export function tabled(sources, value) {
  const rows = sources.map((source) => ({
    id: source.id,
    name: source.name,
    source,
    cells: new Map(),
    steps: new Map(),
  }));
  const columns = new Map();
  for (const row of rows) {
    for (const { run, hparams, tags } of row.source.metrics.runs) {
      for (const [name, param] of Object.entries(hparams ?? {})) {
        columns.set(`p:${name}`, { key: `p:${name}`, label: name, kind: "param" });
        row.cells.set(`p:${name}`, param);
      }
      for (const tag of tags) {
        const rule = bestOf(tag.tag);
        if (!rule) continue;
        const label = several(row.source, tag.tag) ? `${run}: ${tag.tag}` : tag.tag;
        columns.set(`m:${label}`, { key: `m:${label}`, label, kind: "metric", rule, tag: tag.tag, run });
        const best = rule === "min" ? tag.min : tag.max;
        row.cells.set(`m:${label}`, value === "last" ? tag.last : best);
        row.steps.set(`m:${label}`, value === "last" ? tag.last_step : rule === "min" ? tag.min_step : tag.max_step);
      }
    }
  }
  const all = [...columns.values()].map((column) => {
    const values = rows.map((row) => row.cells.get(column.key));
    return {
      ...column,
      filled: values.filter((value) => value !== undefined).length,
      differs: new Set(values.map((value) => JSON.stringify(value))).size > 1,
      numeric:
        values.some(isNumber) && values.every((value) => isNumber(value) || value === null || value === undefined),
    };
  });
  return { rows, columns: all.sort(byWeight) };
}

const isNumber = (value) => typeof value === "number";
const several = (source, tag) =>
  source.metrics.runs.filter(({ tags }) => tags.some((other) => other.tag === tag)).length > 1;
const compare = (a, b) => String(a).localeCompare(String(b), "en", { numeric: true });

// Hyper-parameters by name, then metrics: accuracy before loss, validation before training.
const weight = ({ kind, label, run }) =>
  kind === "param"
    ? 0
    : 1 +
      ["accuracy", "loss"].indexOf(kindOf(label)) * 3 +
      ["validation", null, "test", "train"].indexOf(partOf(run ?? ".", label).role) / 2;
// What all runs have comes before what few have.
const byWeight = (a, b) =>
  Number(a.kind === "metric") - Number(b.kind === "metric") ||
  (a.kind === "metric" ? b.filled - a.filled : 0) ||
  weight(a) - weight(b) ||
  compare(a.label, b.label);

// Rows in the order of at most two columns, "-" in front of a key: the greatest first. What is
// missing stands last in either order.
export function sorted(rows, order) {
  const keys = order.map((key) => (key.startsWith("-") ? [key.slice(1), -1] : [key, 1]));
  const cell = (row, key) => (key === "name" ? row.name : row.cells.get(key));
  return [...rows].sort((a, b) => {
    for (const [key, way] of keys) {
      const [x, y] = [cell(a, key), cell(b, key)];
      const [noX, noY] = [x, y].map((value) => value === null || value === undefined);
      if (noX || noY) {
        if (noX !== noY) return noX ? 1 : -1;
        continue;
      }
      const difference = isNumber(x) && isNumber(y) ? x - y : compare(x, y);
      if (difference) return difference * way;
    }
    return 0;
  });
}

// The order after a press on a column: up, down, off; `second` keeps the first one.
export function pressed(order, key, second) {
  const now = order.find((other) => other === key || other === `-${key}`);
  const next = now === undefined ? [key] : now === key ? [`-${key}`] : [];
  if (!second) return next;
  const others = order.filter((other) => other !== now);
  return [...others.slice(0, 1), ...next];
}

// What `lr < 0.01 and optimizer = adam` asks for: {test(row), error}.
export function filterOf(text, columns) {
  try {
    const node = parse(text);
    const found = new Map(columnsOf(node).map((name) => [name, columnOf(name, columns)]));
    const cell = (row) => (name) => {
      const column = found.get(name);
      const value =
        column.key === "name"
          ? row.name
          : name.which && name.which !== "param" && name.which !== "metric"
            ? valueOf(row, column, name.which)
            : row.cells.get(column.key);
      return value === undefined ? null : value;
    };
    return { test: (row) => picks(node, row.name, cell(row)), error: null };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return { test: () => true, error: `${error.message} (character ${error.at})` };
  }
}

// One value of a metric, whichever the table shows.
function valueOf(row, { tag, run, rule }, which) {
  const found = row.source.metrics.runs.find((other) => other.run === run)?.tags.find((other) => other.tag === tag);
  return found?.[which === "best" ? rule : which];
}

function columnOf({ which, text, at }, columns) {
  const wanted = text.toLowerCase();
  if (wanted === "name" && which === null) return { key: "name" };
  const meant = columns.filter(({ kind }) => which === null || (which === "param") === (kind === "param"));
  const exact = meant.find(({ label }) => label === text) ?? meant.find(({ label }) => label.toLowerCase() === wanted);
  if (exact) return exact;
  const ends = meant.filter(
    ({ label }) => label.toLowerCase().endsWith(wanted) && /[/. _]$/.test(label.slice(0, -text.length)),
  );
  if (ends.length === 1) return ends[0];
  if (ends.length === 0) throw new Fault(at, `Unknown column “${shorten(text, 60)}”.`);
  throw new Fault(
    at,
    `“${shorten(text, 60)}” is ambiguous: it may be “${shorten(ends[0].label, 60)}” or “${shorten(ends[1].label, 60)}”. Give the full name.`,
  );
}

// The expression with other bounds for one column: `range` is [low, high], a word, or null.
export function withRange(text, label, range) {
  const name = quoted(label);
  const mine =
    range === null
      ? []
      : Array.isArray(range)
        ? [`${name} >= ${tidy(range[0])}`, `${name} <= ${tidy(range[1])}`]
        : [`${name} = ${quoted(String(range))}`];
  return [...othersIn(text, label), ...mine].join(" and ");
}

// What an expression asks for beside a column's bounds, as text.
function othersIn(text, label) {
  const characters = [...text];
  try {
    const node = parse(text);
    const said = ({ from, to }) => characters.slice(from - 1, to - 1).join("");
    return conditions(node)
      .filter((one) => !isOf(one, label))
      .map((one) => (one.kind === "or" && !said(one).startsWith("(") ? `(${said(one)})` : said(one)));
  } catch {
    // What was not understood cannot be kept.
    return [];
  }
}

const isOf = ({ kind, column, sign }, label) =>
  kind === "compare" && !sign.includes("~") && sign !== "!=" && column.text.toLowerCase() === label.toLowerCase();

const tidy = (number) => Number(number.toPrecision(3));

// Bounds that an expression says of a column: [low, high] with infinities, for drawing a brush.
export function rangeIn(text, label) {
  const range = [-Infinity, Infinity];
  try {
    for (const one of conditions(parse(text))) {
      if (!isOf(one, label) || one.value.number === undefined) continue;
      if (one.sign.startsWith(">")) range[0] = one.value.number;
      if (one.sign.startsWith("<")) range[1] = one.value.number;
    }
  } catch {
    return null;
  }
  return range[0] === -Infinity && range[1] === Infinity ? null : range;
}

function ranks(values) {
  const order = values.map((value, at) => [value, at]).sort(([a], [b]) => a - b);
  const found = new Array(values.length);
  for (let from = 0; from < order.length;) {
    let to = from;
    while (to < order.length && order[to][0] === order[from][0]) to += 1;
    for (let at = from; at < to; at += 1) found[order[at][1]] = (from + to - 1) / 2;
    from = to;
  }
  return found;
}

// How far two columns rise together, from −1 to 1, of the pairs [x, y]; null where fewer than
// three or where one never changes.
export function rankCorrelation(pairs) {
  if (pairs.length < 3) return null;
  const [x, y] = [0, 1].map((side) => ranks(pairs.map((pair) => pair[side])));
  const mean = (pairs.length - 1) / 2;
  const sum = (a, b) => a.reduce((total, value, at) => total + (value - mean) * (b[at] - mean), 0);
  const size = Math.sqrt(sum(x, x) * sum(y, y));
  return size === 0 ? null : sum(x, y) / size;
}
