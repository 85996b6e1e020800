// @ts-check
// Scales of a chart's axes: where a value stands in pixels and back, at which round values
// the axis has its marks, and how numbers and times are written. Nothing here draws.

const { abs, ceil, floor, log10, max, min, pow, round } = Math;

// A scale from `domain` (two numbers) to `range` (two pixels). What a logarithmic scale cannot
// show has no place: `map` answers NaN, and a line has a gap there.
export function scale(kind, domain, range) {
  const isLog = kind === "log";
  const bend = isLog ? (value) => (value > 0 ? log10(value) : NaN) : (value) => value;
  const [from, to] = domain.map(bend);
  const slope = to === from ? 0 : (range[1] - range[0]) / (to - from);
  const middle = (range[0] + range[1]) / 2;
  return {
    kind,
    domain,
    range,
    map: (value) =>
      slope === 0 ? (Number.isNaN(bend(value)) ? NaN : middle) : range[0] + (bend(value) - from) * slope,
    invert: (pixel) => {
      const value = slope === 0 ? from : from + (pixel - range[0]) / slope;
      return isLog ? pow(10, value) : value;
    },
  };
}

// The round values within [low, high], about `count` of them: 1, 2 or 5 times a power of ten.
export function ticks(low, high, count) {
  if (!(high > low)) return Number.isFinite(low) ? [low] : [];
  const rough = (high - low) / max(1, count);
  const power = pow(10, floor(log10(rough)));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) ?? 10);
  const marks = [];
  for (let number = ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number += 1) {
    // Through text, so that 3 × 0.1 is 0.3.
    marks.push(Number((number * step).toPrecision(12)));
  }
  return marks;
}

// Powers of ten; where there are few, also 2 and 5 times those; where there is none, round values.
export function logTicks(low, high, count) {
  if (!(low > 0) || !(high > low)) return ticks(low, high, count);
  const [from, to] = [floor(log10(low)), ceil(log10(high))];
  const every = max(1, ceil((to - from) / max(1, count)));
  const marks = [];
  for (let exponent = from; exponent <= to; exponent += 1) {
    const factors = (to - from) * 2 <= count ? [1, 2, 5] : [1];
    for (const factor of exponent % every === 0 ? factors : []) {
      const value = Number(`${factor}e${exponent}`);
      if (low <= value * (1 + 1e-12) && value <= high * (1 + 1e-12)) marks.push(value);
    }
  }
  return marks.length < 2 ? ticks(low, high, count) : marks;
}

const DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];

// Marks of a time axis in seconds. `shift` is how far the reader's clock is from UTC (seconds),
// so that hours of the wall clock are round.
export function timeTicks(low, high, count, shift = 0) {
  if (!(high > low)) return [low];
  const rough = (high - low) / max(1, count);
  if (rough < 1) return ticks(low, high, count);
  const step = DURATIONS.find((seconds) => seconds >= rough) ?? 86_400 * ceil(rough / 86_400);
  const marks = [];
  for (let at = ceil((low + shift) / step) * step; at <= high + shift; at += step) marks.push(at - shift);
  return marks;
}

// `0.2312`, `3.0e-5`, `1.24e+7`: four digits, and no more zeros than can be counted.
export function formatValue(value) {
  if (value === null || value === undefined) return "";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "+∞" : "−∞";
  if (value === 0) return "0";
  const size = abs(value);
  const text =
    size < 1e-3 || size >= 1e6 ? Number(value.toPrecision(3)).toExponential() : Number(value.toPrecision(4)).toString();
  return text.replace("-", "−").replace("e−", "e-").replace("e+", "e");
}

// A mark of a value axis, as short as its neighbours' distance allows.
export function formatTick(value, step) {
  if (value === 0) return "0";
  const size = abs(value);
  if (size < 1e-3 || size >= 1e6)
    return value
      .toExponential(max(0, min(3, floor(log10(size)) - floor(log10(step || size)))))
      .replace("e+", "e")
      .replace("-", (_, at) => (at === 0 ? "−" : "-"));
  const digits = max(0, min(8, -floor(log10((step || size) * 1.0000001))));
  return value.toFixed(digits).replace("-", "−");
}

// Steps: every digit up to 9999, then with a letter while that loses nothing.
export function formatStep(step) {
  const size = abs(step);
  for (const { letter, unit } of [
    { letter: "M", unit: 1e6 },
    { letter: "k", unit: 1e3 },
  ]) {
    if (size >= 10_000 && size >= unit && Number.isInteger((step / unit) * 100)) return `${step / unit}${letter}`;
  }
  return Number.isInteger(step) ? String(step) : formatValue(step);
}

// Every digit, in groups: `12 400`.
export function formatCount(count) {
  return String(round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

const two = (number) => String(number).padStart(2, "0");

// Seconds as `0:42`, `12:30`, `3:05:00`, `2 d 3:05`.
export function formatElapsed(seconds) {
  const sign = seconds < 0 ? "−" : "";
  const whole = round(abs(seconds));
  if (abs(seconds) < 10 && !Number.isInteger(seconds)) return `${sign}${formatValue(abs(seconds))} s`;
  const [days, hours, minutes] = [floor(whole / 86_400), floor(whole / 3600) % 24, floor(whole / 60) % 60];
  if (days) return `${sign}${days} d${hours || minutes ? ` ${hours}:${two(minutes)}` : ""}`;
  return hours ? `${sign}${hours}:${two(minutes)}:${two(whole % 60)}` : `${sign}${minutes}:${two(whole % 60)}`;
}

// A moment of the reader's clock, with the day where the axis spans more than one.
export function formatMoment(seconds, span) {
  const at = new Date(seconds * 1000);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (span < 600) return `${clock}:${two(at.getSeconds())}`;
  return span > 86_400 ? `${at.getDate()}.${at.getMonth() + 1}. ${clock}` : clock;
}
