// @ts-check
// Draws training curves into each element with `data-charts`: of one run, or of the run that a
// job writes (`data-id`, `data-kind`), or of several runs, compared (`data-ids`, separated by commas);
// with `data-overlay` without the table of a comparison, below another one; with `data-part="hardware"` what a job makes of
// the machine alone.
// Everything else on the page works without it.

import { $$, announce, element, seen } from "../dom.js";
import { addressOf, metricsOf, runOf, runOfJob } from "./ask.js";
import { makeBoard } from "./board.js";
import { keyButton } from "./chart.js";
import { look } from "./colours.js";
import { makeHardware } from "./hardware.js";
import { follow } from "./live.js";
import { makeSummary } from "./summary.js";

const API = "/api/v1";
// How often runs that are compared are looked at while they grow (ms), and at most while they do not.
const LOOK = 5000,
  LOOK_SELDOM = 60_000;

export async function start(root) {
  root.classList.add("curves");
  // Charts have headings of the third level, wherever they stand.
  const heading = element("h2", { class: "visually-hidden" }, "Curves");
  const said = element("p", { class: "muted curve-wait", role: "status" }, "Loading curves…");
  root.replaceChildren(heading, said);
  if (root.dataset.part === "hardware") {
    said.textContent = "Use of cores, memory and GPUs over time.";
    hardwareAlone(said, root.dataset.id);
    return;
  }
  const isOverlay = "overlay" in root.dataset;
  let sources = [];
  try {
    const ids =
      root.dataset.kind === "job"
        ? [await written(root.dataset.id, said)]
        : (root.dataset.ids ?? root.dataset.id).split(",");
    sources = ids.map((id) => ({ id, name: root.dataset.name ?? id }));
    await Promise.all(
      sources.map(async (source) => {
        const isCompared = ids.length > 1 || isOverlay;
        const [metrics, run] = await Promise.all([metricsOf(API, source), isCompared ? runOf(API, source) : null]);
        Object.assign(source, { metrics, run, name: run?.name ?? source.name });
      }),
    );
  } catch (error) {
    const again = element("button", { type: "button", class: "btn" }, "Try again");
    again.addEventListener("click", () => start(root));
    root.replaceChildren(
      element(
        "p",
        { class: "note bad", role: "alert" },
        element("span", {}, `Failed to load the curves: ${error.message} `, again),
      ),
    );
    return;
  }
  said.nextElementSibling?.remove();
  said.remove();
  unlike(sources);
  const board = makeBoard(root, API, sources);
  if (board.comparing) {
    if (isOverlay) board.onShow = makeLegend(board);
    else {
      const { makeComparison } = await import("./compare.js");
      board.onShow = makeComparison(board);
    }
    board.load();
    watch(board);
  } else {
    board.onShow = makeSummary(board);
    board.load();
    live(board);
    if (root.dataset.kind === "job") makeHardware(board, root.dataset.id);
  }
}

// Which line is whose, above all charts: a press switches a run off everywhere.
function makeLegend(board) {
  const buttons = board.sources.map((source, at) =>
    keyButton({ key: source.id, label: source.name, ...look(at) }, board),
  );
  board.root
    .querySelector("h2")
    .after(element("ul", { class: "keys" }, ...buttons.map((button) => element("li", {}, button))));
  return () => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(!board.isOff(button.dataset.key)));
  };
}

// The id of a job's run, as soon as there is one.
async function written(job, said) {
  for (;;) {
    const run = await runOfJob(API, job);
    if (run) return run.id;
    said.textContent = "Curves appear here when the job writes event files or metrics.jsonl below its log directory.";
    if (!said.nextSibling) hardwareAlone(said, job);
    await new Promise((resolve) => setTimeout(resolve, LOOK));
    await seen();
  }
}

// A job may write no curves at all; what it makes of the machine is measured nevertheless.
function hardwareAlone(said, job) {
  const place = element("div", { class: "curves" });
  said.after(place);
  const board = makeBoard(place, API, [{ id: job, name: job, metrics: { runs: [], complete: false } }]);
  // There are no steps.
  if (board.view.x === "step") board.view = { ...board.view, x: "relative" };
  makeHardware(board, job);
}

// Runs of one name are told apart by the end of their ids.
function unlike(sources) {
  for (const source of sources) {
    if (sources.some((other) => other !== source && other.name === source.name))
      source.label = `${source.name} ${source.id.slice(-4)}`;
  }
  for (const source of sources) source.name = source.label ?? source.name;
}

// One run, point by point.
function live(board) {
  const [source] = board.sources;
  const address = `${addressOf(API, source)}/events`;
  let reading = null;
  const reload = (refresh, after = 500) => {
    reading ??= new Promise((resolve) => setTimeout(resolve, after))
      .then(() => metricsOf(API, source))
      .then(
        (metrics) => {
          source.metrics = metrics;
          board.load();
          board.paint(board.charts);
          if (refresh) board.refresh();
        },
        () => {},
      )
      .finally(() => {
        reading = null;
      });
  };
  follow(address, source.metrics.revision, (kind, data, id, before) => {
    if (kind === "points") {
      if (!board.take(source, data.curves, id, before)) reload(false);
      board.heard?.(data.curves);
    } else if (kind === "state") {
      const ended = data.complete && !source.metrics.complete;
      source.metrics.complete = data.complete;
      source.state = data;
      board.onShow();
      if (ended) announce("The run has ended. All points have been read.");
    } else if (kind === "checkpoints") reload(false, 2000);
    else if (kind === "reset") reload(true);
  });
}

// Several runs, now and then: fifty streams would be too many for a browser.
function watch(board) {
  let pause = LOOK;
  const look = async () => {
    const growing = board.sources.filter((source) => !source.metrics.complete);
    if (growing.length === 0) return;
    await seen();
    if (!board.root.isConnected) return;
    const before = growing.map((source) => source.metrics.revision);
    await Promise.all(
      growing.map(async (source) => {
        source.metrics = await metricsOf(API, source).catch(() => source.metrics);
      }),
    );
    const hasGrown = growing.some((source, at) => source.metrics.revision !== before[at]);
    if (hasGrown) {
      board.load();
      board.refresh();
    }
    pause = hasGrown ? LOOK : Math.min(pause * 1.5, LOOK_SELDOM);
    setTimeout(look, pause);
  };
  setTimeout(look, pause);
}

for (const root of $$("[data-charts]")) start(root);
