// The administrator's page of quotas: the table, an override that is looked at before it is
// saved, two administrators at once, some people together, a group and its manager; by mouse
// and by keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, chief, boss, chiefs, people;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  chiefs = ["chief", "boss"].map((name) => addUser(portal, `${name}${process.pid}`, ["--admin"]));
  people = ["ada", "bob", "mia"].map((name) => addUser(portal, `${name}${process.pid}`));
  [chief, boss] = await Promise.all(chiefs.map(() => browser.visit(chromium, portal)));
  for (const [index, person] of [chief, boss].entries()) {
    await browser.signIn(person, chiefs[index]);
    await browser.isSignedIn(person);
  }
  const [ada, bob, mia] = people;
  const group = await ask(portal, chiefs[0].name, "/groups", { method: "POST", body: { name: "vision" } });
  const put = (path) => ask(portal, chiefs[0].name, `/groups/${group.id}/${path}`, { method: "PUT" });
  await Promise.all([put(`members/${ada.name}`), put(`members/${bob.name}`), put(`managers/${mia.name}`)]);
  const start = (name) =>
    ask(portal, ada.name, "/sessions", { method: "POST", body: { app: "terminal", name, resources: { cpus: 1 } } });
  const sessions = [await start("first"), await start("second")];
  const runs = async ({ id }) => (await ask(portal, ada.name, `/sessions/${id}`)).state === "running";
  for (const session of sessions) await until(() => runs(session), 60, "a terminal's start");
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("the table says who uses what, and is found from the menu", async () => {
  const { page } = chief;
  await page.getByRole("link", { name: "Admin", exact: true }).click();
  await page.getByRole("link", { name: "Quotas", exact: true }).click();
  await page.getByRole("heading", { name: "Quotas" }).waitFor();
  await page.getByRole("combobox", { name: "Users shown" }).selectOption("active");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByRole("link", { name: people[0].name }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.goto(`${portal.url}/admin/quotas?sort=gpus`);
  await check(chief, "quotas");
  const table = await page.evaluate(async () => (await fetch("/admin/quotas/table")).text());
  assert.equal(table.trim().split("\n").length, 1 + 6, table);
});

test("an override is looked at, saved, and shown with its source", async () => {
  const { page } = chief;
  const [ada] = people;
  await page.goto(`${portal.url}/admin/quotas/users/${ada.name}`);
  const light = page.getByRole("group", { name: "Light sessions at once", exact: true });
  await light.getByRole("radio", { name: "value" }).check({ force: true });
  await light.getByRole("textbox", { name: "value" }).fill("1.5");
  await check(chief, "limits-user");
  await press(page, "Preview the change");
  await page.getByText("Write a whole number in full", { exact: false }).waitFor();
  await check(chief, "limits-wrong");
  await light.getByRole("textbox", { name: "value" }).fill("1");
  await light.getByLabel("until, in UTC").fill("2037-12-01T12:00");
  await light.getByRole("textbox", { name: "note" }).fill("a short breath");
  await press(page, "Preview the change");
  await page.getByText("1 user would exceed a limit. Nothing will be stopped", { exact: false }).waitFor();
  await check(chief, "limits-preview");
  await press(page, "Back to the form");
  assert.equal(await light.getByRole("textbox", { name: "value" }).inputValue(), "1");
  await press(page, "Preview the change");
  await press(page, "Save");
  await page.getByText("Saved. The new limits apply", { exact: false }).waitFor();
  await page.getByText("override until").first().waitFor();
  const { overrides } = await ask(portal, chiefs[0].name, `/quotas/users/${ada.name}`);
  assert.deepEqual(
    [overrides.light.value, overrides.light.expires_at, overrides.light.note],
    [1, "2037-12-01T12:00:00Z", "a short breath"],
  );
  const running = (await ask(portal, ada.name, "/sessions?limit=50")).items.filter(({ state }) => state === "running");
  assert.equal(running.length, 2, "nothing was stopped");
});

test("of two administrators the second sees both versions, and nothing typed is lost", async () => {
  const path = `${portal.url}/admin/quotas/default`;
  for (const { page } of [chief, boss]) await page.goto(path);
  const set = async ({ page }, name, value) => {
    const field = page.getByRole("group", { name, exact: true });
    await field.getByRole("radio", { name: "value" }).check({ force: true });
    await field.getByRole("textbox", { name: "value" }).fill(value);
  };
  await set(chief, "Sessions at once", "5");
  await set(boss, "Sessions at once", "7");
  await set(boss, "Longest session", "12 h");
  await press(chief.page, "Preview the change");
  await press(chief.page, "Save");
  await press(boss.page, "Preview the change");
  await boss.page.getByText("Another user changed these limits in the meantime", { exact: false }).waitFor();
  await boss.page.getByText(`${chiefs[0].name} set this to 5`, { exact: false }).waitFor();
  const typed = (name) =>
    boss.page.getByRole("group", { name, exact: true }).getByRole("textbox", { name: "value" }).inputValue();
  assert.deepEqual([await typed("Sessions at once"), await typed("Longest session")], ["7", "12 h"]);
  await check(boss, "limits-stale");
  await press(boss.page, "Preview the change");
  await press(boss.page, "Save");
  const { fields } = await ask(portal, chiefs[0].name, "/quotas/default");
  assert.deepEqual([fields.sessions.value, fields.max_session_seconds.value], [7, 43_200]);
});

test("some people change at once, by keyboard alone", async () => {
  const { page } = chief;
  await page.goto(`${portal.url}/admin/quotas`);
  const [, bob, mia] = people;
  for (const { name } of [bob, mia]) {
    await page.getByRole("checkbox", { name: `Select ${name}` }).focus();
    await page.keyboard.press("Space");
  }
  await page.getByText("2 users selected").waitFor();
  await check(chief, "quotas-chosen");
  await byKey(page, page.getByRole("button", { name: /^Change limits/ }));
  await page.getByRole("heading", { name: "Limits of 2 users" }).waitFor();
  const cores = page.getByRole("group", { name: "Cores at once", exact: true });
  await cores.getByRole("radio", { name: "leave" }).focus();
  for (let step = 0; step < 3; step++) await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Tab");
  await page.keyboard.type("3");
  await check(chief, "limits-selection");
  await byKey(page, page.getByRole("button", { name: "Preview the change" }));
  await page.getByText("No user would exceed a limit.").waitFor();
  await byKey(page, page.getByRole("button", { name: "Save" }));
  await page.getByText("Saved for all selected users.", { exact: false }).waitFor();
  for (const { name } of [bob, mia]) {
    const { overrides } = await ask(portal, chiefs[0].name, `/quotas/users/${name}`);
    assert.equal(overrides.cpus.value, 3);
  }
});

test("a group has totals, and its manager shares them out", async () => {
  const { page } = chief;
  await page.goto(`${portal.url}/admin/quotas/groups`);
  await check(chief, "quota-groups");
  await page.getByRole("link", { name: "vision" }).click();
  await page.getByRole("checkbox", { name: /^Sessions can be charged/ }).check();
  const total = page
    .getByRole("table", { name: "Together" })
    .getByRole("group", { name: "Cores at once", exact: true });
  await total.getByRole("radio", { name: "value" }).check({ force: true });
  await total.getByRole("textbox", { name: "value" }).fill("6");
  await press(page, "Preview the change");
  await press(page, "Save");
  await page.getByText("Saved. The new limits apply", { exact: false }).waitFor();
  await check(chief, "limits-group");

  const manager = await browser.visit(chromium, portal);
  await browser.signIn(manager, people[2]);
  await browser.isSignedIn(manager);
  await manager.page.getByRole("link", { name: "Groups", exact: true }).click();
  await manager.page.getByRole("link", { name: "vision" }).click();
  await manager.page.getByRole("link", { name: "Limits" }).click();
  const each = manager.page.getByRole("group", { name: "Cores at once", exact: true });
  await each.getByRole("radio", { name: "value" }).check({ force: true });
  await each.getByRole("textbox", { name: "value" }).fill("7");
  await press(manager.page, "Preview the change");
  await manager.page.getByText("The group may use 6 cores together", { exact: false }).waitFor();
  await check(manager, "limits-manager");
  await each.getByRole("textbox", { name: "value" }).fill("4");
  await press(manager.page, "Preview the change");
  await press(manager.page, "Save");
  await manager.page.getByText("Saved. The new limits apply", { exact: false }).waitFor();
  browser.assertNoFaults(manager, [/status of 422/]);
});

test("a session is stopped from its owner's limits, and nothing went wrong on any page", async () => {
  await chief.page.goto(`${portal.url}/admin/quotas/users/${people[0].name}`);
  await browser.press(chief, "second", /^Stop/);
  const live = async () => (await ask(portal, people[0].name, "/sessions?limit=50")).items;
  await until(
    async () => (await live()).some(({ name, state }) => name === "second" && state === "ended"),
    60,
    "its end",
  );
  browser.assertNoFaults(chief, [/status of 422/]);
  browser.assertNoFaults(boss, [/status of 412/]);
});

/** Presses a button and waits for the page that answers. */
async function press(page, name) {
  const loaded = page.waitForEvent("load");
  await page.getByRole("button", { name, exact: true }).click();
  await loaded;
}

/** As somebody does who has no mouse. */
async function byKey(page, button) {
  const loaded = page.waitForEvent("load");
  await button.focus();
  await page.keyboard.press("Enter");
  await loaded;
}

async function check(person, name) {
  await browser.photograph(person.page, name);
  await browser.assertAccessible(person.page, name);
}
