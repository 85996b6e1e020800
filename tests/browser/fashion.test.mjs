// Real pictures from the form of a dataset to a confusion that can be read: Debian's Fashion-MNIST by
// one click and as IDX files, LeNet for one epoch on the cores of this machine. The Python is LYCEUM_TEST_PYTHON's.

import assert from "node:assert/strict";
import { chownSync, copyFileSync, mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal } from "./portal.mjs";

const SOURCE = "/usr/share/datasets/fashion-mnist";
const FILES = ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"];
const CLASSES = ["T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"];

let chromium, portal, person, name;

before(async () => {
  chromium = await browser.openBrowser();
  // Nothing answers there.
  const configuration = '[datasets]\nmirror = "http://127.0.0.1:9"\n';
  portal = await startPortal({ configuration, environment: process.env.LYCEUM_TEST_PYTHON ? "kept" : "built" });
  const fay = addUser(portal, `fay${process.pid}`);
  name = fay.name;
  const home = (await ask(portal, name, "/files/roots")).items[0].path;
  const { uid, gid } = statSync(home);
  const folder = join(home, "fashion");
  mkdirSync(folder);
  for (const file of FILES) copyFileSync(join(SOURCE, file), join(folder, file));
  writeFileSync(join(folder, "classes.txt"), `${CLASSES.join("\n")}\n`);
  for (const path of [folder, ...[...FILES, "classes.txt"].map((file) => join(folder, file))])
    chownSync(path, uid, gid);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, fay);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("a standard set is created as published by one click, and a second click says where it is", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/datasets/new`);
  await page.getByText("70000 greyscale images of 28 × 28 pixels in 10 classes").first().waitFor();
  await browser.examine(person, "dataset-new-standard");
  const filled = async (source) => {
    await page.locator(`input[type="radio"][name="source"][value="${source}"]`).check({ force: true });
    return [await page.getByLabel("Width").inputValue(), await page.getByLabel("Name", { exact: true }).inputValue()];
  };
  assert.equal((await filled("standard"))[0], "28");
  assert.deepEqual(await filled("folder"), ["128", ""], "what stood there before");
  await page.getByRole("button", { name: "Create Fashion-MNIST" }).click();
  await page.waitForURL(/\/datasets\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator(".page .state", { hasText: "ready" }), 240, "that it is ready");
  for (const label of CLASSES.slice(1))
    await page.getByRole("rowheader", { name: label, exact: true }).first().waitFor();
  await browser.examine(person, "dataset-standard");
  const { contents, pictures } = await ask(portal, name, `/datasets/${page.url().split("/").at(-1)}`);
  assert.deepEqual(
    [pictures, contents.counts.train, contents.counts.val, contents.counts.test],
    [70000, 54000, 6000, 10000],
  );
  await page.goto(`${portal.url}/datasets/new`);
  await page.getByRole("button", { name: "Create Fashion-MNIST" }).click();
  await page.getByText("A file or folder with this name already exists.").first().waitFor();
  assert.deepEqual(
    [await page.getByLabel("Width").inputValue(), await page.getByLabel("Set", { exact: true }).inputValue()],
    ["28", "fashion-mnist"],
  );
  await browser.examine(person, "dataset-standard-again");
});

test("a set that cannot be downloaded says why and what to do", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/datasets/new`);
  await page.getByRole("radio", { name: /^Standard set/ }).check({ force: true });
  await page.getByLabel("Set", { exact: true }).selectOption("cifar-10");
  assert.deepEqual(
    [await page.getByLabel("Width").inputValue(), await page.getByLabel("Name", { exact: true }).inputValue()],
    ["32", "CIFAR-10"],
  );
  await page.getByRole("button", { name: "Create dataset" }).click();
  await page.waitForURL(/\/datasets\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator(".page .state", { hasText: "failed" }), 120, "that it failed");
  await page
    .getByText(/cifar-10-binary\.tar\.gz cannot be downloaded .*Copy the files of the set into a folder/)
    .waitFor();
  await browser.examine(person, "dataset-standard-failed");
});

test("ten thousand pictures become a dataset", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/datasets/new`);
  await page.getByRole("radio", { name: /^IDX/ }).check({ force: true });
  await page.getByLabel("Images", { exact: true }).fill(`~/fashion/${FILES[0]}`);
  await page.getByLabel("Labels", { exact: true }).fill(`~/fashion/${FILES[1]}`);
  await page.getByLabel("Class names").fill("~/fashion/classes.txt");
  await page.getByLabel("Width").fill("28");
  await page.getByLabel("Height").fill("28");
  await page.getByLabel("Name", { exact: true }).fill("Fashion");
  await page.getByRole("button", { name: "Create dataset" }).click();
  await page.waitForURL(/\/datasets\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator(".page .state", { hasText: "ready" }), 120, "that it is ready");
  for (const label of CLASSES) await page.getByRole("rowheader", { name: label, exact: true }).first().waitFor();
  const dataset = await ask(portal, name, `/datasets/${page.url().split("/").at(-1)}`);
  assert.deepEqual([dataset.pictures, dataset.classes], [10000, 10]);
});

test("LeNet tells them apart, and its confusion says which not", async () => {
  const { page } = person;
  await page.getByRole("link", { name: "Train a model" }).click();
  await page.getByLabel("Name", { exact: true }).fill("Fashion by LeNet");
  await page.getByLabel("Network", { exact: true }).selectOption("lenet");
  await page.getByLabel("Epochs", { exact: true }).fill("1");
  await page.getByRole("button", { name: "Train", exact: true }).click();
  await page.waitForURL(/\/models\/[0-9a-f-]{36}$/);
  await browser.appears(page, page.locator("#model-state", { hasText: "trained" }), 300, "the end of its training");
  const model = page.url().split("/").at(-1);
  const { confusion, metrics } = await ask(portal, name, `/models/${model}/evaluation`);
  assert.deepEqual([...confusion.classes].sort(), [...CLASSES].sort());
  assert.ok(metrics.accuracy > 0.6, `${metrics.accuracy} after one epoch`);
  const map = page.locator("table.heat").first();
  await map.waitFor();
  const shown = await map
    .locator("tbody tr")
    .evaluateAll((rows) => rows.map((row) => [...row.querySelectorAll("td")].map((cell) => Number(cell.innerText))));
  assert.deepEqual(shown, confusion.counts);
  await browser.photograph(page, "fashion-confusion");
  browser.assertNoFaults(person, [/status of 422/]);
});
