// An administrator tells everybody something, orders maintenance and looks at the health page;
// what somebody else sees of it meanwhile, on a page that stays open.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceum, startPortal, until } from "./portal.mjs";

let chromium, portal, chief, mia;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  chief = await browser.visit(chromium, portal);
  mia = await browser.visit(chromium, portal);
  mia.account = addUser(portal, `mia${process.pid}`);
  await browser.signIn(chief, addUser(portal, `boss${process.pid}`, ["--admin"]));
  await browser.isSignedIn(chief);
  await browser.signIn(mia, mia.account);
  await browser.isSignedIn(mia);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

const strip = (person) => person.page.locator("#announcements");

test("what is announced appears on an open page, and goes when it is put aside", async () => {
  const { page } = chief;
  await mia.page.goto(`${portal.url}/settings`);
  // A reload would take this away.
  await mia.page.getByLabel("Name", { exact: true }).first().fill("typed meanwhile");
  await page.getByRole("link", { name: "Admin", exact: true }).click();
  await page.getByRole("link", { name: "Announcements" }).click();
  await page.getByLabel("Message").fill("Lectures begin on Monday: https://docs.example.org/plan.");
  await page.getByText("On the sign-in page too").click();
  await page.getByRole("button", { name: "Publish" }).click();
  await page.getByText("The announcement was published.").waitFor();
  await browser.appears(mia.page, strip(mia).getByText("Lectures begin on Monday"), 20, "the news on an open page");
  const link = strip(mia).getByRole("link", { name: "https://docs.example.org/plan" });
  assert.equal(await link.getAttribute("href"), "https://docs.example.org/plan");
  assert.equal(await mia.page.getByLabel("Name", { exact: true }).first().inputValue(), "typed meanwhile");

  lyceum(portal, ["admin", "announce", "add", "The cooling has failed: save your work.", "--level", "critical"]);
  await browser.appears(mia.page, strip(mia).getByRole("alert"), 20, "what the command line says");
  await browser.photograph(mia.page, "announcements-strip");
  await browser.assertAccessible(mia.page, "announcements-strip");
  assert.equal(
    await strip(mia).getByRole("button", { name: "Dismiss this announcement" }).count(),
    1,
    "what is critical stays",
  );
  await strip(mia).getByRole("button", { name: "Dismiss this announcement" }).click();
  await strip(mia).getByText("Lectures begin on Monday").waitFor({ state: "detached" });
  await mia.page.reload();
  await strip(mia).getByRole("alert").waitFor();
  assert.equal(await strip(mia).getByText("Lectures").count(), 0);
  assert.equal(await strip(chief).getByText("Lectures").count(), 1, "for others it stays");

  const stranger = await browser.visit(chromium, portal);
  await stranger.page.goto(`${portal.url}/login`);
  await stranger.page.getByText("Lectures begin on Monday").waitFor();
  assert.equal(await strip(stranger).getByText("cooling").count(), 0, "that is for those who are in");
  await browser.photograph(stranger.page, "announcements-login");
  await stranger.context.close();

  await page.goto(`${portal.url}/admin/announcements`);
  await check("announcements");
  const row = page.getByRole("row").filter({ hasText: "cooling" });
  await row.getByRole("button", { name: "End now" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("The announcement was ended and is no longer shown.").waitFor();
  await strip(mia).getByRole("alert").waitFor({ state: "detached" });
});

test("during maintenance nothing starts, and afterwards what waited does", async () => {
  const { page } = chief;
  await mia.page.goto(`${portal.url}/sessions/new?app=terminal`);
  await page.goto(`${portal.url}/admin/maintenance`);
  await check("maintenance-off");
  await page.getByLabel("Message").fill("New disks are put in.");
  const end = new Date(Date.now() + 2 * 3600_000);
  await page.getByLabel(/^To/).fill(localMinute(end));
  await page.getByRole("button", { name: "Schedule maintenance" }).click();
  await page.getByText("Maintenance was scheduled").waitFor();
  const stored = await ask(portal, mia.account.name, "/maintenance");
  assert.equal(Date.parse(stored.to), Math.floor(end / 60_000) * 60_000, "what was typed is of the reader's zone");
  await browser.appears(mia.page, strip(mia).getByText("New disks are put in."), 20, "maintenance on an open page");

  await mia.page.getByRole("button", { name: "Start", exact: true }).click();
  await mia.page
    .getByText(/No session starts during maintenance, until/)
    .first()
    .waitFor();
  await browser.photograph(mia.page, "maintenance-refused");
  await browser.assertAccessible(mia.page, "maintenance-refused");
  await check("maintenance-on");

  await page.getByRole("button", { name: "End maintenance" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("Maintenance was ended").waitFor();
  await strip(mia).getByText("New disks").waitFor({ state: "detached" });
  await mia.page.getByLabel("Name", { exact: true }).fill("after-all");
  await mia.page.getByLabel("Open when ready").uncheck();
  await mia.page.getByRole("button", { name: "Start", exact: true }).click();
  await mia.page.waitForURL((url) => url.pathname !== "/sessions/new");
  await mia.page.goto(portal.url);
  await browser.waitForState(mia, "after-all", "Running", 60);
});

test("draining tells those whose sessions run, and ends them", async () => {
  const at = new Date(Date.now() + 3600_000).toISOString();
  lyceum(portal, ["admin", "maintenance", "on", "--drain-at", at]);
  await mia.page.goto(portal.url);
  await browser.appears(
    mia.page,
    browser.card(mia.page, "after-all").getByText("Ends for maintenance"),
    30,
    "the card's sentence",
  );
  await browser.photograph(mia.page, "maintenance-drain");
  lyceum(portal, ["admin", "maintenance", "on", "--drain-at", "now"]);
  const sessions = async () => (await ask(portal, mia.account.name, "/sessions")).items;
  const ended = await until(
    async () => (await sessions()).find((one) => one.state === "ended"),
    60,
    "the end of the session",
  );
  assert.equal(ended.end_reason, "stopped_by_admin");
  assert.match(ended.detail, /^Ended for maintenance/);
  await browser.appears(
    mia.page,
    mia.page.getByText(/Ended for maintenance/).first(),
    30,
    "why it ended, on the open page",
  );
  lyceum(portal, ["admin", "maintenance", "off"]);
});

test("the health page says how everything is, and stays fresh", async () => {
  const { page } = chief;
  await page.goto(`${portal.url}/admin/health`);
  await page.getByRole("heading", { name: "Background tasks" }).waitFor();
  for (const part of ["database", "scheduler", "free space", "sessions", "announcements", "audit log"]) {
    await page.getByText(part, { exact: true }).first().waitFor();
  }
  await check("health");
  await page.evaluate(() => {
    document.body.dataset.kept = "yes";
  });
  await page.getByText("no backup by").waitFor();
  lyceum(portal, ["admin", "backup", `${portal.data}-copy.db`]);
  await browser.appears(page, page.getByText(/the last backup was made/), 30, "the new backup");
  assert.equal(await page.evaluate(() => document.body.dataset.kept), "yes", "without a reload");
  browser.assertNoFaults(chief, []);
  browser.assertNoFaults(mia, [/status of 503/]);
});

function localMinute(at) {
  const two = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

async function check(name) {
  await browser.photograph(chief.page, name);
  await browser.assertAccessible(chief.page, name);
}
