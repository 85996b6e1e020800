// Training curves against the real portal: they grow on the page without navigation, a zoom asks
// for its own buckets, a link restores the view, what is not a number is marked, and two runs
// that differ in one parameter are compared. The curves are those of `lyceum demo-train`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceumBinary, startPortal, until } from "./portal.mjs";

let chromium, portal, cora, logs;
const children = [];

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  cora = addUser(portal, `cora${process.pid}`);
  logs = mkdtempSync(join(tmpdir(), "ly-curves-"));
  chmodSync(logs, 0o755);
});

after(async () => {
  for (const child of children) child.kill("SIGKILL");
  await chromium?.close();
  await portal?.stop();
  if (logs) rmSync(logs, { recursive: true, force: true });
});

/** Starts a training below the logs' folder, with hyper-parameters beside it; answers its process. */
function train(name, hparams, ...options) {
  mkdirSync(join(logs, name));
  writeFileSync(
    join(logs, name, "hparams.yaml"),
    Object.entries(hparams)
      .map(([key, value]) => `${key}: ${value}\n`)
      .join(""),
  );
  const child = spawn(lyceumBinary, ["demo-train", "--log-directory", join(logs, name), ...options], {
    stdio: "ignore",
  });
  children.push(child);
  child.ended = new Promise((done) => child.once("close", done));
  return child;
}

const register = (name) =>
  ask(portal, cora.name, "/runs", { method: "POST", body: { directory: join(logs, name), name } });

/** Waits until everything that was written has been read. */
const isRead = (run, points) =>
  until(
    async () => (await ask(portal, cora.name, `/runs/${run.id}`)).points >= points,
    90,
    `${points} points of ${run.name}`,
  );

async function visit(path) {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, cora);
  await browser.isSignedIn(person);
  await person.page.goto(`${portal.url}${path}`);
  return person;
}

const chart = (page, id) => page.locator(`figure[data-chart="${id}"]`);

/** Waits until a chart shows what was asked for last. */
async function isDrawn(page, id) {
  await chart(page, id).locator(".place").scrollIntoViewIfNeeded();
  await page.waitForFunction((id) => {
    const figure = document.querySelector(`figure[data-chart="${id}"]`);
    const canvas = figure?.querySelector("canvas.picture");
    if (!canvas?.width || document.querySelector("[data-charts][aria-busy]")) return false;
    return canvas
      .getContext("2d")
      .getImageData(0, 0, canvas.width, canvas.height)
      .data.some((value) => value > 0);
  }, id);
}

/** What the browser saves of a chart, as text. */
async function saved(page, id, kind) {
  const figure = chart(page, id);
  await figure.getByLabel(/^Options of /).click();
  const role = kind.startsWith("CSV") ? "link" : "button";
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    figure.getByRole(role, { name: `Download ${kind}` }).click(),
  ]);
  return { name: file.suggestedFilename(), bytes: readFileSync(await file.path()) };
}

/** Where the marks of a saved picture's upright axis stand: [[value, y], …]. */
function marks(svg) {
  const found = [...svg.matchAll(/<text x="[\d.]+" y="([\d.]+)" text-anchor="end" fill="[^"]+">([\d.e-]+)<\/text>/g)];
  return found.map(([, y, text]) => [Number(text), Number(y)]).filter(([value]) => Number.isFinite(value));
}

const lines = (svg) => [...svg.matchAll(/stroke-width="1.7"/g)].length;

test("curves grow on the page, without navigation", async () => {
  const child = train("grows", { max_steps: 4000 }, "--steps", "4000", "--rate", "40");
  const run = await register("grows");
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await browser.appears(page, chart(page, "loss"), 60, "the chart of the loss");
  await isDrawn(page, "loss");
  await page.evaluate(() => {
    globalThis.stayed = true;
  });
  const step = async () =>
    Number(
      /step ([\d\u202f]+)/.exec(await page.locator(".curve-summary").innerText())?.[1].replaceAll("\u202f", "") ?? 0,
    );
  const drawn = () => page.locator('figure[data-chart="loss"] canvas.picture').evaluate((canvas) => canvas.toDataURL());
  const [before, picture] = [await step(), await drawn()];
  await until(async () => (await step()) >= before + 60, 60, "sixty more steps");
  await until(async () => (await drawn()) !== picture, 20, "another picture");
  assert.ok(await page.evaluate(() => globalThis.stayed));
  // Train and validation are one chart; the end is told from what came last.
  const loss = chart(page, "loss");
  await browser.appears(page, loss.getByRole("button", { name: "validation" }), 60, "the validation's line");
  await until(async () => lines((await saved(page, "loss", "SVG")).bytes.toString()) === 2, 60, "its points");
  await browser.appears(page, page.getByText(/estimated end \d+:\d\d/), 60, "when it ends");
  assert.ok(await page.getByRole("progressbar", { name: "Progress of the run" }).isVisible());
  await browser.photograph(page, "curves-live");
  child.kill("SIGKILL");
  await child.ended;
  browser.assertNoFaults(person);
});

test("a hundred runs in one chart are solid lines, and their legend opens with a key", async () => {
  const steps = Array.from({ length: 1000 }, (_, step) => step);
  for (let at = 0; at < 100; at += 1) {
    const folder = join(logs, "hundred", `run-${String(at).padStart(3, "0")}`);
    mkdirSync(folder, { recursive: true });
    const values = (step) =>
      Array.from(
        { length: 10 },
        (_, tag) =>
          `"group/m${tag}": ${(Math.exp(-step / 300) + Math.sin(step * (tag + 1) + at) / 20 + at / 100).toFixed(5)}`,
      ).join(", ");
    writeFileSync(
      join(folder, "metrics.jsonl"),
      steps.map((step) => `{"step": ${step}, "time": ${1.7e9 + step}, ${values(step)}}\n`).join(""),
    );
  }
  const run = await register("hundred");
  await until(
    async () => (await ask(portal, cora.name, `/runs/${run.id}`)).points === 1_000_000,
    120,
    "a million points",
  );
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await isDrawn(page, "group/m0");
  console.log(
    `a hundred lines were drawn ${Math.round(await page.evaluate(() => performance.now()))} ms after the page was asked for`,
  );
  const figure = chart(page, "group/m0");
  assert.equal(await figure.locator(".key").count(), 0);
  assert.doesNotMatch((await saved(page, "group/m0", "SVG")).bytes.toString(), /stroke-dasharray/);
  await figure.getByText("100 lines", { exact: true }).focus();
  await page.keyboard.press("Enter");
  await until(async () => (await figure.locator(".key").count()) === 100, 30, "a key for each line");
  await browser.photograph(page, "curves-hundred");
  await figure.getByRole("button", { name: "run-007" }).click();
  await page.waitForURL(/off=run-007/);

  // The same on a logarithmic axis: step 0 has no place there, and a link says so.
  const asked = page.waitForRequest(
    (request) => request.url().endsWith("/api/v1/curves") && request.postDataJSON().log === true,
  );
  await page.getByRole("checkbox", { name: "Log x" }).check();
  await asked;
  await page.waitForURL(/logx=1/);
  await browser.appears(
    page,
    figure.getByText("99 points at or before step 0 are gaps on a log axis"),
    60,
    "what has no place",
  );
  await browser.photograph(page, "curves-log-axis");
  await page.getByRole("radio", { name: "Wall time" }).check();
  await until(() => page.getByRole("checkbox", { name: "Log x" }).isHidden(), 30, "no logarithm of a clock");
  browser.assertNoFaults(person);
});

test("a zoom asks for its own buckets, and a link restores the view", async () => {
  await train("zoomed", {}, "--steps", "30000", "--rate", "0", "--spike-at", "12345", "--steps-per-epoch", "300").ended;
  const run = await register("zoomed");
  await isRead(run, 60_000);
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await browser.appears(page, chart(page, "loss"), 60, "the chart of the loss");
  await isDrawn(page, "loss");
  const place = chart(page, "loss").locator(".place");
  const box = await place.boundingBox();
  // A cursor stands in all charts at the same step.
  await page.mouse.move(box.x + box.width * 0.5, box.y + 90);
  for (const id of ["loss", "accuracy"]) {
    const cursor = chart(page, id).locator("canvas.cursor");
    await until(
      () =>
        cursor.evaluate((canvas) =>
          canvas
            .getContext("2d")
            .getImageData(0, 0, canvas.width, canvas.height)
            .data.some((value) => value > 0),
        ),
      30,
      `the cursor in ${id}`,
    );
  }
  const asked = page.waitForRequest(
    (request) => request.url().endsWith("/api/v1/curves") && /"from":/.test(request.postData() ?? ""),
  );
  await page.mouse.move(box.x + box.width * 0.35, box.y + 90);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 90, { steps: 5 });
  await page.mouse.up();
  const answer = await (await asked).response();
  const body = (await asked).postDataJSON();
  assert.ok(body.from > 0 && body.from < 12_345 && 12_345 < body.to && body.to < 30_000, JSON.stringify(body));
  const { items } = await answer.json();
  const train_loss = items.find(({ tag }) => tag === "train/loss");
  assert.ok(train_loss.buckets.every(({ first_step }) => first_step >= body.from));
  assert.ok(
    train_loss.buckets.some(({ max_step }) => max_step === 12_345),
    "the spike is in a bucket of its own step",
  );
  await page.waitForURL(/zoom=step:/);

  await page.getByRole("checkbox", { name: "Log y", exact: true }).check();
  await page.getByRole("slider", { name: "Smoothing" }).fill("0.8");
  await page.waitForURL(/smooth=0.8/);
  await chart(page, "loss").getByRole("button", { name: "validation" }).click();
  await page.waitForURL(/off=/);
  await isDrawn(page, "loss");
  const picture = (await saved(page, "loss", "SVG")).bytes.toString();
  // On a logarithm equal factors are equal distances.
  const [[a, at], [b, bt], [c, ct]] = marks(picture);
  assert.ok(Math.abs((at - bt) / Math.log(b / a) - (bt - ct) / Math.log(c / b)) < 3, `${marks(picture)}`);
  // The raw line, faded, and over it the smoothed one.
  assert.equal(lines(picture), 1);
  assert.match(picture, /stroke-width="1"[^>]* opacity="0.35"/);

  const other = await visit(new URL(page.url()).pathname + new URL(page.url()).search);
  await browser.appears(other.page, chart(other.page, "loss"), 60, "the same chart for somebody else");
  await isDrawn(other.page, "loss");
  assert.ok(await other.page.getByRole("checkbox", { name: "Log y", exact: true }).isChecked());
  assert.equal(
    await chart(other.page, "loss").getByRole("button", { name: "validation" }).getAttribute("aria-pressed"),
    "false",
  );
  assert.equal((await saved(other.page, "loss", "SVG")).bytes.toString(), picture);
  await browser.photograph(other.page, "curves-zoomed");

  await place.dblclick();
  await page.waitForURL((url) => !url.search.includes("zoom="));
  browser.assertNoFaults(person);
  browser.assertNoFaults(other);
});

test("charts fill the window in the chosen size, and the toolbar is one row", async () => {
  await train("laid-out", {}, "--steps", "400", "--rate", "0").ended;
  const run = await register("laid-out");
  await isRead(run, 800);
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await isDrawn(page, "loss");
  const tops = await page.getByRole("group", { name: "Chart options" }).evaluate((bar) =>
    [...bar.children]
      .filter((child) => child.offsetParent)
      .map((child) => child.getBoundingClientRect())
      .map(({ top, height }) => top + height / 2),
  );
  assert.ok(tops.length >= 6 && Math.max(...tops) - Math.min(...tops) < 6, `${tops}`);
  await browser.assertNoSidewaysScroll(page, "the toolbar at 1280");

  await page.setViewportSize({ width: 1920, height: 1000 });
  const columns = () =>
    page
      .locator(".curve-grid")
      .first()
      .evaluate((grid) => getComputedStyle(grid).gridTemplateColumns.split(" ").length);
  const right = await page
    .locator(".curve-grid")
    .first()
    .evaluate((grid) => grid.getBoundingClientRect().right);
  assert.ok(right > 1850, `the charts end at ${right}`);
  const found = [];
  for (const size of ["Small", "Medium", "Large"]) {
    await page.getByRole("radio", { name: `${size} charts` }).check();
    await isDrawn(page, "loss");
    const [high, drawn] = await chart(page, "loss")
      .locator(".place")
      .evaluate((place) => [place.clientHeight, place.querySelector("canvas").height / devicePixelRatio]);
    assert.equal(drawn, high);
    found.push([await columns(), high]);
  }
  assert.ok(
    found[0][0] > found[1][0] && found[1][0] > found[2][0] && found[0][1] < found[1][1] && found[1][1] < found[2][1],
    JSON.stringify(found),
  );
  await page.reload();
  await isDrawn(page, "loss");
  assert.ok(await page.getByRole("radio", { name: "Large charts" }).isChecked(), "this browser remembers the size");
  await page.screenshot({ path: browser.pictureOf("curves-large-1920"), fullPage: true });

  // The whole of it as one file.
  await page.getByLabel("Chart options").getByText("Download", { exact: true }).click();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "CSV of the charts shown" }).click(),
  ]);
  const rows = readFileSync(await file.path(), "utf8")
    .trim()
    .split("\n");
  assert.equal(rows[0], "chart,line,x,mean,min,max,smoothed,points");
  for (const name of await page
    .locator("figure.curve[data-chart]")
    .evaluateAll((all) => all.map(({ dataset }) => dataset.chart)))
    assert.ok(
      rows.some((row) => row.startsWith(`${name},`)),
      name,
    );
  browser.assertNoFaults(person);
});

test("a chart is pinned, set by hand and shown on the full screen with the keyboard", async () => {
  await train("by-hand", {}, "--steps", "400", "--rate", "0").ended;
  writeFileSync(
    join(logs, "by-hand", "metrics.jsonl"),
    Array.from({ length: 50 }, (_, step) => `{"step": ${step}, "layers": {"one": ${step}, "two": ${2 * step}}}\n`).join(
      "",
    ),
  );
  const run = await register("by-hand");
  await isRead(run, 900);
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await isDrawn(page, "layers/two");
  const options = (id) => chart(page, id).getByLabel(/^Options of /);
  const choose = async (id, name) => {
    await options(id).focus();
    await page.keyboard.press("Enter");
    await chart(page, id).getByRole("button", { name, exact: true }).focus();
    await page.keyboard.press("Enter");
  };
  await choose("layers/two", "Pin to the top");
  const sections = () =>
    page
      .locator(".curve-section")
      .evaluateAll((all) =>
        all.map((section) => [
          section.getAttribute("aria-label"),
          section.open,
          ...[...section.querySelectorAll("figure")].map(({ dataset }) => dataset.chart),
        ]),
      );
  assert.deepEqual((await sections())[0], ["Pinned", true, "layers/two"]);
  const layers = page.locator('.curve-section[aria-label="layers"] summary').first();
  await layers.focus();
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => Object.values(localStorage).some((kept) => kept.includes('"folded":["layers"]')));
  await page.reload();
  await isDrawn(page, "layers/two");
  const after = await sections();
  assert.deepEqual(
    [after[0], after.at(-1)],
    [
      ["Pinned", true, "layers/two"],
      ["layers", false, "layers/one"],
    ],
  );

  await options("loss").click();
  await page.getByLabel("Y axis from, loss").fill("0");
  await page.getByLabel("Y axis to, loss").fill("-1");
  await chart(page, "loss").getByRole("button", { name: "Set" }).click();
  await chart(page, "loss").getByText("The first value must be below the second.").waitFor();
  await page.getByLabel("Y axis to, loss").fill("500");
  await page.keyboard.press("Enter");
  await page.waitForURL(/ranges=loss:0~500/);
  await isDrawn(page, "loss");
  const values = marks((await saved(page, "loss", "SVG")).bytes.toString()).map(([value]) => value);
  assert.deepEqual([Math.min(...values), Math.max(...values)], [0, 500]);
  await page.getByRole("button", { name: "Reset zoom" }).click();
  await page.waitForURL((url) => !url.search.includes("ranges="));

  await choose("loss", "Full screen");
  await page.waitForFunction(() => document.fullscreenElement?.dataset.chart === "loss");
  await until(
    () =>
      chart(page, "loss")
        .locator(".place")
        .evaluate(
          (place) =>
            place.clientHeight > 400 &&
            place.querySelector("canvas").height === Math.round(place.clientHeight * devicePixelRatio),
        ),
    20,
    "a picture as large as the screen",
  );
  await page.screenshot({ path: browser.pictureOf("curves-full-screen") });
  await choose("loss", "Exit full screen");
  await page.waitForFunction(() => !document.fullscreenElement);

  // The highest values first, more of them.
  await page.getByLabel("Tooltip order").selectOption("Highest");
  await page.getByLabel("Tooltip limit").selectOption("20");
  await page.reload();
  await isDrawn(page, "loss");
  assert.equal(await page.getByLabel("Tooltip limit").inputValue(), "20");
  await browser.photograph(page, "curves-sections");
  await browser.assertAccessible(page, "curves in sections");
  browser.assertNoFaults(person);
});

test("checkpoints are marked as they are written, and a curve is drawn over another", async () => {
  const child = train("kept", {}, "--steps", "0", "--rate", "50", "--steps-per-epoch", "50");
  const run = await register("kept");
  const marked = async () => (await ask(portal, cora.name, `/runs/${run.id}/metrics`)).checkpoints;
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  await browser.appears(page, chart(page, "loss"), 60, "the chart of the loss");
  await browser.appears(page, chart(page, "loss").getByText("◆ checkpoint"), 90, "the mark of a checkpoint");
  const before = await marked();
  await until(async () => (await marked()).length > before.length, 90, "another checkpoint");
  child.kill("SIGKILL");
  await child.ended;
  const [first] = before;
  assert.equal(first.file, "checkpoint.json");
  assert.ok(
    before.every(({ step }, at) => at === 0 || before[at - 1].step < step),
    JSON.stringify(before),
  );

  const axis = page.getByLabel("Metric as horizontal axis");
  const answered = page.waitForResponse(
    (answer) => answer.url().endsWith("/api/v1/curves") && answer.request().postDataJSON().by === "train/loss",
  );
  await axis.selectOption("train/loss");
  const { items } = await (await answered).json();
  assert.ok(items.length > 0 && items.every(({ x }) => x === "metric"));
  await page.waitForURL(/x=metric&by=train\/loss/);
  await isDrawn(page, "accuracy");
  const picture = (await saved(page, "accuracy", "SVG")).bytes.toString();
  assert.match(picture, />train\/loss</);
  await browser.photograph(page, "curves-over-another");
  await browser.assertNoSidewaysScroll(page, "a curve over another");
  await browser.assertAccessible(page, "a curve over another");
  const other = await visit(new URL(page.url()).pathname + new URL(page.url()).search);
  await browser.appears(other.page, chart(other.page, "accuracy"), 60, "the same chart for somebody else");
  await isDrawn(other.page, "accuracy");
  assert.equal(await other.page.getByLabel("Metric as horizontal axis").inputValue(), "train/loss");
  await page.getByRole("radio", { name: "Step" }).check();
  await page.waitForURL((url) => !url.search.includes("by="));
  assert.equal(await axis.inputValue(), "");
  browser.assertNoFaults(person);
  browser.assertNoFaults(other);
});

test("what is not a number is marked, and the keyboard and a table read what the picture shows", async () => {
  await train("broken", {}, "--steps", "500", "--rate", "0", "--nan-at", "300").ended;
  const run = await register("broken");
  await isRead(run, 1000);
  const person = await visit(`/runs/${run.id}`);
  const { page } = person;
  const loss = chart(page, "loss");
  await browser.appears(
    page,
    loss.getByText(/train: [\d\u202f]+ not finite, first at step 300/),
    60,
    "how many are not finite",
  );
  await isDrawn(page, "loss");
  const bad = await page
    .locator(".badge.bad")
    .first()
    .evaluate((badge) => getComputedStyle(badge).color);
  assert.ok((await saved(page, "loss", "SVG")).bytes.toString().includes(`l8 8m-8 0l8-8" stroke="${bad}"`));

  await loss.locator(".place").focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.getByText(/^step 1: .*train [\d.]+/).waitFor({ state: "attached" });
  await page.keyboard.press("+");
  await page.waitForURL(/zoom=step:/);
  await page.keyboard.press("Escape");
  await page.waitForURL((url) => !url.search.includes("zoom="));
  await isDrawn(page, "loss");
  await loss.getByText("As a table").click();
  const table = page.getByRole("table", { name: "loss as a table" });
  await until(async () => (await table.getByRole("row").count()) > 50, 20, "a table of the whole curve");

  const csv = await saved(page, "loss", "CSV, train");
  assert.equal(csv.bytes.toString().trim().split("\n").length, 501);
  assert.match(csv.bytes.toString(), /^step,wall_time,value,attempt\n/);
  const png = await saved(page, "loss", "PNG");
  assert.equal(png.bytes.subarray(1, 4).toString(), "PNG");
  await browser.photograph(page, "curves-broken");
  await browser.assertAccessible(page, "curves-broken");
  browser.assertNoFaults(person);
});

test("two runs that differ in one parameter are compared", async () => {
  const rates = ["0.1", "0.02"];
  const runs = [];
  for (const rate of rates)
    await train(
      `lr-${rate}`,
      { learning_rate: rate, optimizer: "adam", batch_size: 64 },
      "--steps",
      "600",
      "--rate",
      "0",
      "--learning-rate",
      rate,
    ).ended;
  for (const rate of rates) runs.push(await register(`lr-${rate}`));
  for (const run of runs) await isRead(run, 1200);
  const person = await visit("/runs");
  const { page } = person;
  for (const { name } of runs) await page.getByRole("checkbox", { name: `Select ${name}` }).check();
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.waitForURL(/\/runs\/compare\?/);
  const table = page.getByRole("table", { name: "Results" });
  await browser.appears(page, table, 60, "the table of results");
  assert.equal(await table.locator('[data-column^="p:"]').count(), 1);
  assert.match(await table.locator('[data-column^="p:"]').innerText(), /learning_rate/);
  for (const id of ["train/loss", "val/loss"]) {
    await isDrawn(page, id);
    assert.equal(lines((await saved(page, id, "SVG")).bytes.toString()), 2, id);
  }
  // The order by learning rate, and a filter that leaves one of them.
  const first = () => table.getByRole("row").nth(1).getByRole("rowheader").innerText();
  await table.locator('[data-column^="p:"]').click();
  assert.match(await first(), /lr-0\.02/);
  await table.locator('[data-column^="p:"]').click();
  assert.match(await first(), /lr-0\.1/);
  await browser.photograph(page, "curves-compare");
  await browser.assertAccessible(page, "curves-compare");
  await page.getByRole("searchbox", { name: "Filter runs" }).fill("learning_rate < 0.05");
  await page.getByText("1 of 2 runs").waitFor();
  await page.waitForURL(/where=/);
  assert.equal(lines((await saved(page, "train/loss", "SVG")).bytes.toString()), 1);
  browser.assertNoFaults(person);
});
