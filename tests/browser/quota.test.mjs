// Over quota: what would fit later waits with a sentence, what never fits is refused beside
// its field with the input kept, and stopping something lets the one that waits begin.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, lyceum, startPortal } from "./portal.mjs";

let chromium, portal, person;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const cleo = addUser(portal, `cleo${process.pid}`);
  lyceum(portal, ["admin", "quota", "set", "user", cleo.name, "light=1", "cpus=1"]);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, cleo);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("more than the limit is refused, says so, and keeps what was typed", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("radio", { name: /Terminal/ }).check({ force: true });
  await page.getByRole("radio", { name: /^Custom/ }).check({ force: true });
  const cores = page.getByLabel("Cores", { exact: true });
  // The browser's own check would stop the form; the portal must not rely on it.
  await cores.evaluate((input) => {
    input.form.noValidate = true;
    input.removeAttribute("max");
    input.value = "64000";
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await page.getByLabel("Name", { exact: true }).fill("too-big");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const alert = page.getByRole("alert");
  await alert.waitFor();
  assert.match(await alert.innerText(), /core|cpus/i);
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "too-big");
  await page.goto(portal.url);
  assert.equal(await browser.card(page, "too-big").count(), 0);
});

test("what would fit later waits, says why, and starts when there is room", async () => {
  await startSmall("first");
  await browser.waitForState(person, "first", "Running", 60);
  await startSmall("second");
  await browser.waitForState(person, "second", "Pending", 20);
  const sentence = await browser.card(person.page, "second").innerText();
  assert.match(sentence, /limit|at most|first/i, "the card says which limit and what would help");
  await browser.press(person, "first", /^Stop/);
  await browser.waitForState(person, "second", "Running", 90);
  browser.assertNoFaults(person, [/status of (409|422)/]);
});

async function startSmall(name) {
  const { page } = person;
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("radio", { name: /Terminal/ }).check({ force: true });
  await page.getByRole("radio", { name: /^Custom/ }).check({ force: true });
  await page.getByLabel("Cores", { exact: true }).fill("1");
  await page.getByLabel("Memory", { exact: true }).fill("512M");
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL((url) => url.pathname !== "/sessions/new");
  await page.goto(portal.url);
}
