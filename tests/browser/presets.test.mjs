// Presets: the form saves one, fills itself from it, the home page starts it with one click, and the settings page
// renames and deletes it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, startPortal } from "./portal.mjs";

let chromium, portal, person;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const user = addUser(portal, `pia${process.pid}`);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, user);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("the form saves a preset and is filled from it", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("radio", { name: /Terminal/ }).check({ force: true });
  await page.getByLabel("Name", { exact: true }).fill("’my’ shell");
  await page.getByText("Save as a preset").click();
  await page.getByLabel("Name of the preset").fill("<b>shell</b>");
  // Enter saves the preset, and does not start the session that the form is for.
  await page.getByLabel("Name of the preset").press("Enter");
  await page.waitForURL(/preset=/);
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("link", { name: "<b>shell</b>" }).click();
  await page.waitForURL(/preset=/);
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "’my’ shell");
  assert.ok(await page.getByRole("radio", { name: /Terminal/ }).isChecked());
});

test("the home page starts it with one click", async () => {
  const { page } = person;
  await page.goto(portal.url);
  await page.getByRole("button", { name: "Start: <b>shell</b>" }).click();
  await page.waitForURL(/\/s(essions)?\//);
  await page.goto(portal.url);
  await browser.waitForState(person, "’my’ shell", "Running", 60);
});

test("the settings page renames and deletes it", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/settings`);
  await page.getByLabel("Name of <b>shell</b>").fill("shell");
  await page.getByRole("button", { name: "Save: <b>shell</b>" }).click();
  await page.getByText("The preset was saved.").waitFor();
  await page.getByRole("button", { name: "Delete: shell" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("The preset was deleted. What was started with it continues.").waitFor();
  browser.assertNoFaults(person);
});
