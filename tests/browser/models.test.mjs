// A model from the form to its answer: shapes are drawn, a network learns them on the cores of this
// machine with its curves before one's eyes, its mistakes are looked at, it is asked about a
// picture, and its bundle is there. The Python is LYCEUM_TEST_PYTHON's.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, name, drawer, dataset, model;

before(async () => {
  drawer = mkdtempSync(join(tmpdir(), "ly-models-"));
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: process.env.LYCEUM_TEST_PYTHON ? "kept" : "built" });
  const mia = addUser(portal, `mia${process.pid}`);
  name = mia.name;
  const spec = { kind: "classification", source: { kind: "generated", count: 400 }, width: 28, height: 28 };
  dataset = await ask(portal, name, "/datasets", { method: "POST", body: { name: "Shapes", spec } });
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, mia);
  await browser.isSignedIn(person);
  await until(async () => (await ask(portal, name, `/datasets/${dataset.id}`)).state === "ready", 240, "the dataset");
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  if (drawer) rmSync(drawer, { recursive: true, force: true });
});

const check = (picture) => browser.examine(person, picture);

test("the first visit says what to do", async () => {
  const { page } = person;
  await page.getByLabel("Main").getByRole("link", { name: "Models" }).click();
  await page.getByText("No models yet.").waitFor();
  await check("models-none");
  await page.getByRole("link", { name: "Choose a dataset" }).click();
  await page.getByRole("link", { name: "Shapes" }).click();
  await page.getByRole("link", { name: "Train a model" }).click();
  await page.getByRole("heading", { name: "Train a model" }).waitFor();
});

test("the learning rate is drawn as its policy says", async () => {
  const { page } = person;
  const says = page.locator("#rate-says");
  await browser.appears(page, says.filter({ hasText: "maximum 0.001" }), 30, "the usual rate");
  const line = page.locator("#rate path.line");
  const cosine = await line.getAttribute("d");
  assert.equal(cosine.match(/L/g).length, 100);
  assert.ok(await page.getByLabel("Gamma").isHidden(), "cosine has none");
  await page.getByLabel("Learning-rate schedule").selectOption("step");
  await page.getByLabel("Gamma").fill("0.5");
  await page.getByLabel("Warm-up").fill("0");
  await browser.appears(page, says.filter({ hasText: "end 0.000125" }), 30, "what the steps come to");
  assert.notEqual(await line.getAttribute("d"), cosine);
  await page.getByLabel("Gamma").fill("-1");
  await browser.appears(page, says.filter({ hasText: "gamma: Must be greater than 0." }), 30, "what is wrong with it");
  await page.getByLabel("Learning-rate schedule").selectOption("cosine");
  await browser.appears(page, says.filter({ hasText: "start 0.001" }), 30, "the usual rate again");
});

test("what cannot be is said beside its field", async () => {
  const { page } = person;
  await page.getByLabel("Epochs").fill("many");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await page.getByText("The training was not started.").waitFor();
  await page.locator(".wrong", { hasText: "Must be a whole number." }).waitFor();
  await check("model-new-wrong");
});

test("pictures and layers are looked at before the start, in another tab", async () => {
  const { page, context } = person;
  await page.getByLabel("Epochs").fill("6");
  await page.getByLabel("Rotation", { exact: true }).fill("40");
  const [tab] = await Promise.all([
    context.waitForEvent("page"),
    page.getByRole("button", { name: "Preview" }).click(),
  ]);
  await browser.appears(tab, tab.locator("#preview-state", { hasText: "ready" }), 300, "what it would be");
  assert.equal(await tab.locator(".pairs-of-pictures > li").count(), 8);
  const [first, second] = await tab
    .locator(".pairs-of-pictures image")
    .evaluateAll((all) => all.slice(0, 2).map((one) => one.getAttribute("href")));
  const [one, other] = await Promise.all(
    [first, second].map(async (href) => (await tab.request.get(`${portal.url}${href}`)).body()),
  );
  assert.ok(one.length > 50 && !one.equals(other), "the second is turned");
  await tab.getByRole("heading", { name: "Layers" }).waitFor();
  await browser.photograph(tab, "model-preview");
  await browser.assertNoSidewaysScroll(tab, "model-preview");
  await browser.assertAccessible(tab, "model-preview");
  await tab.close();
  await page.getByLabel("Rotation", { exact: true }).fill("");
});

test("a network of one's own is written, and looked at before it learns", async () => {
  const { page, context } = person;
  const program = page.getByLabel("Custom network");
  assert.ok(await program.isHidden(), "another is chosen");
  await page.getByLabel("Network", { exact: true }).selectOption("lenet");
  await page.getByRole("button", { name: "Open as code" }).click();
  assert.match(await program.inputValue(), /^def network\(x: Any, classes: int, dropout: float = 0\.5/m);
  assert.deepEqual(
    [await page.getByLabel("Epochs").inputValue(), await page.getByLabel("Network", { exact: true }).inputValue()],
    ["6", "own"],
  );
  await check("model-new-customized");
  await page.getByLabel("Task").selectOption("reconstruction");
  assert.match(await program.inputValue(), /^def network\(x: Any/m, "what was changed stays");
  await page.getByLabel("Task").selectOption("classification");
  await page.goto(`${portal.url}/models/new?dataset=${dataset.id}`);
  await page.getByLabel("Epochs").fill("6");
  await page.getByLabel("Task").selectOption("regression");
  await page.getByLabel("Network", { exact: true }).selectOption("own");
  assert.match(await program.inputValue(), /regression/);
  await page.getByLabel("Task").selectOption("classification");
  const text = await program.inputValue();
  assert.match(text, /^def network\(x, classes\):$/m);
  await program.fill("def network(x, classes):\nreturn x");
  await program.press("ArrowLeft");
  await program.press("Home");
  await program.press("Tab");
  assert.match(await program.inputValue(), /\n {4}return x$/);
  await check("model-new-own");
  const look = () =>
    Promise.all([context.waitForEvent("page"), page.getByRole("button", { name: "Preview", exact: true }).click()]);
  const [wrong] = await look();
  await browser.appears(wrong, wrong.locator("#preview-state", { hasText: "failed" }), 300, "what is wrong with it");
  await wrong.getByText("returns values of the shape").waitFor();
  await wrong.close();
  await program.fill(text.replace("(16, 32, 64)", "(8, 16)"));
  const [tab] = await look();
  await browser.appears(tab, tab.getByRole("rowheader", { name: "logits" }), 300, "its layers");
  await tab.close();
  await program.focus();
  await program.press("Escape");
  await program.press("Tab");
  assert.ok(await page.getByRole("button", { name: "Preview", exact: true }).isVisible());
  assert.ok(!(await program.evaluate((one) => one === document.activeElement)), "the keyboard leaves it");
});

test("a network learns, with its curves before one's eyes", async () => {
  const { page } = person;
  await page.getByLabel("Name", { exact: true }).fill("Shapes by a small network");
  await page.getByLabel("Network", { exact: true }).selectOption("small-cnn");
  await page.getByLabel("Batch size", { exact: true }).fill("16");
  await page.getByLabel("Base learning rate").fill("0.003");
  await check("model-new");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await page.waitForURL(/\/models\/[0-9a-f-]{36}$/);
  model = page.url().split("/").at(-1);
  await browser.appears(page, page.locator("#curves canvas, #curves svg"), 240, "the first curve");
  await check("model-training");
  await browser.appears(page, page.locator("#model-state", { hasText: "trained" }), 600, "the end of its training");
  await browser.appears(page, page.locator("#curves canvas, #curves svg"), 60, "its curves");
  const { best, metric } = await ask(portal, name, `/models/${model}`);
  assert.ok(metric === "accuracy" && best > 0.5, `${metric} ${best}: better than one of three by chance`);
  await page.getByText("Confusion matrix").waitFor();
  const threshold = page.locator(".threshold").first();
  const says = threshold.locator(".says");
  await browser.appears(page, says.filter({ hasText: "At 50 %:" }), 60, "what a threshold comes to");
  await threshold.locator("input").fill("99");
  const { answered, pictures } = await ask(portal, name, `/models/${model}/thresholds`);
  assert.match(
    await says.innerText(),
    new RegExp(answered[99] ? `${answered[99]} of ${pictures} images` : `none of ${pictures}`),
  );
  await page.locator("#layers summary").click();
  await page.getByRole("rowheader", { name: "logits" }).waitFor();
  await check("model-trained");
});

test("the confusion is shown as counts and as shares", async () => {
  const { page } = person;
  const matrix = page.locator(".confusion").first();
  await matrix.getByText("Predicted class", { exact: true }).waitFor();
  const { confusion } = await ask(portal, name, `/models/${model}/evaluation`);
  const diagonal = matrix.locator("td.right").first();
  const [right] = confusion.counts[0],
    all = confusion.counts[0].reduce((sum, count) => sum + count, 0);
  assert.equal((await diagonal.innerText()).trim(), String(right));
  await matrix.getByRole("radio", { name: "% of true class" }).check();
  assert.equal((await diagonal.innerText()).trim(), `${((right / all) * 100).toFixed(1)} %`);
  await matrix.getByRole("radio", { name: "Counts" }).check();
  for (const title of ["ROC curve", "Precision-recall curve", "Reliability diagram"])
    await page.getByRole("heading", { name: title }).waitFor();
  const { roc } = await ask(portal, name, `/models/${model}/curves`);
  await page
    .getByText(`AUC ${roc[0].auc.toFixed(3)}`)
    .first()
    .waitFor();
  assert.equal(await page.locator("#curves").getByRole("heading", { name: "epoch", exact: true }).count(), 0);
});

test("cells of the confusion lead to their pictures", async () => {
  const { page } = person;
  const { confusion } = await ask(portal, name, `/models/${model}/evaluation`);
  const cell = page.locator(".heat td a").first();
  const count = Number(await cell.locator(".by-count").innerText());
  assert.equal(
    count,
    confusion.counts.flat().find((count) => count > 0),
  );
  await cell.click();
  await page.waitForURL(/predictions\?split=val&label=/);
  const cards = page.locator("#gallery > li");
  assert.equal(await cards.count(), Math.min(count, 120));
  assert.equal(
    (
      await page.request.get(`${portal.url}${await page.locator("#gallery image").first().getAttribute("href")}`)
    ).status(),
    200,
  );
  await check("model-cell");
  await page.goBack();
});

test("it is asked about a picture, and shows where the answer comes from", async () => {
  const { page } = person;
  const { items } = await ask(portal, name, `/datasets/${dataset.id}/items?split=val&limit=1`);
  const picture = await page.request.get(
    `${portal.url}/api/v1/datasets/${dataset.id}/items/${items[0].row}/picture?full=true`,
  );
  const file = join(drawer, "a shape.png");
  writeFileSync(file, await picture.body());
  await page.getByLabel("Upload images").setInputFiles(file);
  await page.getByRole("button", { name: "Predict", exact: true }).click();
  await page.waitForURL(/\/tests\//);
  await browser.appears(page, page.locator("#answer-state", { hasText: "done" }), 300, "the answer");
  await browser.appears(page, page.locator(".drawings svg").nth(1), 300, "where it comes from");
  assert.equal(await page.locator(".bars-table tr").count(), 3, "all classes with their probabilities");
  await check("model-answer");
  await page.locator("#layers a").first().click();
  await page.getByRole("link", { name: "Next layer" }).click();
  const filters = page.locator("main img").last();
  await browser.appears(page, filters, 30, "the filters of a layer");
  assert.equal((await page.request.get(`${portal.url}${await filters.getAttribute("src")}`)).status(), 200);
  assert.ok((await page.locator(".histogram .bars").count()) > 1, "a histogram of activations and of each weight");
  await check("model-layer");
});

test("it is quantized and measured", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/models/${model}`);
  await page.getByRole("button", { name: "Measure FP32, FP16 and INT8" }).click();
  await browser.appears(page, page.locator("#precisions[data-state=measured]"), 300, "the table of precisions");
  const { measured } = await ask(portal, name, `/models/${model}/precisions`);
  const rows = page.locator("#precisions tbody tr");
  assert.equal(await rows.count(), 3);
  for (const [at, one] of measured.precisions.entries()) {
    const says = await rows.nth(at).innerText();
    const shown = { float32: "FP32", float16: "FP16", int8: "INT8" }[one.precision];
    assert.ok(says.startsWith(shown) && says.includes(one.metrics.accuracy.toFixed(4)), says);
  }
  const { best } = await ask(portal, name, `/models/${model}`);
  assert.ok(Math.abs(measured.precisions[0].metrics.accuracy - best) < 1e-6, "in 32 bits it is what was evaluated");
  await page.getByRole("button", { name: "Measure again" }).waitFor();
  await check("model-precisions");
});

test("predictions for a whole folder", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/models/${model}`);
  await page.getByLabel("Or the path of an image or folder").fill("~/uploads");
  await page.getByLabel("Top-k classes").fill("2");
  const picture = await page.request.get(`${portal.url}/api/v1/datasets/${dataset.id}/items/0/picture?full=true`);
  const sent = await page.request.post(`${portal.url}/api/v1/models/${model}/infer?name=another.png`, {
    headers: { "Content-Type": "image/png", "X-CSRF-Token": await page.locator("#ask").getAttribute("data-csrf") },
    data: await picture.body(),
  });
  assert.equal(sent.status(), 201);
  await page.getByRole("button", { name: "Predict", exact: true }).click();
  await page.waitForURL(/\/tests\//);
  await browser.appears(page, page.locator("#gallery > li").nth(1), 300, "both answers");
  assert.equal(await page.locator("#gallery > li").count(), 2);
  assert.equal(
    (
      await page.request.get(`${portal.url}${await page.locator("#gallery image").first().getAttribute("href")}`)
    ).status(),
    200,
  );
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Table (CSV)" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "predictions.csv");
  await check("model-folder");
});

test("several uploaded images are predicted together", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/models/${model}`);
  const { items } = await ask(portal, name, `/datasets/${dataset.id}/items?split=val&limit=3`);
  const files = [];
  for (const { row } of items) {
    const picture = await page.request.get(
      `${portal.url}/api/v1/datasets/${dataset.id}/items/${row}/picture?full=true`,
    );
    files.push({ name: `shape ${row}.png`, mimeType: "image/png", buffer: await picture.body() });
  }
  await page
    .getByLabel("Upload images")
    .setInputFiles([...files, { name: "page.png", mimeType: "image/png", buffer: Buffer.from("<html></html>") }]);
  await page.getByRole("button", { name: "Predict", exact: true }).click();
  await page.waitForURL(/\/tests\//, { timeout: 60_000 });
  await browser.appears(page, page.locator("#gallery > li").nth(3), 300, "all answers");
  assert.equal(await page.locator("#gallery > li").count(), 4);
  await page.locator("#gallery > li.broken", { hasText: "web page" }).waitFor();
});

test("it is served, and answers a picture in a page of its own", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/models/${model}`);
  await page.getByRole("link", { name: "Serve model" }).click();
  await page.getByRole("radio", { name: /Model service/ }).waitFor();
  assert.ok(await page.getByRole("radio", { name: /Model service/ }).isChecked());
  assert.match(await page.getByLabel("Log folder", { exact: true }).inputValue(), /\/runs\//);
  await page.getByLabel("Name", { exact: true }).fill("shapes service");
  await page.getByLabel("Open when ready").uncheck();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL((url) => !url.pathname.startsWith("/sessions/new"));
  await page.goto(`${portal.url}/`);
  await browser.waitForState(person, "shapes service", "Running", 120);
  await check("model-service-card");
  const service = await browser.openTab(
    person,
    browser.card(page, "shapes service").getByRole("link", { name: /^Open/ }),
  );
  const shape = join(drawer, "a shape.png");
  const same = { name: "the same.png", mimeType: "image/png", buffer: readFileSync(shape) };
  await service.getByLabel("Images").setInputFiles(shape);
  await browser.appears(service, service.locator("#answers meter").nth(2), 60, "its three classes");
  await service.getByLabel("Images").setInputFiles([same, { ...same, name: "once more.png" }]);
  await browser.appears(
    service,
    service.locator("#answers > li").nth(2).locator("meter").nth(2),
    60,
    "several at once",
  );
  assert.equal(await service.locator("#answers canvas").count(), 3, "each picture is shown");
  await browser.appears(service, service.locator("#latency", { hasText: "ms" }), 60, "how long it takes");
  await browser.photograph(service, "model-service");
  await service.close();
  await browser.press(person, "shapes service", /^Stop/);
  await browser.waitForState(person, "shapes service", "Stopped", 60);
});

test("its bundle is downloaded, and it goes on from a snapshot", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/models/${model}`);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download bundle" }).click(),
  ]);
  assert.match(download.suggestedFilename(), /bundle.*\.tar$/);
  await page.getByRole("link", { name: "Fine-tune" }).first().click();
  assert.equal(await page.getByLabel("Network", { exact: true }).inputValue(), "pretrained");
  assert.match(await page.getByLabel("Checkpoint to fine-tune").inputValue(), /checkpoints\/epoch-\d+\.keras$/);
  await page.goto(`${portal.url}/models`);
  await check("models-list");
  browser.assertNoFaults(person, [/status of 422/]);
});
