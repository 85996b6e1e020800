// The table of results against the real portal, with a hundred runs of ten curves: filter with faults
// in their place, two columns of order, groups, a baseline, curves of ticked runs below the table, and a link
// that restores all of it.

import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

const RUNS = 100,
  STEPS = 60;
const RATES = [0.3, 0.1, 0.03, 0.01, 0.003],
  OPTIMIZERS = ["adam", "sgd"];
let chromium, portal, cora, logs;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  cora = addUser(portal, `cora${process.pid}`);
  logs = mkdtempSync(join(tmpdir(), "ly-results-"));
  chmodSync(logs, 0o755);
  for (let at = 0; at < RUNS; at += 1) {
    const [lr, optimizer, seed] = [RATES[at % 5], OPTIMIZERS[Math.floor(at / 5) % 2], Math.floor(at / 10)];
    write(`run-${String(at).padStart(3, "0")}`, { lr, optimizer, seed, batch_size: 64 }, at);
  }
  for (let at = 0; at < RUNS; at += 1) {
    const name = `run-${String(at).padStart(3, "0")}`;
    await ask(portal, cora.name, "/runs", { method: "POST", body: { directory: join(logs, name), name } });
  }
  await until(
    async () =>
      (await ask(portal, cora.name, "/results?where=val%2Floss+%21%3D+none+and+points+%3D+600")).matched === RUNS,
    240,
    "a hundred runs are read",
  );
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  if (logs) rmSync(logs, { recursive: true, force: true });
});

/** A run of ten curves: the greater the rate, the quicker and the higher it ends. */
function write(name, hparams, number) {
  mkdirSync(join(logs, name));
  writeFileSync(
    join(logs, name, "hparams.yaml"),
    Object.entries(hparams)
      .map(([key, value]) => `${key}: ${value}\n`)
      .join(""),
  );
  const lines = [];
  for (let step = 0; step < STEPS; step += 1) {
    const noise = Math.sin(step * 1.7 + number) * 0.02;
    const loss =
      2 * Math.exp(-step * (0.04 + hparams.lr / 4)) +
      hparams.lr +
      (hparams.optimizer === "sgd" ? 0.1 : 0) +
      hparams.seed * 0.004 +
      noise;
    const record = {
      step,
      time: 1763800000 + step,
      "train/loss": loss,
      "val/loss": loss + 0.1,
      "train/accuracy": 1 / (1 + loss),
      "val/accuracy": 0.98 / (1 + loss),
      lr: hparams.lr,
    };
    for (let more = 0; more < 5; more += 1) record[`grad/norm${more}`] = 1 + noise * more;
    lines.push(JSON.stringify(record));
  }
  writeFileSync(join(logs, name, "metrics.jsonl"), `${lines.join("\n")}\n`);
}

async function visit(path) {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, cora);
  await browser.isSignedIn(person);
  await person.page.goto(`${portal.url}${path}`);
  return person;
}

const rows = (page) => page.locator('[aria-label="Results"] tbody tr');
const names = async (page) =>
  (await page.locator('[aria-label="Results"] tbody .name').allInnerTexts()).map((name) => name.trim());

test("a hundred runs of ten curves are a table at once", async (t) => {
  const person = await visit("/");
  const { page } = person;
  const begun = Date.now();
  await page.goto(`${portal.url}/runs`);
  await rows(page)
    .nth(RUNS - 1)
    .waitFor();
  t.diagnostic(`/runs with ${RUNS} rows: ${Date.now() - begun} ms until the last row is there`);
  assert.equal(await page.locator('[aria-label="Results"] tbody svg').count(), RUNS * 5);
  // The same everywhere: no column of its own.
  assert.deepEqual(
    (await page.locator('[aria-label="Results"] thead [data-key^="p:"]').allInnerTexts()).map((text) => text.trim()),
    ["lr", "optimizer", "seed"],
  );
  await page.getByRole("checkbox", { name: "Show constant columns" }).check();
  await page.locator('thead [data-key="p:batch_size"]').waitFor();
  await page.getByRole("checkbox", { name: "Show constant columns" }).uncheck();
  await page.locator('thead [data-key="p:batch_size"]').waitFor({ state: "detached" });
  browser.assertNoFaults(person);
  await person.context.close();
});

test("rows are filtered, ordered by two columns, grouped and compared in their place, and a link restores it", async () => {
  const person = await visit("/runs");
  const { page } = person;
  await rows(page).first().waitFor();
  await page.evaluate(() => {
    globalThis.stayed = true;
  });
  const filter = page.getByRole("searchbox", { name: "Filter runs" });
  await filter.fill("optimizer = adam and depth > 3");
  await page.getByText("Unknown column “depth”. (character 22)").waitFor();
  assert.equal(await filter.getAttribute("aria-invalid"), "true");
  await filter.fill("lr <= 0.03 and (optimizer = adam or seed = 0)");
  await page.getByText("33 of 100 runs").waitFor();
  assert.equal(await filter.getAttribute("aria-invalid"), "false");

  await page.locator('thead [data-key="p:lr"]').click();
  await page.locator('th[aria-sort="ascending"] [data-key="p:lr"]').waitFor();
  await page.locator('thead [data-key="p:seed"]').click({ modifiers: ["Shift"] });
  await page.locator('th[aria-sort="ascending"] [data-key="p:seed"]').waitFor();
  await page.locator('thead [data-key="p:seed"]').click({ modifiers: ["Shift"] });
  await page.locator('th[aria-sort="descending"] [data-key="p:seed"]').waitFor();
  assert.deepEqual((await names(page)).slice(0, 2), ["run-094", "run-084"]);

  await page.getByLabel("Baseline run-094").click();
  await page.locator("tr.base").waitFor();
  await page.locator(".delta").first().waitFor();
  await page.getByRole("combobox", { name: "Group" }).selectOption({ label: "by lr" });
  await page.getByRole("group", { name: "Groups" }).getByText("lr = 0.003").waitFor();
  assert.equal(await page.locator(".groups tbody tr").count(), 3);
  assert.equal(await page.locator(".groups .band").count(), 15);

  await page.getByRole("button", { name: "Select all" }).click();
  await page.getByText(/^\d\d runs selected/).waitFor();
  assert.equal(await page.locator("input[name=id]:not(:checked)").count(), 0);
  await page.getByRole("button", { name: "Clear selection" }).click();
  await page.getByText("Select runs to see their curves together.").waitFor();
  for (const name of ["run-094", "run-084", "run-003"])
    await page.getByRole("checkbox", { name: `Select ${name}` }).check();
  const chart = page.locator('figure[data-chart="val/loss"]');
  await browser.appears(page, chart, 60, "the curves of what is ticked");
  await until(
    async () => (await page.locator("[data-picked] .keys").getByRole("button", { pressed: true }).count()) === 3,
    30,
    "three lines",
  );
  await page.getByRole("combobox", { name: "Value" }).selectOption("at");
  await page.getByRole("spinbutton", { name: "Step" }).fill("10");
  await page.locator("tbody small", { hasText: "at 10" }).first().waitFor();
  assert.ok(await page.evaluate(() => globalThis.stayed));
  await browser.photograph(page, "results-grouped");
  await browser.assertAccessible(page, "results-grouped");
  await browser.assertNoSidewaysScroll(page, "results-grouped");

  const { search } = new URL(page.url());
  for (const part of [
    "where=",
    "sort=p%3Alr",
    "sort=-p%3Aseed",
    "group=p%3Alr",
    "base=",
    "pick=",
    "value=at",
    "step=10",
  ])
    assert.ok(search.includes(part), `${part} in ${search}`);
  const other = await visit(`/runs${search}`);
  await browser.appears(
    other.page,
    other.page.locator('figure[data-chart="val/loss"]'),
    60,
    "the same curves for somebody else",
  );
  assert.deepEqual(await names(other.page), await names(page));
  assert.ok(await other.page.getByRole("checkbox", { name: "Select run-003" }).isChecked());
  await other.page.getByRole("button", { name: "Compare", exact: true }).click();
  await other.page.waitForURL(/\/runs\/compare\?/);
  assert.equal(new URL(other.page.url()).searchParams.getAll("id").length, 3);
  browser.assertNoFaults(other);
  browser.assertNoFaults(person, [/status of 422/]);
});

test("without scripts the tools are a form and the headings are links", async () => {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, cora);
  await browser.isSignedIn(person);
  const context = await chromium.newContext({
    javaScriptEnabled: false,
    storageState: await person.context.storageState(),
  });
  const page = await context.newPage();
  await page.goto(`${portal.url}/runs`);
  await page.getByRole("searchbox", { name: "Filter runs" }).fill("seed = 3");
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.getByText("10 of 100 runs").waitFor();
  await page.locator('thead [data-key="m:val/loss"]').click();
  await page.locator('th[aria-sort="ascending"] [data-key="m:val/loss"]').waitFor();
  assert.equal(await rows(page).count(), 10);
  await page.getByRole("checkbox", { name: `Select ${(await names(page))[0]}` }).check();
  await page.getByRole("button", { name: "Compare", exact: true }).click();
  await page.waitForURL(/\/runs\/compare\?id=/);
  await context.close();
});
