// The rules of curves that need no browser: scales and their marks, which tags make one chart,
// what is best and nearest, gaps, smoothing that goes on, the view in the address, pictures as
// SVG, how a run's end is told, and that the colours of lines can be told apart.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { curves } from "./modules.mjs";

const [ask, scales, tags, series, view, scene, paint, progress, live, colours, label, kept, save] = await Promise.all(
  [
    "ask",
    "scale",
    "tags",
    "series",
    "view",
    "scene",
    "paint",
    "progress",
    "live",
    "colours",
    "label",
    "kept",
    "save",
  ].map(curves),
);

/** An answer with a bucket for each value; `null` is not finite. */
function answer(values, more = {}) {
  const bucket = (value, step) => ({
    count: 1,
    first_step: step,
    last_step: step,
    min: value,
    min_step: value === null ? null : step,
    max: value,
    max_step: value === null ? null : step,
    mean: value,
  });
  return { count: values.length, x: "step", buckets: values.map(bucket), nonfinite: [], ...more };
}

const line = (values, more = {}) => ({
  key: "k",
  label: "train",
  color: "c1",
  dash: [],
  data: series.columns(answer(values)),
  ...more,
});

/** Averages of values at steps, each earlier one counted by its distance, by the published formula. */
function averages(points, smoothing, range) {
  return points.map(([step], at) => {
    const counts = points.slice(0, at + 1).map(([from]) => Math.sqrt(smoothing) ** (((step - from) * 1000) / range));
    return (
      points.slice(0, at + 1).reduce((sum, [, value], from) => sum + value * counts[from], 0) /
      counts.reduce((sum, count) => sum + count, 0)
    );
  });
}

test("charts are asked for in their order, as many at a time as a call takes", () => {
  const chart = (...tags) => ({ about: { parts: tags.map((tag) => ({ tag })) } });
  const charts = [chart("a", "b"), chart("b", "c"), chart("d"), chart("e", "f", "g", "h"), chart("a")];
  const calls = ask.byCall(charts, 3).map((some) => ask.tagsOf(some).join(""));
  assert.deepEqual(calls, ["abc", "d", "efgh", "a"]);
  assert.deepEqual(ask.byCall(charts, 100), [charts]);
  assert.equal(ask.tagsOfACall(Array(100), 120), 4);
  assert.equal(ask.tagsOfACall(Array(1), 1000), 190);
});

test("marks stand at round values within the axis", () => {
  assert.deepEqual(scales.ticks(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(scales.ticks(-3, 12, 4), [0, 5, 10]);
  assert.deepEqual(scales.ticks(0.1, 0.30000000000000004, 4), [0.1, 0.15, 0.2, 0.25, 0.3]);
  assert.deepEqual(scales.ticks(7, 7, 4), [7]);
  assert.deepEqual(scales.logTicks(0.001, 1000, 3), [0.01, 1, 100]);
  assert.deepEqual(scales.logTicks(0.9, 60, 6), [1, 2, 5, 10, 20, 50]);
  assert.deepEqual(scales.logTicks(2.1, 2.4, 3), [2.1, 2.2, 2.3, 2.4]);
  for (const [low, high] of [
    [0, 7],
    [1e-9, 3e-9],
    [-5e12, 8e12],
    [0.999, 1.001],
  ]) {
    const marks = scales.ticks(low, high, 6);
    assert.ok(marks.length >= 3 && marks.length <= 13, `${marks}`);
    assert.ok(
      marks.every((mark) => mark >= low - 1e-9 * Math.abs(low) && mark <= high * (1 + 1e-9)),
      `${marks}`,
    );
  }
});

test("marks of time are round on the reader's clock", () => {
  assert.deepEqual(scales.timeTicks(0, 3600, 4), [0, 900, 1800, 2700, 3600]);
  // Half past five east of UTC: full hours there.
  assert.ok(scales.timeTicks(0, 36_000, 5, 19_800).every((at) => (at + 19_800) % 7200 === 0));
  assert.equal(scales.formatElapsed(59.6), "1:00");
  assert.equal(scales.formatElapsed(11_100), "3:05:00");
  assert.equal(scales.formatElapsed(183_900), "2 d 3:05");
});

test("a logarithmic scale has no place for what is not above zero", () => {
  const log = scales.scale("log", [0.01, 100], [200, 0]);
  assert.equal(log.map(1), 100);
  assert.ok(Math.abs(log.invert(50) - 10) < 1e-9);
  for (const value of [0, -1, NaN]) assert.ok(Number.isNaN(log.map(value)));
  const flat = scales.scale("linear", [3, 3], [0, 100]);
  assert.equal(flat.map(3), 50);
});

test("numbers are short and lose nothing that is compared", () => {
  assert.deepEqual([0.23124, 0, 1e-5, 123456, 12_400_000, -0.5, NaN, Infinity, null].map(scales.formatValue), [
    "0.2312",
    "0",
    "1e-5",
    "123500",
    "1.24e7",
    "−0.5",
    "NaN",
    "+∞",
    "",
  ]);
  assert.deepEqual([9999, 12_500, 1_250_000, 12_345, 12_345.5].map(scales.formatStep), [
    "9999",
    "12.5k",
    "1.25M",
    "12345",
    "12350",
  ]);
  assert.equal(scales.formatTick(0.3, 0.1), "0.3");
  assert.equal(scales.formatTick(0.25, 0.05), "0.25");
});

test("a tag's part is its training, its validation or neither, whoever wrote it", () => {
  const part = (run, tag) => Object.values(tags.partOf(run, tag)).join(":");
  assert.equal(part(".", "train/loss"), "train:loss");
  assert.equal(part(".", "Loss/val"), "validation:Loss");
  assert.equal(part(".", "val_loss"), "validation:loss");
  assert.equal(part(".", "eval/loss"), "validation:loss");
  assert.equal(part(".", "train_loss_step"), "train:loss_step");
  assert.equal(part(".", "model/valAccuracy"), "validation:model/Accuracy");
  assert.equal(part("validation", "epoch_loss"), "validation:epoch_loss");
  assert.equal(part("version_0/train", "epoch_loss"), "train:epoch_loss");
  assert.equal(part(".", "value"), ":value");
  assert.equal(part(".", "trainable_parameters"), ":trainable_parameters");
  assert.equal(part(".", "val"), ":val");
  assert.equal(tags.baseRun("version_0/validation"), "version_0");
});

test("what a metric is called says which end is good", () => {
  const best = {
    min: ["loss", "val/loss", "eval_perplexity", "rmse", "top5_error"],
    max: ["accuracy", "acc1", "val/mAP", "f1", "auc", "reward"],
    null: ["lr", "learning_rate", "gradients/norm", "epoch", "explosion"],
  };
  for (const [rule, names] of Object.entries(best))
    for (const name of names) assert.equal(String(tags.bestOf(name)), rule, name);
});

test("training and validation share a chart; loss stands left of accuracy", () => {
  const curve = (tag, run = ".") => ({ run, tag, count: 10 });
  const [main, layers] = tags.chartsOf(
    [
      "lr",
      "val/accuracy",
      "train/loss",
      "val/loss",
      "train/accuracy",
      "layers/1/w",
      "layers/10/w",
      "layers/2/w",
      "hp_metric",
    ].map((tag) => ({ ...curve(tag), count: tag === "hp_metric" ? 1 : 10 })),
  );
  assert.deepEqual(
    main.charts.map(({ name }) => name),
    ["loss", "accuracy", "lr"],
  );
  assert.deepEqual(
    main.charts[0].parts.map(({ tag }) => tag),
    ["train/loss", "val/loss"],
  );
  assert.deepEqual(
    [layers.name, ...layers.charts.map(({ name }) => name)],
    ["layers", "layers/1/w", "layers/2/w", "layers/10/w"],
  );
  const keras = tags.chartsOf([
    curve("epoch_loss", "train"),
    curve("epoch_loss", "validation"),
    curve("evaluation_loss_vs_iterations", "validation"),
  ]);
  assert.deepEqual(
    keras[0].charts.map(({ unit, parts }) => `${unit} ${parts.length}`),
    ["step 1", "epoch 2"],
  );
  assert.equal(tags.unitOf("epoch"), "step", "which epoch it is, at each step");
  // Compared, each tag is a chart of its own.
  const compared = tags.chartsOf(
    ["val/accuracy", "train/loss", "lr", "val/loss", "train/accuracy"].map((tag) => curve(tag)),
    { pair: false },
  );
  assert.deepEqual(
    compared.map(({ name, charts }) => [name, ...charts.map(({ name }) => name)]),
    [
      ["", "lr"],
      ["train", "train/loss", "train/accuracy"],
      ["val", "val/loss", "val/accuracy"],
    ],
  );
});

test("several learning rates are a section, one alone is not", () => {
  const names = (list) =>
    tags
      .chartsOf(list.map((tag) => ({ run: ".", tag, count: 9 })))
      .map(({ name, charts }) => `${name}: ${charts.map(({ name }) => name).join(" ")}`);
  assert.deepEqual(names(["loss", "lr", "lr-encoder"]), [": loss", "lr: lr lr-encoder"]);
  assert.deepEqual(names(["loss", "lr"]), [": loss lr"]);
});

test("pinned charts come first, in the order of pinning, and once", () => {
  const groups = tags.chartsOf(
    ["loss", "accuracy", "layers/1/w", "layers/2/w", "layers/3/w"].map((tag) => ({ run: ".", tag, count: 9 })),
  );
  const shown = (pinned) =>
    tags.withPinned(groups, pinned).map(({ name, charts }) => `${name}: ${charts.map(({ id }) => id).join(" ")}`);
  assert.deepEqual(shown(["layers/2/w", "loss", "of another run"]), [
    "Pinned: layers/2/w loss",
    ": accuracy",
    "layers: layers/1/w layers/3/w",
  ]);
  assert.deepEqual(shown(["loss", "accuracy"]), ["Pinned: loss accuracy", "layers: layers/1/w layers/2/w layers/3/w"]);
  assert.equal(tags.withPinned(groups, ["none"]), groups);
});

test("what a browser keeps is read whatever it holds", () => {
  for (const text of [
    null,
    "",
    "no JSON",
    "null",
    "7",
    "[]",
    '{"size": 3, "pinned": "loss", "folded": {}, "limit": 1e9, "order": "x"}',
  ])
    assert.deepEqual(kept.parseKept(text), { ...kept.DEFAULTS, pinned: [], folded: [] }, text);
  const chosen = { size: "large", pinned: ["loss"], folded: ["lr"], order: "low", limit: 20 };
  assert.deepEqual(kept.parseKept(JSON.stringify(chosen)), chosen);
  const many = kept.parseKept(JSON.stringify({ pinned: Array.from({ length: 1000 }, (_, at) => `m${at}`) })).pinned;
  assert.deepEqual([many.length, many.at(-1)], [200, "m999"]);
  assert.deepEqual(kept.toggled(kept.toggled(["a"], "b"), "a"), ["b"]);
});

test("a y axis follows the data but for the ends that were set", () => {
  const chart = { width: 400, height: 200, lines: [line([1, 2, 3])], view: { x: "step", log: false } };
  const domain = (range, log = false) => scene.scalesOf({ ...chart, view: { ...chart.view, log }, range }).y.domain;
  const usual = domain(undefined);
  assert.deepEqual(domain([0, 10]), [0, 10]);
  assert.deepEqual(domain([null, 10]), [usual[0], 10]);
  assert.deepEqual(domain([-4, null]), [-4, usual[1]]);
  assert.deepEqual(domain([50, null]), usual, "an end beyond the other one");
  assert.deepEqual(domain([0, 10], true), domain(undefined, true), "a logarithm has no place for 0");
  assert.deepEqual(domain([0.1, 10], true), [0.1, 10]);
});

test("ranges of y axes are in the address, whatever a chart is called", () => {
  let ranges = view.rangesWith({}, "a:b~c,d", [0.5, null]);
  ranges = view.rangesWith(ranges, "loss", [-1e-7, 2]);
  const text = view.writeView({ ...view.USUAL, ranges });
  assert.deepEqual(view.readView(text).ranges, ranges);
  assert.deepEqual(view.rangesWith(ranges, "loss", [null, null]), { "a:b~c,d": [0.5, null] });
  assert.deepEqual(view.readView("?ranges=loss:2~1,x:~,y:e~3,z:1~2").ranges, { z: [1, 2] });
});

test("the tooltip lists the nearest, the highest or the lowest, so many as are wanted", () => {
  const lines = [5, 1, 9, 3, null, 7].map((value, at) => line([value, value], { label: `${value}`, at }));
  const labels = (most, order) =>
    series.nearest(lines, 0, (value) => value * 10, 40, most, order).near.map(({ line }) => line.label);
  assert.deepEqual(labels(2, "near"), ["5", "3"]);
  assert.deepEqual(labels(3, "high"), ["9", "7", "5"]);
  assert.deepEqual(labels(3, "low"), ["1", "3", "5"]);
  assert.deepEqual(labels(20, "high"), ["9", "7", "5", "3", "1", "null"], "what has no value is last");
  assert.deepEqual(labels(20, "low"), ["1", "3", "5", "7", "9", "null"]);
  assert.equal(series.nearest(lines, 0, (value) => value, 0, 4, "low").more, 2);
});

test("all charts are downloaded as one table and one picture", () => {
  const lines = [line([1, null], { label: 'a "b", c' })];
  assert.equal(
    save.csvOfCharts([{ name: "loss", lines }]),
    'chart,line,x,mean,min,max,smoothed,points\nloss,"a ""b"", c",0,1,1,1,,1\nloss,"a ""b"", c",1,,,,,1\n',
  );
  const drawn = scene.sceneOf({ width: 400, height: 200, lines: [line([1, 2, 3])], view: { x: "step" } });
  const one = paint.svgOf(drawn, { c1: "#123456" }, { title: "loss", legend: [] });
  const sheet = save.sheetOf([one, one]);
  assert.deepEqual(
    [...sheet.matchAll(/clipPath id="([^"]+)"/g)].map(([, id]) => id),
    ["frame-0", "frame-1"],
  );
  assert.ok(sheet.includes("url(#frame-1)") && !sheet.includes("url(#frame)"));
  assert.match(sheet, /^<svg [^>]*width="400" height="468"/);
  assert.equal((sheet.match(/<svg /g) ?? []).length, (sheet.match(/<\/svg>/g) ?? []).length);
});

test("`loss` beside `val_loss` is called the training's", () => {
  const [
    {
      charts: [about],
    },
  ] = tags.chartsOf([
    { run: ".", tag: "loss", count: 2 },
    { run: ".", tag: "val_loss", count: 2 },
  ]);
  label.labelled(about, { comparing: false, sources: [] });
  assert.deepEqual(
    about.parts.map((part) => part.label),
    ["train", "validation"],
  );
  assert.notEqual(about.parts[0].color, about.parts[1].color);
  assert.notDeepEqual(about.parts[0].dash, about.parts[1].dash);
});

test("a spike in a bucket is in the band and in the axis", () => {
  const data = series.columns({
    count: 300,
    x: "step",
    buckets: [
      { count: 100, first_step: 0, last_step: 99, min: 1, min_step: 3, max: 2, max_step: 9, mean: 1.5 },
      { count: 100, first_step: 100, last_step: 199, min: 1, min_step: 150, max: 9.5, max_step: 133, mean: 1.6 },
      { count: 100, first_step: 200, last_step: 299, min: 1, min_step: 250, max: 2, max_step: 233, mean: 1.5 },
    ],
  });
  const chart = {
    width: 400,
    height: 200,
    lines: [{ ...line([]), data }],
    view: { x: "step", log: false, clip: false },
    rule: "max",
  };
  const drawn = scene.sceneOf(chart);
  const { y } = drawn.scales;
  assert.ok(y.domain[1] >= 9.5);
  const area = drawn.shapes.find(({ kind }) => kind === "area");
  assert.ok(Math.abs(Math.min(...area.points.filter((_, at) => at % 2)) - y.map(9.5)) < 1e-6);
  const ring = drawn.shapes.find(({ kind }) => kind === "ring");
  assert.ok(Math.abs(ring.x - drawn.scales.x.map(133)) < 1e-6 && Math.abs(ring.y - y.map(9.5)) < 1e-6);
});

test("a line has gaps where nothing is finite or a log axis has no place", () => {
  const values = [1, 2, null, 4, -1, 5];
  const drawn = (log) =>
    scene
      .sceneOf({ width: 400, height: 200, lines: [line(values)], view: { x: "step", log, clip: false } })
      .shapes.find(({ kind }) => kind === "line")
      .points.filter((_, at) => at % 2)
      .map(Number.isNaN);
  assert.deepEqual(drawn(false), [false, false, true, false, false, false]);
  assert.deepEqual(drawn(true), [false, false, true, false, true, false]);
  assert.deepEqual(series.nonPositive([line(values)]), { points: 1, partly: 0 });
  // A single point between gaps is a dot: a line of one point is nothing.
  assert.ok(
    scene
      .sceneOf({ width: 400, height: 200, lines: [line([null, 3, null])], view: { x: "step" } })
      .shapes.some(({ kind }) => kind === "dot"),
  );
});

test("one value alone stands out: a large dot, its height across the chart, its number", () => {
  const shapes = (lines) => scene.sceneOf({ width: 400, height: 200, lines, view: { x: "step" }, rule: "min" }).shapes;
  const drawn = shapes([line([0.5])]);
  const dot = drawn.find(({ kind }) => kind === "dot");
  assert.ok(dot.radius > 4);
  const across = drawn.find(({ kind, dash }) => kind === "line" && dash?.length);
  assert.deepEqual([across.points[1], across.points[3]], [dot.y, dot.y]);
  assert.ok(across.points[2] - across.points[0] > 300);
  assert.ok(drawn.some(({ kind, text }) => kind === "text" && text === "0.5"));
  assert.ok(!drawn.some(({ kind }) => kind === "ring"), "the best of one is no news");
  const many = shapes(Array.from({ length: 9 }, (_, at) => line([at / 16 + 0.01])));
  assert.equal(many.filter(({ kind }) => kind === "dot").length, 9);
  assert.ok(!many.some(({ kind, bold }) => kind === "text" && bold), "so many numbers would hide one another");
  assert.ok(!shapes([line([1, 2])]).some(({ kind }) => kind === "dot"));
});

test("marks of an axis can be told apart, also where a logarithm has no powers of ten", () => {
  for (const [values, log] of [
    [[0.82, 0.88, 0.93], true],
    [[0.001, 700], true],
    [[5.001, 5.004], false],
    [[-3e-7, 4e-7], false],
  ]) {
    const drawn = scene.sceneOf({ width: 400, height: 200, lines: [line(values)], view: { x: "step", log } });
    const words = drawn.shapes
      .filter(({ kind, anchor, y }) => kind === "text" && anchor === "end" && y < 180)
      .map(({ text }) => text);
    assert.ok(words.length > 1 && new Set(words).size === words.length, `${words}`);
  }
});

test("what is not finite is marked where it was written", () => {
  const data = series.columns(
    answer([1, null, 3, null], {
      nonfinite: [
        { step: 1, wall_time: 1, value: "NaN" },
        { step: 3, wall_time: 3, value: "Infinity" },
      ],
    }),
  );
  const drawn = scene.sceneOf({ width: 400, height: 200, lines: [{ ...line([]), data }], view: { x: "step" } });
  const marks = drawn.shapes.filter(({ kind }) => kind === "mark");
  assert.deepEqual(
    marks.map(({ shape }) => shape),
    ["cross", "up"],
  );
  assert.ok(Math.abs(marks[0].x - drawn.scales.x.map(1)) < 1e-6);
  assert.ok(marks[1].y < marks[0].y);
});

test("clipping leaves out the extremes and says how many", () => {
  const values = [...Array.from({ length: 99 }, (_, at) => at / 100), 1000];
  const lines = [line(values)];
  assert.deepEqual(series.extent(lines, [0, 99]).range, [0, 1000]);
  const clipped = series.extent(lines, [0, 99], { clip: true });
  assert.ok(clipped.range[1] < 1 && clipped.clipped > 0, JSON.stringify(clipped));
  // Only what is in view counts.
  assert.deepEqual(series.extent(lines, [0, 10]).range, [0, 0.1]);
});

test("the nearest lines are told, the closest five from top to bottom", () => {
  const lines = Array.from({ length: 8 }, (_, at) => line([at, at, at], { label: String(at) }));
  const { near, more } = series.nearest(lines, 1.2, (value) => 100 - value * 10, 100 - 52);
  assert.deepEqual(
    near.map(({ line }) => line.label),
    ["7", "6", "5", "4", "3"],
  );
  assert.equal(more, 3);
  assert.ok(near.every(({ at }) => at === 1));
  const { data } = line([5, 6, 7]);
  assert.deepEqual(
    [-10, 0.4, 0.6, 99].map((x) => series.indexAt(data, x)),
    [0, 0, 1, 2],
  );
  assert.equal(series.indexAt(line([]).data, 3), -1);
});

test("the best point is of all points, not of those in view", () => {
  const tag = { min: 0.1, min_step: 950, max: 2.3, max_step: 3 };
  assert.deepEqual(series.best(tag, "min"), { value: 0.1, step: 950 });
  assert.deepEqual(series.best(tag, "max"), { value: 2.3, step: 3 });
  assert.equal(series.best({ min: null, max: null }, "min"), null);
  assert.equal(series.best(tag, null), null);
});

test("new points go on with the curve and its smoothing exactly", () => {
  const values = Array.from({ length: 160 }, (_, at) => Math.sin(at) + at / 10);
  const points = values.map((value, at) => [at, value]);
  // The portal's unit is a thousandth of what it knew: 149 steps.
  const all = averages(points, 0.8, 149);
  const data = series.columns(answer(values.slice(0, 150), { smoothed: all.slice(0, 150) }));
  const fresh = points.slice(150).map(([step, value]) => [step, 1000 + step, value]);
  assert.ok(series.extend(data, fresh.slice(0, 5), (step) => step, 0.8));
  assert.ok(series.extend(data, fresh.slice(5), (step) => step, 0.8));
  assert.equal(data.count, 160);
  for (const [at, value] of all.entries()) assert.ok(Math.abs(data.smooth[at] - value) < 1e-9, `${at}`);
  // What is not finite does not count, and a step back asks for the whole curve.
  assert.ok(series.extend(data, [[160, 1, null, "NaN"]], (step) => step, 0.8));
  assert.ok(Number.isNaN(data.smooth[160]) && data.nonfinite.at(-1).value === "NaN");
  assert.equal(
    series.extend(data, [[3, 1, 1]], (step) => step, 0.8),
    false,
  );
  // A curve that is a tenth longer is smoothed again.
  assert.equal(
    series.extend(data, [[170, 1, 1]], (step) => step, 0.8),
    false,
  );
  assert.equal(
    series.extend(series.columns(answer([], { smoothed: [] })), [[0, 1, 1]], (step) => step, 0.8),
    false,
  );
});

test("smoothing goes on from buckets of many points as from the points themselves", () => {
  const points = Array.from({ length: 1000 }, (_, step) => [step, Math.cos(step / 30)]);
  const all = averages(points, 0.9, 989);
  const buckets = Array.from({ length: 99 }, (_, at) => ({
    count: 10,
    first_step: at * 10,
    last_step: at * 10 + 9,
    min: 0,
    min_step: at * 10,
    max: 1,
    max_step: at * 10,
    mean: 0.5,
  }));
  const data = series.columns({
    count: 990,
    x: "step",
    buckets,
    smoothed: buckets.map(({ last_step }) => all[last_step]),
    nonfinite: [],
  });
  assert.ok(
    series.extend(
      data,
      points.slice(990).map(([step, value]) => [step, 0, value]),
      (step) => step,
      0.9,
    ),
  );
  for (let at = 0; at < 10; at += 1) assert.ok(Math.abs(data.smooth[99 + at] - all[990 + at]) < 1e-9, `${at}`);
});

test("an address holds the whole view and nothing that is usual", () => {
  const wanted = {
    ...view.USUAL,
    x: "relative",
    log: true,
    smooth: 0.62,
    clip: true,
    zoom: { step: [100, 500], time: [0.5, 61.25] },
    find: "lo ss&",
    only: ["loss", "a,b\\c"],
    off: [".:train/loss"],
  };
  const text = view.writeView(wanted, "?page=2&log=1");
  assert.deepEqual(view.readView(text), wanted);
  assert.match(text, /page=2/);
  // Pages refuse a parameter that stands twice.
  const names = [...new URLSearchParams(text).keys()];
  assert.equal(new Set(names).size, names.length);
  assert.equal(view.writeView(view.USUAL, "?id=1&id=2&x=wall"), "?id=1&id=2");
  assert.deepEqual(view.readView("?x=nonsense&smooth=7&zoom=step:9~3&zoom=bad&log=yes"), { ...view.USUAL, zoom: {} });
  assert.deepEqual(view.onAxis(wanted, "wall").zoom, { step: [100, 500] });
  const over = { ...view.onAxis(wanted, "metric", "train/loss"), zoom: { step: [100, 500], value: [0.25, 2] } };
  assert.match(view.writeView(over), /[?&]x=metric&.*by=train\/loss/);
  assert.deepEqual(view.readView(view.writeView(over)), over);
  assert.equal(view.zoomUnit(over, "step"), "value");
  assert.deepEqual(view.onAxis(over, "step"), { ...wanted, x: "step", zoom: { step: [100, 500] } });
  // One says nothing without the other.
  assert.equal(view.readView("?x=metric").x, "step");
  assert.equal(view.readView("?x=wall&by=loss").by, "");
});

test("a picture is well-formed whatever a tag is called", () => {
  const drawn = scene.sceneOf({ width: 400, height: 200, lines: [line([1, 2, 3])], view: { x: "step" } });
  const svg = paint.svgOf(
    drawn,
    { c1: "#123456" },
    { title: `<script>alert("1")</script>\u0000&`, legend: [{ label: "]]><b>", color: "c1", dash: [2] }] },
  );
  assert.ok(!svg.includes("<script>") && !svg.includes("\u0000") && !svg.includes("<b>"));
  assert.match(svg, /&lt;script&gt;alert\(&quot;1&quot;\)&lt;\/script&gt;\ufffd&amp;/);
  assert.match(svg, /stroke="#123456"/);
  assert.equal(paint.pathOf([0, 1, 2, 3, NaN, 0, 4, 5]), "M0 1L2 3M4 5");
  assert.equal((svg.match(/<g /g) ?? []).length, (svg.match(/<\/g>/g) ?? []).length);
});

test("the end is told from the last minutes, and not when nobody can know", () => {
  const tag = (name, last_step, last = 1) => ({ tag: name, last_step, last });
  assert.deepEqual(progress.extentOf({ "trainer.max_steps": "2000" }, [tag("loss", 500)]), {
    unit: "step",
    done: 500,
    total: 2000,
  });
  assert.deepEqual(progress.extentOf({ epochs: 10 }, [tag("epoch_loss", 3)]), { unit: "epoch", done: 4, total: 10 });
  assert.deepEqual(progress.extentOf({ max_epochs: 10 }, [tag("loss", 400), tag("epoch", 400, 4)]), {
    unit: "step",
    done: 400,
    total: 1000,
  });
  assert.deepEqual(progress.extentOf({}, [tag("loss", 400)]), { unit: "step", done: 400, total: null });
  let window = [];
  // Slow at first, then ten steps a second.
  for (const [step, wall] of [
    [0, 0],
    [10, 1000],
    [20, 1001],
    [120, 1011],
    [220, 1021],
  ])
    window = progress.slide(window, [step, wall], 30);
  assert.equal(window[0][1], 1000);
  const told = progress.tell({ done: 220, total: 420 }, window, 1022);
  assert.equal(told.rate, 10);
  assert.equal(told.endsAt, 1041);
  assert.equal(told.quiet, null);
  assert.ok(progress.tell({ done: 220, total: 420 }, window, 1900).quiet > 800);
  assert.equal(progress.tell({ done: 220, total: 420 }, window, 1900).endsAt, null);
  assert.equal(progress.tell({ done: 220, total: null }, window, 1022).endsAt, null);
  // A run that went back begins a new window.
  assert.equal(progress.slide(window, [100, 1030], 30).length, 1);
});

test("events come whole, however the stream is cut", () => {
  const text = ': hello\n\nid: 7\nevent: points\ndata: {"a":1}\n\nid: 8\r\nevent: state\r\ndata: {}\r\n\r\n';
  for (const size of [1, 3, 1000]) {
    const heard = [];
    const feed = live.parser((event) => heard.push(event));
    for (let at = 0; at < text.length; at += size) feed(text.slice(at, at + size));
    assert.deepEqual(
      heard,
      [
        { name: "points", data: '{"a":1}', id: "7" },
        { name: "state", data: "{}", id: "8" },
      ],
      `${size}`,
    );
  }
});

test("on a logarithmic axis of steps what lies at 0 is a gap that is counted", () => {
  const steps = (values, first) => ({
    ...line(values),
    data: series.columns({
      count: values.length,
      x: "step",
      nonfinite: [],
      buckets: values.map((value, at) => ({
        count: 1,
        first_step: first + at,
        last_step: first + at,
        min: value,
        min_step: first + at,
        max: value,
        max_step: first + at,
        mean: value,
      })),
    }),
  });
  const lines = [steps([5, 4, 3, 2, 1], -1), steps([1, 2, 3], 0)];
  const look = { ...view.USUAL, logx: true };
  assert.equal(series.behind(lines), 3);
  const chart = { width: 458, height: 200, lines, view: look, axis: "step", domain: null, rule: "min" };
  const { scales: drawn, shapes } = scene.sceneOf(chart);
  assert.equal(drawn.x.kind, "log");
  assert.deepEqual(drawn.x.domain, [1, 3]);
  const [first] = shapes.filter(({ kind, width }) => kind === "line" && width === 1.7);
  assert.deepEqual(first.points.map(Number.isNaN), [true, true, true, true, false, false, false, false, false, false]);
  // Step 2 stands where its logarithm does, and marks are whole steps.
  assert.ok(
    Math.abs((first.points[6] - first.points[4]) / (first.points[8] - first.points[4]) - Math.log(2) / Math.log(3)) <
      1e-9,
  );
  assert.ok(shapes.every((shape) => shape.kind !== "ring" || Number.isFinite(shape.x)));
  assert.ok(
    shapes.filter(({ kind, anchor }) => kind === "text" && anchor !== "end").every(({ text }) => !text.includes(".")),
  );
  // A window that begins before 1, one in which nothing is left, and axes that have no logarithm.
  assert.deepEqual(scene.scalesOf({ ...chart, domain: [-5, 2] }).x.domain, [1, 2]);
  assert.equal(scene.scalesOf({ ...chart, domain: [-5, 0] }).y, null);
  assert.equal(scene.scalesOf({ ...chart, view: { ...look, x: "wall" } }).x.kind, "linear");
  assert.equal(scene.xMarks("relative", [0.01, 7200], 6, true).length > 2, true);
  assert.equal(view.writeView(look), "?logx=1");
  assert.equal(view.readView("?logx=1").logx, true);
});

test("more lines than dashes can tell apart are solid", () => {
  assert.deepEqual(colours.look(35, 50), { color: "c6", dash: [] });
  assert.ok(colours.look(12, 20).dash.length > 0);
  const parts = Array.from({ length: 100 }, (_, at) => ({ run: `run-${at}`, tag: "loss", role: null, source: {} }));
  label.labelled({ name: "loss", parts }, { comparing: false, sources: [{}] });
  assert.ok(parts.every(({ dash }) => dash.length === 0));
});

test("fifty lines look different, and their colours are seen in both themes", () => {
  const looks = Array.from({ length: 50 }, (_, at) => JSON.stringify(colours.look(at)));
  assert.equal(new Set(looks).size, 50);
  const css = readFileSync(new URL("../../static/curves/curves.css", import.meta.url), "utf8");
  for (const [theme, panel] of [
    [1, "#ffffff"],
    [2, "#171b22"],
  ]) {
    const list = Array.from(
      { length: colours.COLOURS },
      (_, at) => new RegExp(`--c${at + 1}: light-dark\\((#[0-9a-f]{6}), (#[0-9a-f]{6})\\)`).exec(css)[theme],
    );
    for (const color of list)
      assert.ok(contrast(color, panel) >= 3, `${color} on ${panel}: ${contrast(color, panel).toFixed(2)}`);
    // Train and validation, and the first five runs, also for eyes without red or green cones.
    for (const seen of [(rgb) => rgb, deuteranope, protanope]) {
      const five = list.slice(0, 5).map((color) => lab(seen(linear(color))));
      for (const [at, one] of five.entries()) {
        for (const other of five.slice(at + 1))
          assert.ok(Math.hypot(...one.map((value, axis) => value - other[axis])) > 9, `${theme} ${list[at]}`);
      }
    }
  }
});

const linear = (hex) =>
  [1, 3, 5]
    .map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
const luminance = (hex) => linear(hex).reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, value, at) => sum + value * vector[at], 0));
// Machado, Oliveira and Fernandes 2009, severity 1.
const deuteranope = (rgb) =>
  times(
    [
      [0.367322, 0.860646, -0.227968],
      [0.280085, 0.672501, 0.047413],
      [-0.01182, 0.04294, 0.968881],
    ],
    rgb,
  );
const protanope = (rgb) =>
  times(
    [
      [0.152286, 1.052583, -0.204868],
      [0.114503, 0.786281, 0.099216],
      [-0.003882, -0.048116, 1.051998],
    ],
    rgb,
  );
function lab(rgb) {
  const xyz = times(
    [
      [0.4124, 0.3576, 0.1805],
      [0.2126, 0.7152, 0.0722],
      [0.0193, 0.1192, 0.9505],
    ],
    rgb.map((value) => Math.min(1, Math.max(0, value))),
  );
  const [x, y, z] = xyz.map((value, at) => Math.cbrt(Math.max(value / [0.9505, 1, 1.089][at], 0.0001)));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}
