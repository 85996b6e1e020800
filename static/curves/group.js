// @ts-check
// Runs that share the value of a parameter as one line: the mean of what they show at each
// place, and a band from the lowest to the highest of them. Between its points a run counts by
// the straight line that is drawn there; before its first and behind its last it does not.

import { shown } from "./series.js";

// More places than this are thinned out: no screen shows them.
const MOST = 1000;

// `groupOf(line)` answers {key, label, color, dash}. The lines come in the order of their groups.
export function bundled(lines, groupOf) {
  const groups = new Map();
  const runs = [...new Set(lines.map(({ run }) => run))];
  for (const line of lines) {
    const group = groupOf(line);
    // Training and validation of one tag, as Keras writes them, stay two.
    const key = `${group.key}\n${line.run}`;
    if (!groups.has(key))
      groups.set(key, {
        group: runs.length > 1 ? { ...group, label: `${group.label}, ${line.run}`, dash: line.dash } : group,
        lines: [],
      });
    groups.get(key).lines.push(line);
  }
  return [...groups.values()].map(({ group, lines: members }) => ({
    ...group,
    source: members[0].source,
    run: members[0].run,
    data: meanOf(members),
  }));
}

// The columns of a line that is the mean of several.
export function meanOf(lines) {
  const drawn = lines.map(({ data }) => points(data)).filter((points) => points.length > 0);
  const all = [...new Set(drawn.flatMap((points) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const every = Math.ceil(all.length / MOST);
  const places = all.filter((_, at) => at % every === 0 || at === all.length - 1);
  const data = { count: 0, total: 0, nonfinite: [], attempts: [], hasSmooth: false };
  for (const name of ["x", "begin", "end", "mean", "low", "high", "lowX", "highX", "smooth", "points"]) data[name] = [];
  const cursors = drawn.map(() => 0);
  for (const x of places) {
    const values = drawn.map((points, at) => valueAt(points, x, cursors, at)).filter((value) => !Number.isNaN(value));
    if (values.length === 0) continue;
    data.x.push(x);
    data.begin.push(x);
    data.end.push(x);
    data.mean.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    data.low.push(Math.min(...values));
    data.high.push(Math.max(...values));
    data.lowX.push(x);
    data.highX.push(x);
    data.smooth.push(NaN);
    data.points.push(values.length);
    data.count += 1;
  }
  data.total = data.count;
  return data;
}

function points(data) {
  const found = [];
  for (let at = 0; at < data.count; at += 1) {
    const value = shown(data, at);
    if (!Number.isNaN(value)) found.push([data.hasSmooth ? data.end[at] : data.x[at], value]);
  }
  return found;
}

// Places come in order, so each line's cursor only goes forward.
function valueAt(points, x, cursors, at) {
  if (x < points[0][0] || x > points.at(-1)[0]) return NaN;
  while (points[cursors[at] + 1]?.[0] <= x) cursors[at] += 1;
  const [fromX, from] = points[cursors[at]];
  const next = points[cursors[at] + 1];
  return !next || next[0] === fromX ? from : from + ((next[1] - from) * (x - fromX)) / (next[0] - fromX);
}
