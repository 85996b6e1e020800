// Turns and ends: a session that waited says on every page, and by a notification, that its
// turn has come; before an end a strip warns, with the button that helps right there; each is
// told once, however many tabs are open, whether they are seen, and when the portal begins anew.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceum, startPortal, until } from "./portal.mjs";

let chromium, portal, eve, person, settings, form;
let noted;

// A turn is told when it comes; whether the session runs by then is a matter of seconds.
const TURN = /‘second’ (starts|is ready)/;
const RELEASED = /‘second’ will be stopped unless opened/;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ configuration: '[sessions]\nopen_within = "3m"' });
  eve = addUser(portal, `eve${process.pid}`);
  lyceum(portal, ["admin", "quota", "set", "user", eve.name, "light=1"]);
  person = await browser.visit(chromium, portal);
  noted = await browser.notifications(person);
  await browser.signIn(person, eve);
  await browser.isSignedIn(person);
  settings = person.page;
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("notifications are asked for by a click, and are off before", async () => {
  await settings.goto(`${portal.url}/settings`);
  const row = settings.locator("[data-notify]");
  await row.getByText("Off in this browser.").waitFor();
  await row.getByRole("button", { name: "Switch on" }).click();
  await row.getByText("On in this browser, while a page of the portal is open.").waitFor();
  await browser.assertAccessible(settings, "settings");
  await browser.photograph(settings, "settings-notifications");
});

test("a turn that has come is told on every page, once, and over when it is opened", async () => {
  const first = await started("first");
  const second = await asked("second");
  const since = Date.now();
  form = await person.context.newPage();
  await form.goto(`${portal.url}/sessions/new`);
  // One tab is out of sight, as it is for somebody who works in an app.
  await hide(settings, true);
  await until(() => 17_000 < Date.now() - since, 60, "a wait that is longer than a moment");
  await change(`/sessions/${first}`, { method: "DELETE" });
  for (const page of [form, settings]) await notice(page, "‘second’").first().waitFor({ timeout: 60_000 });
  await notice(form, "‘second’ is ready").waitFor({ timeout: 60_000 });
  await until(() => told(TURN), 60, "the notification of a turn");
  assert.match(await form.title(), /^\(1\) /);
  await browser.assertAccessible(form, "a turn");
  await browser.photograph(form, "turn");

  await notice(form, "‘second’ will be stopped unless opened").waitFor({ timeout: 120_000 });
  await until(() => told(RELEASED), 60, "the warning");
  assert.match(noted.at(-1).body, /stopped at/);
  await browser.photograph(form, "released-soon");
  await form.getByRole("button", { name: "Keep: second" }).click();
  await notice(form, "‘second’ is ready").waitFor();

  await browser.openTab({ ...person, page: form }, form.getByRole("link", { name: /^Open: second/ }));
  for (const page of [form, settings]) await notice(page, "‘second’").waitFor({ state: "detached", timeout: 60_000 });
  assert.doesNotMatch(await form.title(), /^\(/);
  assert.notEqual((await change(`/sessions/${second}`)).idle_reason?.code, "idle.unopened");
  await change(`/sessions/${second}`, { method: "DELETE" });
  await until(async () => (await change(`/sessions/${second}`)).state === "ended", 60, "its end");
  assertToldOnce([TURN, RELEASED]);
});

test("an end that is near is told once, also by a portal that began anew, and put off right there", async () => {
  const id = await started("short", { duration_seconds: 240 });
  const ends = (await change(`/sessions/${id}`)).expires_at;
  await notice(form, "‘short’ ends soon").waitFor({ timeout: 180_000 });
  await until(() => told(/‘short’ ends soon/), 60, "the warning");
  await portal.end();
  await portal.startAgain();
  await form.reload();
  await notice(form, "‘short’ ends soon").waitFor({ timeout: 60_000 });
  await form.goto(`${portal.url}/`);
  await notice(form, "‘short’ ends soon").waitFor({ timeout: 60_000 });
  await browser.assertAccessible(form, "an end");
  await browser.photograph(form, "ends-soon");
  await form.locator("#notices").getByRole("button", { name: "Extend 8 h: short" }).click();
  await notice(form, "‘short’").waitFor({ state: "detached", timeout: 60_000 });
  assert.notEqual((await change(`/sessions/${id}`)).expires_at, ends);
  assertToldOnce([TURN, RELEASED, /‘short’ ends soon/]);
  const history = await (await form.request.get(`${portal.url}/sessions/${id}`)).text();
  assert.equal(history.split("it reaches its time limit at").length, 2, "nor written twice");
  await change(`/sessions/${id}`, { method: "DELETE" });
});

test("what cannot be extended says why, in place of the button", async () => {
  await until(async () => (await change("/sessions?state=running")).items.length === 0, 60, "room");
  lyceum(portal, ["admin", "quota", "set", "user", eve.name, "max_extensions=0"]);
  const id = await started("last", { duration_seconds: 120 });
  const strip = notice(form, "‘last’ ends soon");
  await strip.waitFor({ timeout: 120_000 });
  await strip.getByText("Sessions cannot be extended (override).").waitFor({ timeout: 30_000 });
  assert.equal(await strip.getByRole("button", { name: /Extend/ }).count(), 0);
  await browser.photograph(form, "cannot-be-extended");
  await change(`/sessions/${id}`, { method: "DELETE" });
  browser.assertNoFaults(person, [/ERR_|Failed to (fetch|load)|NetworkError|not refreshed|status of 50\d/]);
});

/** What a page says of a session. */
function notice(page, words) {
  return page.locator(`#notices [data-title*="${words}"]`);
}

/** Whether a notification said this. */
function told(title) {
  return noted.some((notification) => title.test(notification.title));
}

function assertToldOnce(titles) {
  assert.equal(noted.length, titles.length, `told: ${noted.map(({ title }) => title).join(", ")}`);
  for (const title of titles) assert.ok(told(title), String(title));
}

function change(path, options) {
  return ask(portal, eve.name, path, options);
}

async function asked(name, more = {}) {
  const resources = { cpus: 1, memory_bytes: 2 ** 28 };
  return (await change("/sessions", { method: "POST", body: { app: "terminal", name, resources, ...more } })).id;
}

/** A running session, asked for by a program. */
async function started(name, more) {
  const id = await asked(name, more);
  await until(async () => (await change(`/sessions/${id}`)).state === "running", 120, `${name} to run`);
  return id;
}

/** What a browser does with a tab that is put in the background. */
function hide(page, hidden) {
  return page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
}
