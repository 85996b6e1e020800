// From one thing to the next: a program brings its size, a job leads to its board, and ended sessions are started
// again. Also what is reached by keys alone: the command palette and the shortcuts. The steps of the everyday journeys
// are counted in clicks.test.mjs.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, ada;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ configuration: "[scheduler.local]\ncpus = 8\ngpus = 4\n" });
  ada = addUser(portal, `ada${process.pid}`);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, ada);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

const button = (page, name) => page.getByRole("button", { name, exact: true });
const link = (page, name) => page.getByRole("link", { name, exact: true });

test("a terminal is light and has no GPU", async () => {
  const { page } = person;
  await page.goto(portal.url);
  await link(page, "New session").click();
  await page.getByRole("radio", { name: /^Terminal/ }).check({ force: true });
  assert.equal(await page.getByRole("radio", { name: /^Light/ }).isChecked(), true, "it brings its own size");
  await button(page, "Start").click();
  await page.locator(".xterm-screen").first().waitFor({ timeout: 60_000 });
  const [terminal] = (await ask(portal, ada.name, "/sessions")).items;
  assert.deepEqual([terminal.app, terminal.resources.gpus, terminal.resources.cpus], ["terminal", 0, 1]);
  await ask(portal, ada.name, `/sessions/${terminal.id}`, { method: "DELETE" });
});

test("the size follows the program until somebody chooses one", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sessions/new`);
  const size = () => page.locator('[name="profile"]:checked').getAttribute("value");
  const usual = await size();
  await page.getByRole("radio", { name: /^TensorBoard/ }).check({ force: true });
  assert.equal(await size(), "app");
  await page.getByRole("radio", { name: /^JupyterLab/ }).check({ force: true });
  assert.equal(await size(), usual);
  await page.getByRole("radio", { name: /^CPU only/ }).check({ force: true });
  await page.getByRole("radio", { name: /^TensorBoard/ }).check({ force: true });
  assert.equal(await size(), "cpu", "what was chosen stays");
});

test("a job shows TensorBoard, and a board that runs is used again", async () => {
  const { page } = person;
  const job = await ask(portal, ada.name, "/jobs", {
    method: "POST",
    body: {
      name: "curves",
      script: "lyceum demo-train --steps 40 --rate 40",
      resources: { cpus: 1, memory_bytes: 256 << 20 },
    },
  });
  await until(
    async () => (await ask(portal, ada.name, `/jobs/${job.id}/metrics`)).runs?.length > 0,
    90,
    "its first curve",
  );
  await page.goto(`${portal.url}/jobs/${job.id}`);
  for (const _time of [1, 2]) {
    const board = await browser.openTab(person, button(page, "TensorBoard"));
    await board.waitForURL(/\/s\//);
    await board.close();
  }
  const boards = (await ask(portal, ada.name, "/sessions?app=tensorboard")).items;
  assert.equal(boards.length, 1, "the second press found the first one's board");
  assert.equal(boards[0].resources.gpus, 0);
  await ask(portal, ada.name, `/sessions/${boards[0].id}`, { method: "DELETE" });
});

test("the palette finds a job, a page and an action by the keyboard alone", async () => {
  const { page } = person;
  await page.goto(portal.url);
  await page.keyboard.press("Control+k");
  const field = page.getByRole("combobox", { name: "Search" });
  await field.waitFor();
  await page.keyboard.type("curv");
  await page.getByRole("option", { name: /Job curves/ }).waitFor();
  await browser.photograph(page, "palette");
  await browser.assertAccessible(page, "palette");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/(sessions|jobs|runs)\//);
  await page.goto(portal.url);
  await page.keyboard.press("/");
  await field.waitFor();
  await page.keyboard.type("usage");
  await page.getByRole("option", { name: /Page Usage/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/usage$/);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await page.waitForURL(/\/sessions$/);
  browser.assertNoFaults(person);
});

test("what is typed into the palette is never answered by an earlier search", async () => {
  const { page } = person;
  await page.goto(portal.url);
  let answerFirst;
  const isTyped = new Promise((resolve) => (answerFirst = resolve));
  await page.route(/\/search\?find=$/, async (route) => {
    await isTyped;
    await route.continue().catch(() => "nobody waits for it any more");
  });
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox", { name: "Search" }).waitFor();
  await page.keyboard.type("usage");
  await page.keyboard.press("Enter");
  answerFirst();
  await page.waitForURL(/\/usage$/);
  await page.unrouteAll();
  browser.assertNoFaults(person);
});

test("sessions that have ended are found and started again from their list", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sessions?app=terminal`);
  await until(
    async () => {
      await page.reload();
      return (await button(page, /Start again/).count()) > 0;
    },
    30,
    "its end",
  );
  await browser.examine(person, "sessions");
  await page.getByLabel("State").selectOption("running");
  await page.getByText("No sessions match.").waitFor();
  browser.assertNoFaults(person);
});

test("on a phone the navigation is a drawer", async () => {
  const phone = await browser.visit(chromium, portal, { size: "phone" });
  await browser.signIn(phone, ada);
  const menu = button(phone.page, "Menu");
  await menu.waitFor();
  await link(phone.page, "Datasets").waitFor({ state: "hidden" });
  await menu.click();
  await link(phone.page, "Datasets").waitFor();
  await browser.examine(phone, "phone-menu");
  await link(phone.page, "Datasets").click();
  await phone.page.waitForURL(/\/datasets$/);
  browser.assertNoFaults(phone);
});
