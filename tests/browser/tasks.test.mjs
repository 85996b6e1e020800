// Other tasks than that of the dataset: an autoencoder whose outputs stand beside its inputs, and a
// regression of a target of one's own with its loss, metric and scatter plot. The Python is
// LYCEUM_TEST_PYTHON's.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

const PROGRAM = `import keras
from keras import ops

outputs = "brightness"


def target(image, label):
    return image.mean() / 255


def network(x, outputs):
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.layers.Dense(outputs)(x)


def loss(truth, predicted):
    return ops.mean(ops.square(truth - predicted), axis=-1)


def close(truth, predicted):
    return ops.mean(ops.cast(ops.abs(truth - predicted) < 0.05, "float32"), axis=-1)


metrics = [close]
monitor = ("close", "max")
`;

let chromium, portal, person, name, dataset, home;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: process.env.LYCEUM_TEST_PYTHON ? "kept" : "built" });
  const tia = addUser(portal, `tia${process.pid}`);
  name = tia.name;
  const spec = { kind: "classification", source: { kind: "generated", count: 300 }, width: 24, height: 24 };
  dataset = await ask(portal, name, "/datasets", { method: "POST", body: { name: "Shapes", spec } });
  home = (await ask(portal, name, "/files/roots")).items[0].path;
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, tia);
  await browser.isSignedIn(person);
  await until(async () => (await ask(portal, name, `/datasets/${dataset.id}`)).state === "ready", 240, "the dataset");
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

async function start(task, fill) {
  const { page } = person;
  await page.goto(`${portal.url}/models/new?dataset=${dataset.id}`);
  await page.getByLabel("Task").selectOption(task);
  await page.getByLabel("Epochs", { exact: true }).fill("3");
  await page.getByLabel("Batch size").fill("16");
  await page.getByLabel("Base learning rate").fill("0.01");
  await fill(page);
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await page.waitForURL(/\/models\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator("#model-state", { hasText: "trained" }), 420, "the end of its training");
  return page.url().split("/").at(-1);
}

test("an autoencoder shows what it made of the images", async () => {
  const { page } = person;
  const id = await start("reconstruction", async (form) => {
    const network = form.getByLabel("Network", { exact: true });
    assert.equal(await network.inputValue(), "autoencoder", "the usual one of the task");
    assert.deepEqual(await network.locator("option:not([hidden])").allInnerTexts(), [
      "autoencoder",
      "u-net",
      "Custom network (Python)",
      "Fine-tune a trained model",
    ]);
  });
  await page.getByRole("heading", { name: /^Worst images/ }).waitFor();
  await page.locator("#worst .sides", { hasText: "Input" }).first().waitFor();
  assert.ok((await page.locator("#worst image").count()) >= 4, "inputs and outputs");
  const { items } = await ask(portal, name, `/models/${id}/predictions?limit=1`);
  assert.equal(items[0].kind, "reconstruction");
  const image = await page.request.get(`${portal.url}${items[0].image}`);
  assert.deepEqual([image.status(), image.headers()["content-type"]], [200, "image/png"]);
  const { metrics } = await ask(portal, name, `/models/${id}/evaluation`);
  assert.ok(metrics.psnr > 5 && metrics.mse < 0.3, JSON.stringify(metrics));
  await browser.examine(person, "model-reconstruction");
});

test("a regression shows predicted over true values", async () => {
  const { page } = person;
  const id = await start("regression", async (form) => {
    await form.getByLabel("Network", { exact: true }).selectOption("own");
    await form.getByLabel("Custom network").fill(PROGRAM);
    await browser.examine(person, "model-new-regression");
  });
  await page.getByRole("img", { name: /^Predicted over true values of brightness, \d+ images$/ }).waitFor();
  const { metrics } = await ask(portal, name, `/models/${id}/evaluation`);
  assert.ok(metrics.close >= 0 && metrics.mae < 1, JSON.stringify(metrics));
  const { best } = await ask(portal, name, `/models/${id}`);
  assert.ok(Math.abs(best - metrics.close) < 0.01, "its own metric selects the checkpoint");
  await browser.examine(person, "model-regression");
});

test("what is wrong with a loss is said with its line", async () => {
  const { page } = person;
  const wrong = PROGRAM.replace("ops.square(truth - predicted)", "ops.square(truth @ 'x')");
  const body = { name: "wrong", dataset: dataset.id, config: { task: "regression", epochs: 1 }, program: wrong };
  const made = await ask(portal, name, "/models", { method: "POST", body });
  await until(async () => (await ask(portal, name, `/models/${made.id}`)).state === "failed", 240, "its end");
  await page.goto(`${portal.url}/models/${made.id}`);
  await page
    .getByText(/network\.file: line 17: /)
    .first()
    .waitFor();
  await browser.photograph(page, "model-wrong-loss");
});

test("an image is answered by an image", async () => {
  const { page } = person;
  const { items } = await ask(portal, name, "/models");
  const model = items.find((one) => one.kind === "reconstruction");
  await page.goto(`${portal.url}/models/${model.id}`);
  const { execFileSync } = await import("node:child_process");
  const { statSync } = await import("node:fs");
  const { uid, gid } = statSync(home);
  const code =
    "import zlib, struct\nd=b''.join(b'\\0'+bytes((9*x)%256 for x in range(24)) for _ in range(24))\nc=lambda k,b: struct.pack('>I',len(b))+k+b+struct.pack('>I',zlib.crc32(k+b))\nopen('one.png','wb').write(b'\\x89PNG\\r\\n\\x1a\\n'+c(b'IHDR',struct.pack('>IIBBBBB',24,24,8,0,0,0,0))+c(b'IDAT',zlib.compress(d))+c(b'IEND',b''))";
  execFileSync("/usr/bin/python3", ["-c", code], { cwd: home, uid, gid });
  await page.getByLabel("Or the path of an image or folder").fill("~/one.png");
  await page.getByRole("button", { name: "Predict" }).click();
  await page.waitForURL(/\/tests\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator("#answer-state", { hasText: "done" }), 240, "the answer");
  await page.getByRole("img", { name: "one.png, output" }).waitFor();
  await browser.appears(page, page.getByText("As the network sees it"), 240, "its input");
  await browser.examine(person, "model-output");
  browser.assertNoFaults(person);
});
