// @ts-check
// The line above one run's charts: how far it is, when it ends, its best values, and what was
// left out while it was read.

import { $, element, humanDuration } from "../dom.js";
import { bestPart } from "./chart.js";
import { BEST_RULE, bestOf } from "./tags.js";
import { curveOf } from "./ask.js";
import { extentOf, slide, tell } from "./progress.js";
import { formatCount, formatStep, formatValue } from "./scale.js";

// The speed is that of the last minutes, at least of a tenth of the run.
const WINDOW = 120;
// Whoever has been silent for longer (seconds) has most likely ended.
const ALARM = 3600;
// Steps count from 0, so the last one is one less than the total.
const isOver = ({ done, total }) => total !== null && done >= total - 1;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, {
  weekday: "short",
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

// Answers the function that brings it up to date.
export function makeSummary(board) {
  const [source] = board.sources;
  const line = element("p", { class: "curve-summary" });
  const bar = element("progress", { max: "1", "aria-label": "Progress of the run", hidden: true });
  board.root.querySelector("h2").after(line, bar);
  let [window, asked] = [[], false];

  // With what has come since the page was opened.
  const tags = () => board.abouts().flatMap(({ parts }) => parts);
  const hparams = () => Object.assign({}, ...source.metrics.runs.map(({ hparams }) => hparams ?? {}));
  const seconds = () => {
    const all = tags();
    const whole =
      Math.max(...all.map((tag) => tag.last_wall_time)) - Math.min(...all.map((tag) => tag.first_wall_time));
    return Math.max(WINDOW, whole / 10);
  };
  // The curve whose steps are counted: the one that is furthest, of those with most points.
  const counted = (unit) =>
    board
      .abouts()
      .filter((about) => about.unit === unit)
      .flatMap((about) => about.parts)
      .reduce((most, part) => (!most || part.last_step > most.last_step ? part : most), null);

  // What was written before this page was opened.
  async function readWindow(part) {
    asked = true;
    try {
      const { buckets } = await curveOf(board.base, source, part, {
        x: "wall",
        from: part.last_wall_time - seconds(),
        points: 50,
      });
      for (const bucket of buckets)
        for (const point of [
          [bucket.first_step, bucket.first_x],
          [bucket.last_step, bucket.last_x],
        ])
          window = slide(window, point, seconds());
      show();
    } catch {
      /* The end is not told then. */
    }
  }
  board.heard = (curves) => {
    const extent = extentOf(hparams(), tags());
    const part = counted(extent?.unit ?? "step");
    const mine = part && curves.find(({ run, tag }) => run === part.run && tag === part.tag);
    for (const [step, wall] of mine?.points ?? []) window = slide(window, [step, wall], seconds());
    show();
  };

  function show() {
    const extent = extentOf(hparams(), tags());
    const { complete } = source.metrics;
    const part = extent && counted(extent.unit);
    if (extent && part && !complete && !asked) readWindow(part);
    const said = extent ? tell(extent, window, Date.now() / 1000) : {};
    const chips = [];
    if (extent) {
      const words = [
        `${extent.unit} ${formatCount(extent.done)}${extent.total ? ` of ${formatCount(extent.total)}` : ""}`,
      ];
      if (!complete && said.rate && said.quiet === null && !isOver(extent))
        words.push(
          said.rate >= 1
            ? `${formatValue(Number(said.rate.toPrecision(2)))} ${extent.unit}s/s`
            : `${formatValue(Number((1 / said.rate).toPrecision(2)))} s/${extent.unit}`,
        );
      chips.push(element("span", { class: "chip far" }, words.join(" · ")));
      if (!complete && said.endsAt) {
        const at = new Date(said.endsAt * 1000);
        chips.push(
          element(
            "b",
            { class: "ends" },
            `estimated end ${(at.toDateString() === new Date().toDateString() ? clock : day).format(at)}`,
          ),
        );
      }
      // Long after, it is over, whether anybody said so or not.
      if (!complete && said.quiet && !isOver(extent))
        chips.push(
          element(
            "span",
            { class: said.quiet < ALARM ? "badge warn" : "muted" },
            `no new data for ${humanDuration(said.quiet)}`,
          ),
        );
    }
    bar.hidden = complete || !said.share || isOver(extent);
    if (said.share) bar.value = said.share;
    chips.push(...stars(), ...leftOut());
    const empty = $("[data-until-curves]");
    if (empty && extent) empty.remove();
    if (chips.length === 0 && !empty)
      chips.push(
        element(
          "span",
          { class: "muted" },
          complete ? "No curves were written." : "No curves yet. They appear here when data arrives.",
        ),
      );
    const text = chips.map((chip) => `${chip.className}${chip.textContent}`).join();
    if (line.dataset.text === text) return;
    line.dataset.text = text;
    line.replaceChildren(...chips);
  }

  // The best of each of the two main things, of the validation where there is one.
  function stars() {
    return ["accuracy", "loss"].flatMap((kind) => {
      const about = board.abouts().find((about) => about.kind === kind);
      if (!about) return [];
      const validation = about.parts.filter((part) => part.role === "validation");
      const found = bestPart(validation.length ? validation : about.parts, bestOf(about.name));
      if (!found) return [];
      const name = found.part.role ? `${found.part.role} ${about.title}` : about.title;
      return [
        element(
          "span",
          { class: "chip best", title: BEST_RULE },
          `best ${name} ${formatValue(found.value)} at ${about.unit} ${formatStep(found.step)}`,
        ),
      ];
    });
  }

  function leftOut() {
    const all = source.metrics.runs.map(({ skipped }) => skipped ?? {});
    const isCut = source.metrics.truncated;
    const sum = (name) => all.reduce((total, skipped) => total + Number(skipped[name] ?? 0), 0);
    const words = [
      [sum("damaged"), "damaged records"],
      [sum("oversized"), "oversized records"],
      [sum("surplus"), "values above the limit"],
    ]
      .filter(([count]) => count > 0)
      .map(([count, what]) => `${formatCount(count)} ${what}`);
    if (all.some(({ lost }) => lost)) words.push("the rest of a damaged file");
    if (isCut) words.push("curves beyond the first 20\u202f000");
    return words.length ? [element("span", { class: "badge warn" }, `skipped: ${words.join(", ")}`)] : [];
  }
  setInterval(() => {
    if (!document.hidden && !source.metrics.complete) show();
  }, 5000);
  return show;
}
