// Eight tabs of one browser: they share one event stream, all of them follow what happens,
// none of them waits for another, and each says so when the portal or the login is gone. Apps
// are on the portal's own origin here, so that their connections come out of the same six.

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

const HOMES = 6;

let chromium, portal, dora;

before(async () => {
  chromium = await browser.openBrowser();
  const configuration = '[server]\napps = "path"\n[scheduler.local]\ncpus = 16\nmemory = "16GiB"';
  portal = await startPortal({ configuration, environment: process.env.LYCEUM_TEST_PYTHON ? "kept" : "built" });
  dora = addUser(portal, `dora${process.pid}`);
});

// The portal counts the streams of all browsers.
afterEach(async () => {
  for (const context of chromium?.contexts() ?? []) await context.close();
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

for (const [how, prepare] of [
  ["a shared worker", () => {}],
  ["an elected page", () => delete globalThis.SharedWorker],
]) {
  test(`eight tabs hear one stream, by ${how}`, async () => {
    const { person, homes, show, terminal, id, name } = await eightTabs(prepare);
    await streams(1);

    // A change is seen in all of them, without a reload.
    const renamed = `${name}-renamed`;
    await change(`/sessions/${id}`, { method: "PATCH", body: { name: renamed } });
    for (const home of homes) await card(home, renamed).waitFor();
    await show.getByRole("heading", { name: renamed }).waitFor();

    // Nobody waits: each tab fetches, and the terminal shows what its shell answers.
    for (const tab of [...homes, show, terminal]) {
      const took = await tab.evaluate(async () => {
        const begin = performance.now();
        await (await fetch("/healthz", { cache: "no-store" })).text();
        return performance.now() - begin;
      });
      assert.ok(took < 5000, `${tab.url()}: an answer took ${took} ms`);
    }
    await browser.typeInTerminal(terminal, "echo it-is-$((40+2))");
    await browser.terminalShows(terminal, "it-is-42");

    // The first tab is the one that leads where pages elect one. Closed, another goes on.
    await homes.shift().close();
    await streams(1);
    const second = await started(`${name}-second`);
    for (const home of homes) await card(home, `${name}-second`).waitFor();
    await change(`/sessions/${second}`, { method: "DELETE" });
    for (const home of homes) await card(home, `${name}-second`).locator(".state", { hasText: "Stopped" }).waitFor();
    await streams(1);

    await change(`/sessions/${id}`, { method: "DELETE" });
    browser.assertNoFaults(person);
    await person.context.close();
    await streams(0);
  });
}

test("a notebook beside them runs its cells, and its connections are free", async () => {
  const { person, homes, id, name } = await eightTabs(() => {});
  const notebook = await started(`${name}-notebook`, "jupyter");
  await card(person.page, `${name}-notebook`).waitFor();
  const lab = await browser.openNotebook(person, `${name}-notebook`);
  await browser.runCell(lab, 0, "1+1");
  await browser.cellShows(lab, 0, "2");
  await streams(1);
  await change(`/sessions/${notebook}`, { method: "DELETE" });
  for (const home of homes) await card(home, `${name}-notebook`).locator(".state", { hasText: "Stopped" }).waitFor();
  await change(`/sessions/${id}`, { method: "DELETE" });
  await person.context.close();
});

test("pages say when the portal is gone, and catch up when it is back", async () => {
  const { person, homes, show, terminal, id, name } = await eightTabs(() => {});
  await portal.end();
  for (const tab of [...homes, show]) await tab.getByText("Not connected, trying again").waitFor();
  await browser.photograph(homes[0], "not-connected");
  await portal.startAgain();
  for (const tab of [...homes, show])
    await tab.getByText("Not connected").waitFor({ state: "detached", timeout: 60_000 });
  await streams(1);
  await change(`/sessions/${id}`, { method: "PATCH", body: { name: `${name}-after` } });
  for (const home of homes) await card(home, `${name}-after`).waitFor();

  await terminal.getByText("Connecting…").waitFor({ state: "detached" });
  await browser.typeInTerminal(terminal, "echo back-$((40+2))");
  await browser.terminalShows(terminal, "back-42");

  // A portal that says nothing, on connections that stay open, is as good as gone.
  portal.child.kill("SIGSTOP");
  try {
    const pages = [...homes, show].map((tab) =>
      tab.getByText("Not connected, trying again").waitFor({ timeout: 70_000 }),
    );
    await Promise.all([...pages, terminal.getByText("Connecting…").waitFor({ timeout: 90_000 })]);
  } finally {
    portal.child.kill("SIGCONT");
  }
  for (const tab of [...homes, show])
    await tab.getByText("Not connected").waitFor({ state: "detached", timeout: 90_000 });
  await streams(1);
  await terminal.getByText("Connecting…").waitFor({ state: "detached", timeout: 60_000 });
  await browser.typeInTerminal(terminal, "echo again-$((40+2))");
  await browser.terminalShows(terminal, "again-42");

  await change(`/sessions/${id}`, { method: "DELETE" });
  browser.assertNoFaults(person, [/ERR_|Failed to (fetch|load)|NetworkError|not refreshed|status of 50\d|WebSocket/]);
  await person.context.close();
});

test("signed out in one tab, all others say so, and go on after the next sign-in", async () => {
  const { person, homes, show, id } = await eightTabs(() => {});
  await homes[0].getByRole("button", { name: "Sign out", exact: true }).click();
  await homes[0].getByRole("heading", { name: "Sign in" }).waitFor();
  const rest = [...homes.slice(1), show];
  for (const tab of rest) await tab.getByText("You are signed out").waitFor();
  await streams(0);
  await browser.photograph(homes[1], "signed-out-elsewhere");

  person.page = homes[0];
  await browser.signIn(person, dora);
  await browser.isSignedIn(person);
  for (const tab of rest) await tab.getByText("You are signed out").waitFor({ state: "detached" });
  await streams(1);

  // Somebody else's browser by now: nothing of the one before stays on the screen.
  const other = addUser(portal, `emil${process.pid}`);
  await person.page.getByRole("button", { name: "Sign out", exact: true }).click();
  for (const tab of rest) await tab.getByText("You are signed out").waitFor();
  await browser.signIn(person, other);
  await browser.isSignedIn(person);
  for (const home of homes) await home.locator(`body[data-user="${other.name}"]`).waitFor();
  await show.getByText("Not found").first().waitFor();

  await change(`/sessions/${id}`, { method: "DELETE" });
  browser.assertNoFaults(person, [/status of (401|404)/, /HTTP Authentication failed/]);
  await person.context.close();
});

test("pages that go back into the cache, or out of sight, leave the stream and come back to it", async () => {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, dora);
  await browser.isSignedIn(person);
  await streams(1);
  const { page } = person;
  await hide(page, true);
  await streams(0);
  const id = await started("while-away");
  assert.equal(await card(page, "while-away").count(), 0);
  await hide(page, false);
  await card(page, "while-away").waitFor();
  await streams(1);

  // A page without scripts of ours: all others share the stream.
  await page.goto(`${portal.url}/healthz`);
  await streams(0);
  await change(`/sessions/${id}`, { method: "PATCH", body: { name: "while-elsewhere" } });
  await page.goBack();
  await card(page, "while-elsewhere").waitFor();
  await streams(1);
  await change(`/sessions/${id}`, { method: "DELETE" });
  // What names no icon of its own, as /healthz, has the browser ask for one.
  browser.assertNoFaults(person, [/healthz: .* status of 404/]);
  await person.context.close();
});

/** Six home pages, the page of a session, and the terminal that is this session's app. */
async function eightTabs(prepare) {
  const name = `eight-${Math.random().toString(36).slice(2, 8)}`;
  const person = await browser.visit(chromium, portal);
  await person.context.addInitScript(prepare);
  await browser.signIn(person, dora);
  await browser.isSignedIn(person);
  const id = await started(name);
  const homes = [person.page];
  while (homes.length < HOMES) homes.push(await tab(person, "/"));
  for (const home of homes) await card(home, name).waitFor();
  const show = await tab(person, `/sessions/${id}`);
  const terminal = await tab(person, `/s/${id}/`);
  return { person, homes, show, terminal, id, name };
}

async function tab(person, path) {
  const page = await person.context.newPage();
  await page.goto(`${portal.url}${path}`);
  return page;
}

function card(page, name) {
  return browser.card(page, name).first();
}

function change(path, options) {
  return ask(portal, dora.name, path, options);
}

/** A running session, asked for by a program. */
async function started(name, app = "terminal") {
  const memory_bytes = (app === "terminal" ? 1 / 4 : 2) * 2 ** 30;
  const { id } = await change("/sessions", {
    method: "POST",
    body: { app, name, resources: { cpus: 1, memory_bytes } },
  });
  await until(async () => (await change(`/sessions/${id}`)).state === "running", 400, `${name} to run`);
  return id;
}

/** Waits until the portal has so many streams open. */
function streams(wanted) {
  return until(
    async () => {
      const text = await (await fetch(`${portal.url}/metrics`)).text();
      return Number(/^lyceum_event_streams (\d+)$/m.exec(text)[1]) === wanted;
    },
    30,
    `${wanted} open event streams`,
  );
}

/** What a browser does with a tab that is put in the background. */
function hide(page, hidden) {
  return page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    Object.defineProperty(document, "visibilityState", {
      configurable: true,
      get: () => (hidden ? "hidden" : "visible"),
    });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
}
