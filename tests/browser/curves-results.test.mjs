// The rules of compared runs that need no browser: what differs, two keys of order, the filter
// and the bounds that a brush writes into it, and correlation of ranks.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { curves } from "./modules.mjs";

const results = await curves("results");

const source = (name, hparams, loss, accuracy) => ({
  id: name,
  name,
  kind: "run",
  metrics: {
    runs: [
      {
        run: ".",
        hparams,
        tags: [
          {
            tag: "val/loss",
            min: loss,
            min_step: 7,
            max: 9,
            max_step: 1,
            last: loss === null ? null : loss + 1,
            last_step: 10,
          },
          { tag: "accuracy", min: 0, min_step: 0, max: accuracy, max_step: 8, last: accuracy, last_step: 10 },
          { tag: "lr", min: 0, max: 1, last: 1 },
        ],
      },
    ],
  },
});
const sources = [
  source("one", { lr: 0.01, optimizer: "adam", seed: 1 }, 0.5, 0.9),
  source("two", { lr: 0.1, optimizer: "adam", seed: 1 }, 0.4, 0.8),
  source("three", { lr: 0.001, optimizer: "sgd", seed: 1, warmup: 100 }, null, 0.95),
];

test("only what differs is marked as differing, and metrics stand in their order", () => {
  const { rows, columns } = results.tabled(sources, "best");
  assert.deepEqual(
    columns.filter(({ kind, differs }) => kind === "param" && differs).map(({ label }) => label),
    ["lr", "optimizer", "warmup"],
  );
  assert.deepEqual(
    columns.filter(({ kind }) => kind === "metric").map(({ label }) => label),
    ["accuracy", "val/loss"],
  );
  assert.equal(rows[0].cells.get("m:val/loss"), 0.5);
  assert.equal(rows[0].steps.get("m:val/loss"), 7);
  assert.equal(results.tabled(sources, "last").rows[0].cells.get("m:val/loss"), 1.5);
});

test("rows are in the order of two columns, and what is missing stands last either way", () => {
  const { rows } = results.tabled(sources, "best");
  const names = (order) => results.sorted(rows, order).map(({ name }) => name);
  assert.deepEqual(names(["m:val/loss"]), ["two", "one", "three"]);
  assert.deepEqual(names(["-m:val/loss"]), ["one", "two", "three"]);
  assert.deepEqual(names(["p:optimizer", "-p:lr"]), ["two", "one", "three"]);
  assert.deepEqual(names(["-p:warmup", "name"]), ["three", "one", "two"]);
  assert.deepEqual(results.pressed([], "a", false), ["a"]);
  assert.deepEqual(results.pressed(["a"], "a", false), ["-a"]);
  assert.deepEqual(results.pressed(["-a"], "a", false), []);
  assert.deepEqual(results.pressed(["a"], "b", true), ["a", "b"]);
  assert.deepEqual(results.pressed(["a", "b"], "b", true), ["a", "-b"]);
  assert.deepEqual(results.pressed(["a", "b"], "c", true), ["a", "c"]);
});

test("an expression leaves the rows it describes, and says what it does not know", () => {
  const { rows, columns } = results.tabled(sources, "best");
  const kept = (text) => rows.filter(results.filterOf(text, columns).test).map(({ name }) => name);
  assert.deepEqual(kept(""), ["one", "two", "three"]);
  assert.deepEqual(kept("lr < 0.05 and optimizer = Adam"), ["one"]);
  assert.deepEqual(kept("LOSS <= 0.5"), ["one", "two"]);
  assert.deepEqual(kept("last(loss) <= 1.45"), ["two"]);
  assert.deepEqual(kept("lr = 0.1 or (optimizer = sgd and not warmup = none)"), ["two", "three"]);
  assert.deepEqual(kept("val/loss>=0.45; name != two"), ["one"]);
  assert.deepEqual(kept("warmup != 100"), ["one", "two"]);
  assert.deepEqual(kept("thre"), ["three"]);
  assert.match(results.filterOf("lr < 1 and depth > 3", columns).error, /depth.*character 12/);
  assert.match(results.filterOf("lr >", columns).error, /missing.*character 5/);
});

test("the language means here what it means in the portal", async () => {
  const { parse, picks, quoted } = await curves("expression");
  const { rows, picked, wrong } = JSON.parse(await readFile(new URL("expressions.json", import.meta.url), "utf8"));
  for (const [text, expected] of picked) {
    const node = parse(text);
    const found = rows
      .filter(([name, cells]) => picks(node, name, ({ text }) => cells[text] ?? null))
      .map(([name]) => name);
    assert.deepEqual(found, expected, text);
  }
  for (const [text, at] of wrong)
    assert.throws(
      () => parse(text),
      (fault) => fault.at === at,
      text,
    );
  for (const name of ["lr", "train: loss", "a`b c", "none", "x,y"])
    assert.equal(parse(`${quoted(name)} = 1`).column.text, name);
});

test("a brush writes its bounds into the expression and leaves the rest of it", () => {
  const text = results.withRange("optimizer = adam", "lr", [0.00123456, 0.05]);
  assert.equal(text, "optimizer = adam and lr >= 0.00123 and lr <= 0.05");
  assert.deepEqual(results.rangeIn(text, "lr"), [0.00123, 0.05]);
  assert.equal(results.rangeIn(text, "seed"), null);
  assert.equal(results.withRange("lr = 1 or seed = 2", "lr", [0, 1]), "(lr = 1 or seed = 2) and lr >= 0 and lr <= 1");
  assert.equal(results.withRange("", "train: loss", [0, 1]), "`train: loss` >= 0 and `train: loss` <= 1");
  assert.equal(results.withRange(text, "lr", null), "optimizer = adam");
  assert.equal(results.withRange(text, "optimizer", "sgd"), "lr >= 0.00123 and lr <= 0.05 and optimizer = sgd");
});

test("correlation is that of ranks", () => {
  assert.equal(
    results.rankCorrelation([
      [1, 10],
      [2, 100],
      [3, 1e9],
    ]),
    1,
  );
  assert.equal(
    results.rankCorrelation([
      [1, 3],
      [2, 2],
      [3, 1],
    ]),
    -1,
  );
  // By hand: ranks 0 1 2 3 against 1 0 3 2.
  assert.ok(
    Math.abs(
      results.rankCorrelation([
        [1, 2],
        [2, 1],
        [3, 4],
        [4, 3],
      ]) - 0.6,
    ) < 1e-12,
  );
  // Ties share their rank: 0 1 2 against 0.5 0.5 2.
  assert.ok(
    Math.abs(
      results.rankCorrelation([
        [1, 5],
        [2, 5],
        [3, 9],
      ]) -
        1.5 / Math.sqrt(2 * 1.5),
    ) < 1e-12,
  );
  assert.equal(
    results.rankCorrelation([
      [1, 1],
      [2, 1],
      [3, 1],
    ]),
    null,
  );
  assert.equal(
    results.rankCorrelation([
      [1, 1],
      [2, 2],
    ]),
    null,
  );
});

test("runs of one group are their mean, with a band from the lowest to the highest", async () => {
  const { bundled } = await curves("group");
  const { columns } = await curves("series");
  const line = (name, points) => ({
    key: name,
    source: name,
    run: ".",
    data: columns({
      count: points.length,
      x: "step",
      nonfinite: [],
      buckets: points.map(([step, value]) => ({
        count: 1,
        first_step: step,
        last_step: step,
        min: value,
        min_step: step,
        max: value,
        max_step: step,
        mean: value,
      })),
    }),
  });
  // The second has other steps and ends earlier; the third is of another group; a NaN is no point.
  const lines = [
    line("a", [
      [0, 1],
      [10, 3],
      [20, 5],
    ]),
    line("b", [
      [0, 3],
      [5, 5],
      [8, null],
      [10, 7],
    ]),
    line("c", [[0, 9]]),
  ];
  const made = bundled(lines, ({ key }) => ({ key: key === "c" ? "y" : "x", label: key, color: "c1", dash: [] }));
  assert.equal(made.length, 2);
  const { data } = made[0];
  assert.deepEqual(data.x, [0, 5, 10, 20]);
  assert.deepEqual(data.mean, [2, 3.5, 5, 5]);
  assert.deepEqual(
    [data.low, data.high],
    [
      [1, 2, 3, 5],
      [3, 5, 7, 5],
    ],
  );
  assert.deepEqual(data.points, [2, 2, 2, 1]);
});
