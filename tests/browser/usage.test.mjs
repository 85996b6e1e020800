// What was used: a day is read by pointing at it and by the keyboard, without a script; what has
// ended is found, filtered and saved; an administrator sees who used how much. In pictures too.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceum, startPortal, until } from "./portal.mjs";

let chromium, portal, una, ended;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  una = addUser(portal, `una${process.pid}`);
  lyceum(portal, ["admin", "quota", "set", "user", una.name, "cpu_hours=40"]);
  const start = { app: "terminal", name: "board", resources: { cpus: 1 } };
  ended = await ask(portal, una.name, "/sessions", { method: "POST", body: start });
  const state = async () => (await ask(portal, una.name, `/sessions/${ended.id}`)).state;
  await until(async () => (await state()) === "running", 60, "the terminal's start");
  await ask(portal, una.name, `/sessions/${ended.id}`, { method: "DELETE" });
  await until(async () => (await state()) === "ended", 60, "its end");
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("somebody reads what they used, day by day, and finds what has ended", async () => {
  const person = await browser.visit(chromium, portal);
  const { page } = person;
  await browser.signIn(person, una);
  await browser.isSignedIn(person);
  await page.getByRole("link", { name: "Usage" }).click();
  await page.getByRole("heading", { name: "Remaining hours" }).waitFor();
  await page.getByRole("link", { name: "7 days", exact: true }).click();
  const chart = page.getByRole("group", { name: "core-hours, one by one" });
  const days = chart.getByRole("radio");
  assert.equal(await days.count(), 7);
  const today = chart.locator("label").last();
  await today.hover();
  assert.match(await today.locator(".read").innerText(), /0\.1 .*20\d\d/);
  // One stop for the tabulator; arrows go from day to day.
  await days.last().focus();
  await page.keyboard.press("Space");
  await page.keyboard.press("ArrowLeft");
  assert.ok(await days.nth(5).isChecked());
  await page.mouse.move(0, 0);
  assert.ok(await chart.locator("label").nth(5).locator(".read").isVisible());
  assert.ok(!(await today.locator(".read").isVisible()));

  await page.getByText("Show as a table").click();
  assert.equal(await page.getByRole("table", { name: "Usage over time" }).getByRole("row").count(), 8);
  await browser.photograph(page, "usage");
  await browser.assertAccessible(page, "usage");

  await page.getByLabel("End reason").selectOption("stopped_by_owner");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByRole("link", { name: "board" }).waitFor();
  const [table] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "As CSV" }).click(),
  ]);
  assert.equal(table.suggestedFilename(), "sessions.csv");
  await page.getByLabel("End reason").selectOption("idle");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByText("No matching sessions.").waitFor();
  await page.getByRole("link", { name: "Show all" }).click();
  await page.getByRole("link", { name: "board" }).click();
  await page.waitForURL(new RegExp(`/sessions/${ended.id}`));
  assert.equal(await page.getByRole("link", { name: "All users" }).count(), 0);
  browser.assertNoFaults(person);
});

test("the command line says the same", () => {
  const token = portal.tokens.get(una.name);
  const env = { LYCEUM_URL: portal.api, LYCEUM_TOKEN: token };
  assert.match(lyceum(portal, ["usage"], { env }), new RegExp(`^USER .*\\n${una.name} `));
  const days = JSON.parse(lyceum(portal, ["usage", "--by", "day", "--json"], { env }));
  assert.equal(days.items.at(-1).sessions, 1);
});

test("an administrator sees who used how much", async () => {
  lyceum(portal, ["admin", "user", "add", `iris${process.pid}`, "--admin", "--password-stdin"], {
    input: "a-long-password-of-hers\n",
  });
  const person = await browser.visit(chromium, portal);
  const { page } = person;
  await browser.signIn(person, { name: `iris${process.pid}`, password: "a-long-password-of-hers" });
  await browser.isSignedIn(person);
  await page.goto(`${portal.url}/usage`);
  await page.getByText("No sessions ended in this period.").waitFor();
  await page.getByRole("link", { name: "All users" }).click();
  const row = page.getByRole("row", { name: new RegExp(una.name) });
  await row.waitFor();
  await page.getByRole("link", { name: "Core-hours" }).click();
  await row.waitFor();
  assert.match(page.url(), /sort=cpus/);
  await browser.photograph(page, "usage-compare");
  await browser.assertAccessible(page, "usage-compare");
  const [table] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "group and user" }).click(),
  ]);
  const lines = readFileSync(await table.path(), "utf8").split("\r\n");
  assert.equal(lines[0], '"group","user","gpu_seconds","cpu_seconds","sessions"');
  assert.match(lines[1], new RegExp(`^"","${una.name}",`));
  await page.getByRole("link", { name: "GPU model" }).click();
  await page.getByText("No usage in this period.").waitFor();
  browser.assertNoFaults(person);
});
