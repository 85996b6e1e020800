// @ts-check
// What a job makes of the machine, as charts under its curves and on their axis: cores, memory beside
// its limit, and of each GPU use, memory, temperature and power, as far as they are measured. Measurements have a time
// and no step: where steps are drawn, the time is placed between the points of the curve that has most steps.

import { look } from "./colours.js";
import { curveOf, hardwareOf } from "./ask.js";
import { seen } from "../dom.js";

const GIB = 2 ** 30;
// How often it is asked for while the job runs (ms).
const FRESH = 10_000;
const LIMIT = { color: "c7", dash: [4, 4] };
const PLACES = 1000;

const KINDS = [
  {
    id: "cpu",
    name: "CPU (cores)",
    value: ({ cpus }) => cpus,
    most: ({ most_cpus }) => most_cpus,
    limit: ({ cpus }) => cpus,
  },
  {
    id: "memory",
    name: "Memory (GiB)",
    value: ({ memory_bytes }) => memory_bytes / GIB,
    limit: ({ memory_bytes }) => memory_bytes / GIB,
  },
  { id: "gpu", name: "GPU use (%)", gpu: ({ utilisation }) => utilisation },
  {
    id: "gpu-memory",
    name: "GPU memory (GiB)",
    gpu: ({ memory_bytes }) => (memory_bytes === null ? null : memory_bytes / GIB),
  },
  { id: "gpu-temperature", name: "GPU temperature (°C)", gpu: ({ celsius }) => celsius },
  { id: "gpu-power", name: "GPU power (W)", gpu: ({ watts }) => watts },
];

// Puts the charts on a board of one job, and keeps them fresh while it runs.
export async function makeHardware(board, job) {
  const [source] = board.sources;
  let attempts = [],
    places = [];
  const abouts = new Map();
  for (;;) {
    try {
      [{ attempts }, places] = await Promise.all([hardwareOf(board.base, job), placesOf(board, source)]);
      show();
    } catch {
      /* What was there stays; it is asked for again. */
    }
    // The last stretch of an attempt is written at its end.
    if (attempts.length > 0 && attempts.every(({ ended_at }) => ended_at !== null)) return;
    await new Promise((resolve) => setTimeout(resolve, FRESH));
    await seen();
    if (!board.root.isConnected) return;
  }

  function show() {
    const charts = KINDS.flatMap((kind) => {
      const parts = partsOf(kind, attempts, source);
      if (parts.length === 0) return [];
      if (!abouts.has(kind.id))
        abouts.set(kind.id, {
          id: `hardware:${kind.id}`,
          name: kind.name,
          title: kind.name,
          unit: "step",
          kind: "other",
          local: () => linesOf(board, kind, attempts, abouts.get(kind.id).parts, places),
        });
      return [Object.assign(abouts.get(kind.id), { parts })];
    });
    board.hardware = charts.length ? { name: "Hardware", charts } : null;
    for (const chart of board.charts) if (chart.about.local) chart.stale = true;
    board.load();
    board.schedule();
  }
}

// Where time and step lie of the curve that is furthest: [[wall time, step], …].
async function placesOf(board, source) {
  const part = board
    .abouts()
    .filter(({ unit }) => unit === "step")
    .flatMap(({ parts }) => parts)
    .reduce((most, part) => (!most || part.last_step > most.last_step ? part : most), null);
  if (!part) return [];
  const { buckets } = await curveOf(board.base, source, part, { x: "wall", points: PLACES });
  return ordered(
    buckets.flatMap(({ first_x, last_x, first_step, last_step }) => [
      [first_x, first_step],
      [last_x, last_step],
    ]),
  );
}

// In the order of time, each time once.
export const ordered = (places) => places.filter(([at], index) => index === 0 || at > places[index - 1][0]);

// The step at a time, between its neighbours; NaN before the first and behind the last.
export function stepAt(places, at) {
  if (places.length === 0 || at < places[0][0] || at > places.at(-1)[0]) return NaN;
  let [low, high] = [0, places.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle][0] < at) low = middle + 1;
    else high = middle;
  }
  if (places[low][0] === at || low === 0) return places[low][1];
  const [[from, a], [to, b]] = [places[low - 1], places[low]];
  return a + ((b - a) * (at - from)) / (to - from);
}

// The lines of a chart: what is used and what it may use, or one for each GPU.
function partsOf(kind, attempts, source) {
  const part = (tag, label, look) => ({
    source,
    run: runOf(source),
    tag: `${kind.id} ${tag}`,
    key: `hardware:${kind.id}:${tag}`,
    label,
    ...look,
    of: tag,
    count: 0,
    nonfinite: 0,
    last: null,
    min: null,
    max: null,
    last_step: null,
  });
  const found = [];
  if (kind.value) {
    found.push(part("used", "used", look(0)));
    found.push(part("limit", "limit", LIMIT));
  } else {
    const gpus = new Map(attempts.flatMap(({ gpus }) => gpus.map((gpu) => [gpu.uuid, gpu])));
    for (const { uuid, index, slice } of gpus.values()) {
      const values = attempts.flatMap(({ stretches }) =>
        stretches.flatMap(({ gpus = [] }) => gpus.filter((gpu) => gpu.uuid === uuid).map(kind.gpu)),
      );
      if (values.some((value) => value !== null))
        found.push(
          part(uuid, `GPU ${index}${slice === undefined || slice === null ? "" : `:${slice}`}`, look(found.length)),
        );
    }
  }
  if (attempts.length === 0) return [];
  for (const one of found) {
    const values = attempts
      .flatMap((attempt) => attempt.stretches.map((stretch) => valueOf(kind, one.of, stretch, attempt)))
      .filter((value) => value !== null);
    Object.assign(one, { count: values.length, last: values.at(-1) ?? null });
  }
  return found.filter(({ count }) => count > 0);
}

// Relative time begins where the curves do.
const runOf = ({ metrics }) => metrics.runs.find(({ tags }) => tags.length > 0)?.run ?? ".";

function valueOf(kind, of, stretch, attempt) {
  if (of === "limit") return kind.limit(attempt);
  if (of === "used") return kind.value(stretch);
  const gpu = (stretch.gpus ?? []).find(({ uuid }) => uuid === of);
  return gpu ? kind.gpu(gpu) : null;
}

// Columns as series.js has them, a stretch a place; attempts are parted by a gap.
function linesOf(board, kind, attempts, parts, places) {
  const begin = Math.min(
    ...attempts.flatMap(({ stretches }) => stretches.slice(0, 1).map(({ at }) => Date.parse(at) / 1000)),
  );
  const start = Math.min(begin, ...[...(board.starts.get(board.sources[0])?.values() ?? [])]);
  const place = (wall) => ({ wall, relative: wall - start, step: stepAt(places, wall), metric: NaN })[board.view.x];
  // Its own times are no values of a curve.
  if (board.view.x === "metric") return [];
  return parts.map((part) => {
    const data = { count: 0, total: part.count, nonfinite: [], attempts: [], hasSmooth: false };
    for (const name of ["x", "begin", "end", "mean", "low", "high", "lowX", "highX", "smooth", "points"])
      data[name] = [];
    const put = (x, value, most) => {
      for (const name of ["x", "begin", "end", "lowX", "highX"]) data[name].push(x);
      data.mean.push(value);
      data.low.push(value);
      data.high.push(most);
      data.smooth.push(NaN);
      data.points.push(Number.isNaN(value) ? 0 : 1);
      data.count += 1;
    };
    for (const attempt of attempts) {
      if (data.count > 0) put(data.x.at(-1), NaN, NaN);
      for (const stretch of attempt.stretches) {
        const x = place(Date.parse(stretch.at) / 1000 + attempt.seconds / 2);
        const value = valueOf(kind, part.of, stretch, attempt);
        if (Number.isNaN(x) || value === null || x < (data.x.at(-1) ?? -Infinity)) continue;
        put(x, value, part.of === "used" && kind.most ? Math.max(value, kind.most(stretch)) : value);
      }
    }
    return { ...part, data };
  });
}

// What was measured, as a table for a file.
export function csvOf(lines) {
  const rows = lines.flatMap(({ label, data }) =>
    data.x.map((x, at) => [label, x, data.mean[at], data.high[at]]).filter(([, , value]) => !Number.isNaN(value)),
  );
  return ["line,x,value,most", ...rows.map((row) => row.join(","))].join("\n");
}
