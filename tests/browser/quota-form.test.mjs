// The form of a session as a person fills it in: while a slider moves it says whether this
// starts, waits or cannot start, and why; and where somebody's sessions can be charged to several
// groups, one is chosen and remembered.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceum, startPortal } from "./portal.mjs";

let chromium, portal, chief, dot, person;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none", configuration: "[scheduler.local]\ncpus = 8\n" });
  chief = addUser(portal, `chief${process.pid}`, ["--admin"]);
  dot = addUser(portal, `dot${process.pid}`);
  lyceum(portal, ["admin", "quota", "set", "user", dot.name, "cpus=3"]);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, dot);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("while a slider moves, the form says whether it starts, waits or cannot, and why", async () => {
  const { page } = person;
  await custom(page);
  await slide(page, 2);
  await says(page, "Starts now");

  await ask(portal, dot.name, "/sessions", {
    method: "POST",
    body: { app: "terminal", name: "first", resources: { cpus: 2, memory_bytes: 64 << 20 } },
  });
  await slide(page, 3);
  await says(
    page,
    "Will wait",
    "Your limit is 3 cores and 2 are in use by ‘first’. Stop it, or ask for at most 1 core.",
  );
  await browser.photograph(page, "form-will-wait");
  await browser.assertAccessible(page, "form-will-wait");
  await slide(page, 1);
  await says(page, "Starts now");

  // What the page was drawn with is not what holds now.
  lyceum(portal, ["admin", "quota", "set", "user", dot.name, "cpus=1"]);
  await slide(page, 2);
  await says(page, "Cannot start", "This asks for 2 cores; your limit is 1 core (override). Ask for at most 1 core.");
  await browser.photograph(page, "form-cannot-start");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByText("This asks for 2 cores; your limit is 1 core").first().waitFor();
  const mine = await ask(portal, dot.name, "/sessions");
  assert.deepEqual(
    mine.items.map(({ name }) => name),
    ["first"],
    "nothing was started by looking",
  );
  browser.assertNoFaults(person, [/status of (409|422)/]);
});

test("a group to charge is chosen, and remembered", async () => {
  const { page } = person;
  lyceum(portal, ["admin", "quota", "set", "user", dot.name, "cpus=inherit"]);
  for (const name of ["speech", "vision"]) {
    const group = await ask(portal, chief.name, "/groups", { method: "POST", body: { name } });
    await ask(portal, chief.name, `/groups/${group.id}/members/${dot.name}`, { method: "PUT" });
    await ask(portal, chief.name, `/quotas/groups/${name}`, { method: "PATCH", body: { chargeable: true } });
  }
  await custom(page);
  await slide(page, 1);
  const group = page.getByLabel("Charged to", { exact: true });
  assert.equal(await group.inputValue(), "", "nobody chose one yet");
  await says(page, "Cannot start", "choose the group that this is charged to: speech, vision");
  await group.selectOption("vision");
  await says(page, "Starts now");
  await page.getByLabel("Name", { exact: true }).fill("charged");
  await browser.photograph(page, "form-group");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL((url) => url.pathname !== "/sessions/new");
  const mine = await ask(portal, dot.name, "/sessions");
  const { id, group: charged } = mine.items.find(({ name }) => name === "charged");
  assert.equal(charged, "vision");
  await page.goto(`${portal.url}/sessions/${id}`);
  await page.getByText("vision", { exact: true }).first().waitFor();
  await custom(page);
  assert.equal(await group.inputValue(), "vision", "it is remembered");
  browser.assertNoFaults(person, [/status of (409|422)/]);
});

// The form for a terminal whose numbers are chosen one by one.
async function custom(page) {
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("radio", { name: /Terminal/ }).check({ force: true });
  await page.getByRole("radio", { name: /^Custom/ }).check({ force: true });
  await page.getByLabel("Memory", { exact: true }).fill("64M");
}

// Moves the slider of cores, as a mouse would.
async function slide(page, cores) {
  const slider = page.getByRole("slider", { name: "Cores, slider" });
  await slider.fill(String(cores));
  assert.equal(await page.getByLabel("Cores", { exact: true }).inputValue(), String(cores));
}

// Waits until the form says this of what is chosen.
async function says(page, headline, words = "") {
  // While another answer is awaited, the one before stands there pale.
  const verdict = page.locator("#verdict:not(.busy)");
  await browser.appears(
    page,
    verdict.filter({ hasText: headline }).filter({ hasText: words }),
    30,
    `“${headline} ${words}”`,
  );
}
