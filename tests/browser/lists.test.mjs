// The list of jobs under somebody's hands: it is sorted by its heads, filtered while they type, rows are selected and
// counted, what is done names what and how many, the columns are chosen and stay; and all of it without scripts too.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, lea, person, page;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  lea = addUser(portal, `lea${process.pid}`);
  for (const [name, command] of [
    ["beta", ["true"]],
    ["alpha", ["sh", "-c", "exit 3"]],
    ["gamma", ["sleep", "900"]],
    ["delta", ["sleep", "900"]],
  ]) {
    const { id } = await api("/jobs", {
      method: "POST",
      body: { name, command, resources: { cpus: 1, memory_bytes: 64 << 20 } },
    });
    if (name === "delta") await api(`/jobs/${id}/cancel`, { method: "POST" });
  }
  await until(
    async () => (await api("/jobs")).items.filter(({ state }) => state === "ended").length === 3,
    120,
    "the end of three",
  );
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, lea);
  await browser.isSignedIn(person);
  page = person.page;
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("the heads sort, and how a job turned out has a colour and a shape", async () => {
  await page.goto(`${portal.url}/jobs`);
  assert.deepEqual(await names(), ["delta", "gamma", "alpha", "beta"]);
  await page.getByRole("columnheader", { name: "Name" }).getByRole("link").click();
  await page.waitForURL(/\?sort=name$/);
  assert.deepEqual(await names(), ["alpha", "beta", "delta", "gamma"]);
  assert.equal(await page.getByRole("columnheader", { name: "Name" }).getAttribute("aria-sort"), "ascending");
  const looks = await page.locator("tbody .state").evaluateAll((badges) =>
    badges.map((badge) => {
      const { width, height, transform, clipPath, borderRadius } = getComputedStyle(badge, "::before");
      return {
        word: badge.textContent,
        colour: getComputedStyle(badge).color,
        shape: [width, height, transform, clipPath, borderRadius].join(),
      };
    }),
  );
  assert.deepEqual(
    looks.map(({ word }) => word),
    ["Failed", "Succeeded", "Cancelled", "Running"],
  );
  assert.equal(new Set(looks.map(({ shape }) => shape)).size, 4, "each has its own shape");
  assert.equal(new Set(looks.slice(0, 3).map(({ colour }) => colour)).size, 3, "and what has ended its own colour");
  await browser.examine(person, "jobs-sorted");
});

test("the list answers while one types, and the address follows", async () => {
  const loads = [];
  page.on("load", () => loads.push(page.url()));
  await page.getByLabel("Part of a name").fill("ta");
  await until(async () => (await names()).join() === "beta,delta", 30, "the rows that match");
  assert.equal(new URL(page.url()).search, "?find=ta&sort=name");
  await page.getByLabel("State", { exact: true }).selectOption("live");
  await page.getByText("No jobs match.").waitFor();
  await page.getByLabel("State", { exact: true }).selectOption("");
  await page.getByLabel("Part of a name").fill("");
  await until(async () => (await names()).length === 4, 30, "all rows");
  assert.deepEqual(loads, [], "without a reload");
});

test("rows are counted, and buttons say what they do with how many", async () => {
  const list = page.locator("[data-list]"),
    all = page.getByLabel("Select all on this page");
  const cancel = list.getByRole("button", { name: /^Cancel/ });
  await list.getByText("0 of 4 selected").waitFor();
  assert.ok(await cancel.isDisabled(), "nothing is selected");
  await page.getByLabel("Select alpha").check();
  await list.getByText("1 of 4 selected").waitFor();
  assert.ok(await all.evaluate((box) => box.indeterminate), "some are");
  const wide = page.viewportSize();
  await page.setViewportSize({ width: 375, height: 800 });
  await page.getByLabel("Select all", { exact: true }).check();
  await list.getByText("4 of 4 selected").waitFor();
  await page.getByLabel("Select all", { exact: true }).uncheck();
  await page.setViewportSize(wide);
  await all.check();
  await list.getByText("4 of 4 selected").waitFor();
  await page.getByLabel("Select beta").uncheck();
  assert.equal(await cancel.textContent(), "Cancel 3 jobs");
  await browser.examine(person, "jobs-selected");
  await cancel.click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("Cancel 3 jobs? Jobs that have ended are not changed.").waitFor();
  await dialog.getByRole("button", { name: "Yes, cancel 3 jobs" }).click();
  await page.getByText("Cancelling 3 jobs.").waitFor();
  assert.equal(new URL(page.url()).searchParams.get("sort"), "name", "the order stays");
  await browser.appears(page, page.getByRole("row").filter({ hasText: "gamma" }).getByText("Cancelled"), 60, "its end");
});

test("columns are chosen, and stay", async () => {
  await page.goto(`${portal.url}/jobs`);
  await page.getByText("Columns", { exact: true }).click();
  await page.getByLabel("Outcome").uncheck();
  await page.getByLabel("Submitted").check();
  await browser.examine(person, "jobs-columns");
  await page.getByRole("button", { name: "Show selected" }).click();
  await page.getByRole("columnheader", { name: "Submitted" }).waitFor();
  await page.reload();
  assert.equal(await page.getByRole("columnheader", { name: "Outcome" }).count(), 0);
  browser.assertNoFaults(person);
});

test("without scripts there are the same links, boxes and buttons", async () => {
  const context = await chromium.newContext({
    javaScriptEnabled: false,
    storageState: await person.context.storageState(),
  });
  const plain = await context.newPage();
  await plain.goto(`${portal.url}/jobs`);
  await plain.getByRole("columnheader", { name: "Name" }).getByRole("link").click();
  await plain.getByLabel("Part of a name").fill("ta");
  await plain.getByRole("button", { name: "Find" }).click();
  assert.deepEqual(await names(plain), ["beta", "delta"]);
  await plain.getByLabel("Select beta").check();
  await plain.getByRole("button", { name: "Star" }).click();
  await plain.getByText("1 job starred.").waitFor();
  await plain.getByText("Columns", { exact: true }).click();
  await plain.getByRole("button", { name: "Reset" }).click();
  await plain.getByRole("columnheader", { name: "Outcome" }).waitFor();
  await plain.getByRole("link", { name: "beta" }).click();
  for (const [tab, text] of [
    ["Log", "Find in the log"],
    ["Config", "Copy the ID"],
    ["System", "Resources"],
    ["Overview", "Timeline"],
  ]) {
    await plain.getByRole("navigation", { name: "Job" }).getByRole("link", { name: tab }).click();
    await until(async () => (await plain.content()).includes(text), 30, `the tab ${tab}`);
  }
  await context.close();
});

function api(path, options) {
  return ask(portal, lea.name, path, options);
}

/** The names in the list, from the top. */
function names(where = page) {
  return where.locator("tbody a.name").allTextContents();
}
