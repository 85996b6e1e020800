// Runs as rows: which hyper-parameters differ, what each metric came to, in which order, and
// which rows an expression leaves. Correlation is that of ranks (Spearman), so that a learning
// rate needs no logarithm. Nothing here draws or asks.

import { bestOf, kindOf, partOf } from "./tags.js";

// A row of each source: {id, name, source, cells: Map(column key → value)}.
// A column is {key, label, kind: "param" | "metric", numeric, differs}.
export function tabled(sources, value) {
  const rows = sources.map((source) => ({ id: source.id, name: source.name, source, cells: new Map(), steps: new Map() }));
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
    return { ...column, filled: values.filter((value) => value !== undefined).length, differs: new Set(values.map((value) => JSON.stringify(value))).size > 1, numeric: values.some(isNumber) && values.every((value) => isNumber(value) || value === null || value === undefined) };
  });
  return { rows, columns: all.sort(byWeight) };
}

const isNumber = (value) => typeof value === "number";
const several = (source, tag) => source.metrics.runs.filter(({ tags }) => tags.some((other) => other.tag === tag)).length > 1;
const compare = (a, b) => String(a).localeCompare(String(b), "en", { numeric: true });

// Hyper-parameters by name, then metrics: accuracy before loss, validation before training.
const weight = ({ kind, label, run }) => (kind === "param" ? 0 : 1 + ["accuracy", "loss"].indexOf(kindOf(label)) * 3 + ["validation", null, "test", "train"].indexOf(partOf(run ?? ".", label).role) / 2);
// What all runs have comes before what few have.
const byWeight = (a, b) => (a.kind === "metric") - (b.kind === "metric") || (a.kind === "metric" ? b.filled - a.filled : 0) || weight(a) - weight(b) || compare(a.label, b.label);

// Rows in the order of at most two columns, "-" in front of a key: the greatest first. What is
// missing stands last in either order.
export function sorted(rows, order) {
  const keys = order.map((key) => (key.startsWith("-") ? [key.slice(1), -1] : [key, 1]));
  const cell = (row, key) => (key === "name" ? row.name : row.cells.get(key));
  return [...rows].sort((a, b) => {
    for (const [key, way] of keys) {
      const [x, y] = [cell(a, key), cell(b, key)];
      const [noX, noY] = [x, y].map((value) => value === null || value === undefined);
      if (noX || noY) { if (noX !== noY) return noX ? 1 : -1; continue; }
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

const TERM = /^(.*?)\s*(<=|>=|!=|=|<|>)\s*(.*)$/s;
const TESTS = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// What `lr < 0.01 and optimizer = adam and resnet` asks for: {test(row), error}. Terms joined
// by “and”; a term without a comparison is a part of the name.
export function filterOf(text, columns) {
  const tests = [];
  for (const term of text.split(/\s+and\s+|\s*;\s*/i).map((term) => term.trim()).filter(Boolean)) {
    const match = TERM.exec(term);
    if (!match) { tests.push((row) => row.name.toLowerCase().includes(term.toLowerCase())); continue; }
    const [, name, sign, given] = match;
    const column = columnOf(name, columns);
    if (!column) return { test: () => true, error: `There is no column “${name}”.` };
    if (given === "") return { test: () => true, error: `“${term}” compares with nothing.` };
    const wanted = given.trim() !== "" && Number.isFinite(Number(given)) ? Number(given) : given.replace(/^["']|["']$/g, "");
    tests.push((row) => {
      const value = column.key === "name" ? row.name : row.cells.get(column.key);
      if (value === null || value === undefined) return sign === "!=";
      if (isNumber(value) && isNumber(wanted)) return TESTS[sign](value, wanted);
      const [one, other] = [String(value).toLowerCase(), String(wanted).toLowerCase()];
      return TESTS[sign](one, other);
    });
  }
  return { test: (row) => tests.every((test) => test(row)), error: null };
}

function columnOf(name, columns) {
  const wanted = name.trim().toLowerCase();
  if (wanted === "name") return { key: "name" };
  return columns.find(({ label }) => label.toLowerCase() === wanted) ?? columns.find(({ label }) => label.toLowerCase().endsWith(`/${wanted}`) || label.toLowerCase().endsWith(`.${wanted}`));
}

// The expression with other bounds for one column: `range` is [low, high], a word, or null.
export function withRange(text, label, range) {
  const others = text.split(/\s+and\s+|\s*;\s*/i).map((term) => term.trim()).filter((term) => term && TERM.exec(term)?.[1].toLowerCase() !== label.toLowerCase());
  const mine = range === null ? [] : Array.isArray(range) ? [`${label} >= ${tidy(range[0])}`, `${label} <= ${tidy(range[1])}`] : [`${label} = ${range}`];
  return [...others, ...mine].join(" and ");
}

const tidy = (number) => Number(number.toPrecision(3));

// Bounds that an expression says of a column: [low, high] with infinities, for drawing a brush.
export function rangeIn(text, label) {
  const range = [-Infinity, Infinity];
  for (const term of text.split(/\s+and\s+|\s*;\s*/i)) {
    const match = TERM.exec(term.trim());
    if (match?.[1].toLowerCase() !== label.toLowerCase() || !Number.isFinite(Number(match[3]))) continue;
    if (match[2].startsWith(">")) range[0] = Number(match[3]);
    if (match[2].startsWith("<")) range[1] = Number(match[3]);
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
