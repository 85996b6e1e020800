// @ts-check
// An answer about one curve as columns of numbers, and the pure questions that a chart asks of
// them: what is near the cursor, which point is best, what a new point adds. NaN stands where
// there is nothing to draw.

const number = (value) => (value === null || value === undefined ? NaN : value);

// Columns of an answer's buckets. `x` is where the mean is drawn: the middle of the bucket, or
// its one point. `end` is where its last point is: the smoothed value belongs there.
export function columns(answer, smooth = true) {
  const count = answer.buckets.length;
  const made = {
    count: 0,
    total: answer.count,
    nonfinite: answer.nonfinite ?? [],
    attempts: answer.attempts ?? [],
    hasSmooth: smooth && Array.isArray(answer.smoothed),
  };
  for (const name of [
    "x",
    "begin",
    "end",
    "mean",
    "low",
    "high",
    "lowX",
    "highX",
    "smooth",
    "points",
    "firstStep",
    "lastStep",
  ])
    made[name] = new Array(count);
  const byStep = answer.x === undefined || answer.x === "step";
  for (const [at, bucket] of answer.buckets.entries()) {
    const [first, last, least, most] = byStep
      ? [bucket.first_step, bucket.last_step, bucket.min_step, bucket.max_step]
      : [bucket.first_x, bucket.last_x, bucket.min_x, bucket.max_x];
    made.begin[at] = first;
    made.end[at] = last;
    made.x[at] = (first + last) / 2;
    made.mean[at] = number(bucket.mean);
    made.low[at] = number(bucket.min);
    made.high[at] = number(bucket.max);
    made.lowX[at] = number(least);
    made.highX[at] = number(most);
    made.smooth[at] = made.hasSmooth ? number(answer.smoothed[at]) : NaN;
    made.points[at] = bucket.count;
    [made.firstStep[at], made.lastStep[at]] = [bucket.first_step, bucket.last_step];
  }
  made.count = count;
  return made;
}

// The number of units from the first step of a curve to its last. The weight of a value falls with its distance in
// units: the smoothing to that power. smooth.rs does the same on the server.
const UNITS = 1000;
const MAX_WEIGHT = 0.999;
// A curve that has grown by more than this factor is smoothed again, because its unit has changed.
const GROWN = 1.1;

// Where the average stands behind the last bucket: {sum, weights, step, first, range, left(steps)}.
// Points within a bucket are taken to be evenly spaced.
function trailOf(data, smoothing) {
  const [first, last] = [data.firstStep[0] ?? NaN, data.lastStep[data.count - 1] ?? NaN];
  const weight = Math.min(Math.sqrt(smoothing), MAX_WEIGHT);
  const trail = {
    sum: 0,
    weights: 0,
    step: NaN,
    first,
    range: last - first,
    left: (steps) => weight ** ((steps * UNITS) / (last - first)),
  };
  for (let at = 0; at < data.count; at += 1) {
    if (Number.isNaN(data.mean[at])) continue;
    const rest = data.points[at] - 1;
    trail.weights = (Number.isNaN(trail.step) ? 0 : trail.weights * trail.left(data.firstStep[at] - trail.step)) + 1;
    const left = rest > 0 ? trail.left((data.lastStep[at] - data.firstStep[at]) / rest) : 0;
    if (rest > 0) trail.weights = trail.weights * left ** rest + (left === 1 ? rest : (1 - left ** rest) / (1 - left));
    [trail.step, trail.sum] = [data.lastStep[at], data.smooth[at] * trail.weights];
  }
  return trail;
}

// Adds `points` of the live stream ([step, wall time, value]) behind the others, each as a
// bucket of its own, and goes on with the smoothing. Answers false where a point is not behind the
// last one, or the curve has grown so far that it must be fetched again.
export function extend(data, points, place, smoothing) {
  let last = data.count > 0 ? data.end[data.count - 1] : -Infinity;
  if (data.hasSmooth) data.trail ??= trailOf(data, smoothing);
  const { trail } = data;
  for (const [step, wall, value, word] of points) {
    const x = place(step, wall);
    if (x < last || (data.hasSmooth && !(step - trail.first <= trail.range * GROWN))) return false;
    last = x;
    const y = number(value);
    const at = data.count;
    data.x[at] = data.begin[at] = data.end[at] = x;
    data.mean[at] = data.low[at] = data.high[at] = y;
    data.lowX[at] = data.highX[at] = Number.isNaN(y) ? NaN : x;
    data.points[at] = 1;
    data.firstStep[at] = data.lastStep[at] = step;
    if (data.hasSmooth && !Number.isNaN(y)) {
      const left = Number.isNaN(trail.step) ? 0 : trail.left(step - trail.step);
      trail.sum = trail.sum * left + y;
      trail.weights = trail.weights * left + 1;
      trail.step = step;
      data.smooth[at] = trail.sum / trail.weights;
    } else data.smooth[at] = NaN;
    if (Number.isNaN(y)) data.nonfinite.push({ step, wall_time: wall, value: word ?? "NaN" });
    data.count += 1;
    data.total += 1;
  }
  return true;
}

// The index of the bucket that holds `x` or is nearest to it; -1 where there is none.
export function indexAt(data, x) {
  let [low, high] = [0, data.count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.end[middle] < x) low = middle + 1;
    else high = middle;
  }
  if (data.count === 0) return -1;
  if (low === data.count) return low - 1;
  if (low === 0 || data.begin[low] <= x) return low;
  return x - data.end[low - 1] <= data.begin[low] - x ? low - 1 : low;
}

// The lines at the cursor, at most `most`, from the highest to the lowest value; `more` is how many
// there are besides. `order` says which: those nearest to the cursor, or with the highest or the
// lowest values, which then come first. `lines` are [{data, …}], `y` maps a value to pixels, `pixel`
// is the cursor's.
export function nearest(lines, x, y, pixel, most = 5, order = "near") {
  const found = [];
  for (const line of lines) {
    const at = indexAt(line.data, x);
    if (at < 0) continue;
    const value = shown(line.data, at);
    const place = Number.isNaN(value) ? NaN : y(value);
    found.push({ line, at, value, distance: Number.isNaN(place) ? Infinity : Math.abs(place - pixel) });
  }
  // What has no value is last.
  const falling = (a, b) => Number(Number.isNaN(a.value)) - Number(Number.isNaN(b.value)) || b.value - a.value || 0;
  const rising = (a, b) => Number(Number.isNaN(a.value)) - Number(Number.isNaN(b.value)) || a.value - b.value || 0;
  found.sort({ near: (a, b) => a.distance - b.distance || 0, high: falling, low: rising }[order]);
  const near = found.slice(0, most).sort(order === "low" ? rising : falling);
  return { near, more: Math.max(0, found.length - most) };
}

// What is drawn strongly at a place: the smoothed value where there is one.
export const shown = (data, at) => (data.hasSmooth ? data.smooth[at] : data.mean[at]);

// The best point of a tag, from what is known of all its points: {step, value}, or null.
export function best(tag, rule) {
  if (rule === "min" && Number.isFinite(tag.min ?? NaN)) return { value: tag.min, step: tag.min_step };
  if (rule === "max" && Number.isFinite(tag.max ?? NaN)) return { value: tag.max, step: tag.max_step };
  return null;
}

// The bucket in which a step lies, as [x, y] of its best point; null where it is not in view.
export function bestPlace(data, rule) {
  let found = null;
  for (let at = 0; at < data.count; at += 1) {
    const [value, x] = rule === "min" ? [data.low[at], data.lowX[at]] : [data.high[at], data.highX[at]];
    if (Number.isNaN(value)) continue;
    if (!found || (rule === "min" ? value < found.y : value > found.y)) found = { x, y: value };
  }
  return found;
}

// Places that a logarithmic axis cannot show: how many points lie in buckets that hold nothing
// above zero, and in how many other buckets some do.
export function nonPositive(lines) {
  let [points, partly] = [0, 0];
  for (const { data } of lines) {
    for (let at = 0; at < data.count; at += 1) {
      if (data.high[at] <= 0) points += data.points[at];
      else if (data.low[at] <= 0) partly += 1;
    }
  }
  return { points, partly };
}

// Lines with a gap where a logarithmic axis from left to right has no place: at 0 and before.
export function ahead(lines) {
  return lines.map((line) => {
    const { data } = line;
    const kept = (places, values) =>
      places.some((place) => place <= 0) ? values.map((value, at) => (places[at] > 0 ? value : NaN)) : values;
    const [mean, low, high] = [data.mean, data.low, data.high].map((values) => kept(data.x, values));
    return { ...line, data: { ...data, mean, low, high, smooth: kept(data.end, data.smooth) } };
  });
}

// What such an axis begins and ends with: places above 0 alone; null where there is none.
export function spanAhead(lines, [from, to]) {
  let least = Infinity;
  for (const { data } of lines) {
    const at = data.end.findIndex((end) => end > 0);
    // The middle of the first bucket may be what is drawn.
    for (const place of at < 0 ? [] : [data.begin[at], data.x[at], data.end[at]])
      if (place > 0) least = Math.min(least, place);
  }
  const begin = from > 0 ? from : least;
  return begin <= to ? [begin, begin === to ? to * 1.1 : to] : null;
}

// How many points lie where it has no place.
export function behind(lines) {
  let points = 0;
  for (const { data } of lines)
    for (let at = 0; at < data.count && data.begin[at] <= 0; at += 1) if (data.x[at] <= 0) points += data.points[at];
  return points;
}

// The least and the greatest of all lines within `from`–`to`; with `clip`, what lies outside
// of the 5th to the 95th percentile is left out and counted. With `log`, only what is above zero.
export function extent(lines, [from, to], { clip = false, log = false } = {}) {
  const values = [];
  for (const { data } of lines) {
    for (let at = 0; at < data.count; at += 1) {
      if (data.end[at] < from || data.begin[at] > to) continue;
      for (const value of [data.low[at], data.high[at], data.smooth[at]])
        if (!Number.isNaN(value) && (!log || value > 0)) values.push(value);
    }
  }
  if (values.length === 0) return { range: null, clipped: 0 };
  if (!clip || values.length < 10) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return { range: [low, high], clipped: 0 };
  }
  values.sort((a, b) => a - b);
  const range = [values[Math.ceil((values.length - 1) * 0.05)], values[Math.floor((values.length - 1) * 0.95)]];
  return { range, clipped: values.filter((value) => value < range[0] || value > range[1]).length };
}

// The first and the last place of all lines.
export function span(lines) {
  let [from, to] = [Infinity, -Infinity];
  for (const { data } of lines) {
    if (data.count === 0) continue;
    from = Math.min(from, data.begin[0]);
    to = Math.max(to, data.end[data.count - 1]);
  }
  return from <= to ? [from, to] : null;
}
