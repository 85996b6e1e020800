// @ts-check
// What the charts show, from the portal: as few calls as can be fetch the curves of every chart that
// is on the screen, answers that nobody waits for any more are dropped, and points of the live
// stream go on with what is there.

import { byCall, curvesOf, tagsOf, tagsOfACall } from "./ask.js";
import { describe } from "./chart.js";
import { bundled } from "./group.js";
import { columns, extend } from "./series.js";
import { isLogX } from "./view.js";

const AFTER_FAILURE = 5000;

export function makeFeed(board) {
  let [timer, due, round, request, parts] = [null, Infinity, 0, null, new Map()];

  // Asks after `delay` milliseconds, or when it is due already: points that come every second
  // must not put it off for ever. `anew` is for a control that is still moved.
  function schedule(delay = 20, anew = false) {
    const at = performance.now() + delay;
    if (due <= at && !anew) return;
    clearTimeout(timer);
    due = at;
    timer = setTimeout(() => {
      due = Infinity;
      ask();
    }, delay);
  }

  // For a download also those that are not on the screen.
  let isWhole = false;
  const wanting = () => board.charts.filter((chart) => chart.stale && (chart.near || isWhole));

  // Waits until every chart shows what was asked for; answers whether all of them do.
  async function settle() {
    isWhole = true;
    try {
      for (let tries = 0; tries < 3 && wanting().length > 0; tries += 1) await ask();
    } finally {
      isWhole = false;
    }
    return board.charts.every(({ stale, failed }) => !stale && !failed);
  }

  // Asks for every chart on the screen that shows what is no longer right.
  async function ask() {
    for (const chart of wanting().filter(({ about }) => about.local)) draw(chart, chart.about.local());
    const wanted = wanting();
    if (wanted.length === 0) return;
    request?.abort();
    request = new AbortController();
    const mine = (round += 1);
    const { signal } = request;
    board.root.setAttribute("aria-busy", "true");
    try {
      await Promise.all(
        byWindow(wanted).map(async (charts) => {
          const parameters = asked(charts[0].domain);
          // The first charts are drawn while the others are still asked for.
          for (const some of byCall(charts, tagsOfACall(board.sources, parameters.points))) {
            const items = await curvesOf(board.base, board.sources, tagsOf(some), parameters, signal);
            if (mine !== round) return;
            const found = new Map(items.map((item) => [nameOf(item.id, item.run, item.tag), item]));
            for (const chart of some) fill(chart, found);
          }
        }),
      );
    } catch (error) {
      if (error.name === "AbortError" || mine !== round) return;
      for (const chart of wanted) chart.failed = error.message;
      board.paint(wanted);
      schedule(AFTER_FAILURE);
      return;
    } finally {
      if (mine === round) board.root.removeAttribute("aria-busy");
    }
    // What came onto the screen meanwhile.
    if (mine === round && wanting().length > 0) schedule();
  }

  // A window with a fiftieth more on each side, so that lines run to its edges.
  function asked(domain) {
    const { x, by, smooth } = board.view;
    const parameters = { x, points: pointsOf(board) };
    if (x === "metric") parameters.by = by;
    if (smooth > 0) parameters.smoothing = smooth;
    if (isLogX(board.view)) parameters.log = true;
    if (!domain) return parameters;
    const air = (domain[1] - domain[0]) / 50;
    const [from, to] = [domain[0] - air, domain[1] + air];
    return { ...parameters, ...(x === "step" ? { from: Math.floor(from), to: Math.ceil(to) } : { from, to }) };
  }

  function fill(chart, found) {
    draw(
      chart,
      chart.about.parts.flatMap((part) => {
        const { source, run, tag, key, label, color, dash, role } = part;
        const item = found.get(nameOf(source.id, run, tag));
        return item
          ? [
              {
                key,
                label,
                color,
                dash,
                role,
                source,
                run,
                tag,
                revision: item.revision ?? 0,
                data: columns(item, chart.about.kind !== "rate"),
              },
            ]
          : [];
      }),
    );
  }

  function draw(chart, lines) {
    chart.failed = null;
    chart.stale = false;
    chart.filled = chart.about.parts.length;
    chart.single = lines;
    bundle([chart]);
    board.paint([chart]);
  }

  // The lines of a chart: those of the runs, or one for each group of those that are shown.
  function bundle(charts = board.charts) {
    for (const chart of charts) {
      const { groupOf } = board;
      chart.lines = groupOf
        ? bundled(
            chart.single.filter((line) => !board.isOff(line.key)),
            groupOf,
          )
        : chart.single;
    }
  }

  function refresh() {
    for (const chart of board.charts) chart.stale = true;
    schedule();
  }

  // Where points that come belong.
  function learnParts() {
    parts = new Map(
      board
        .abouts()
        .flatMap((about) => about.parts.map((part) => [nameOf(part.source.id, part.run, part.tag), { about, part }])),
    );
  }

  // New points of the live stream, told since revision `before`. Answers whether all of them
  // were of known curves.
  function take(source, curves, id, before) {
    let known = true;
    for (const { run, tag, points } of curves) {
      const found = parts.get(nameOf(source.id, run, tag));
      if (!found) {
        known = false;
        continue;
      }
      learn(found.part, points);
      const chart = board.charts.find(({ about }) => about === found.about);
      if (!chart) continue;
      describe(chart);
      const line = chart.lines.find((line) => line.source === source && line.run === run && line.tag === tag);
      // Where a point lies on another curve's values is for the portal to say.
      if (board.view.x === "metric") chart.stale = true;
      else if (line && line.revision < id) goOn(chart, line, points, { id, before });
      board.paint([chart]);
    }
    if (wanting().length > 0) schedule(1000);
    return known;
  }

  function goOn(chart, line, points, { id, before }) {
    const place = (step, wall) => board.placeOf(line, step, wall);
    const last = line.data.end[line.data.count - 1] ?? -Infinity;
    // An answer may be newer than the stream was: what it holds is not added again.
    const fresh = line.revision > before ? points.filter(([step, wall]) => place(step, wall) > last) : points;
    const inView = chart.domain ? fresh.filter(([step, wall]) => place(step, wall) <= chart.domain[1]) : fresh;
    line.revision = id;
    if (inView.length === 0) return;
    // In a window the points before it, which smoothing needs, are not known.
    const mustAsk = chart.domain !== null && line.data.hasSmooth;
    if (mustAsk || !extend(line.data, inView, place, board.view.smooth) || line.data.count > 2 * pointsOf(board))
      chart.stale = true;
  }
  return { schedule, take, refresh, learnParts, bundle, settle };
}

// Of a curve among those of all runs.
const nameOf = (id, run, tag) => `${id}\n${run}\n${tag}`;

function byWindow(charts) {
  const found = new Map();
  for (const chart of charts) found.set(String(chart.domain), [...(found.get(String(chart.domain)) ?? []), chart]);
  return [...found.values()];
}

// A bucket a pixel; fewer where many lines lie over one another.
function pointsOf({ root, sources, charts }) {
  const width = root.querySelector(".place")?.clientWidth ?? 600;
  const lines = Math.max(sources.length, ...charts.map(({ about }) => about.parts.length));
  return Math.round(Math.min(1000, 12_000 / lines, Math.max(200, width)));
}

// What the summary of a curve says once these points are in it.
function learn(part, points) {
  for (const [step, wall, value] of points) {
    part.count += 1;
    part.last = value;
    part.last_step = step;
    part.last_wall_time = wall;
    if (value === null) {
      part.nonfinite += 1;
      part.first_nonfinite_step ??= step;
      continue;
    }
    if (part.min === null || value < part.min) [part.min, part.min_step] = [value, step];
    if (part.max === null || value > part.max) [part.max, part.max_step] = [value, step];
  }
}
