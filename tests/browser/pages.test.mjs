// Every page, in both themes and at both widths: a picture for people to look at, no
// sideways scrolling at 320 px, and nothing that axe objects to.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, running, ended;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const dan = addUser(portal, `dan${process.pid}`);
  person = await browser.visit(chromium, portal);
  await person.page.goto(`${portal.url}/login`);
  await check("login");
  await person.page.goto(`${portal.url}/welcome#a-code-from-a-link`);
  assert.equal(await person.page.inputValue("#code"), "a-code-from-a-link");
  assert.equal(new URL(person.page.url()).hash, "", "the code is no longer in the address");
  await check("welcome");
  await person.page.goto(`${portal.url}/login`);
  await browser.signIn(person, dan);
  await browser.isSignedIn(person);
  await check("home-empty");

  const start = (name) =>
    ask(portal, dan.name, "/sessions", { method: "POST", body: { app: "terminal", name, resources: { cpus: 1 } } });
  running = await start("a-terminal-with-quite-a-long-name-to-see-what-happens-to-it");
  ended = await start("ended");
  const state = async ({ id }) => (await ask(portal, dan.name, `/sessions/${id}`)).state;
  await until(async () => (await state(running)) === "running", 60, "the terminal's start");
  await ask(portal, dan.name, `/sessions/${ended.id}`, { method: "DELETE" });
  await until(async () => (await state(ended)) === "ended", 60, "the other one's end");
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

const pages = {
  home: () => "/",
  sessions: () => "/sessions",
  search: () => "/search?find=a",
  "new-session": () => "/sessions/new",
  session: () => `/sessions/${running.id}`,
  "session-ended": () => `/sessions/${ended.id}`,
  settings: () => "/settings",
  images: () => "/images",
  diagnostics: () => "/diagnostics",
  "api-documentation": () => "/docs/api",
  "not-found": () => "/nothing-is-here",
  problem: () => "/problems/over-quota",
};

for (const [name, path] of Object.entries(pages)) {
  test(`the page ${name} is well at every width and in both themes`, async () => {
    await person.page.goto(`${portal.url}${path()}`);
    await check(name);
  });
}

test("the terminal's page is well, and so is the page of what has ended", async () => {
  await person.page.goto(running.open_url ?? `${portal.url}/s/${running.id}/`);
  await person.page.locator(".xterm-screen").first().waitFor();
  await browser.photograph(person.page, "terminal");
  await person.page.goto(ended.open_url ?? `${portal.url}/s/${ended.id}/`);
  await check("app-ended");
});

test("a new token is shown once", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/settings`);
  await page.getByText("New token", { exact: true }).click();
  await page.getByLabel("Name", { exact: true }).fill("nightly");
  await page.getByRole("button", { name: "Create token" }).click();
  await page.locator("#token-secret").waitFor();
  await check("settings-token");
  const secret = await page.locator("#token-secret").innerText();
  assert.ok(secret.length >= 20);
  await page.goto(`${portal.url}/settings`);
  assert.ok(!(await page.content()).includes(secret), "the secret is kept nowhere");
});

test("nothing went wrong on any of these pages", () => {
  browser.assertNoFaults(person, [/status of (404|410)/]);
});

async function check(name) {
  await browser.photograph(person.page, name);
  await browser.assertAccessible(person.page, name);
}
