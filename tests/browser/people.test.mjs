// The administrator's morning: a new colleague, her role, a group with a manager, what she
// runs, and her last day; and what the manager, who invites her, sees of it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, lyceum, startPortal, until } from "./portal.mjs";

let chromium, portal, chief, mia, eve;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const boss = addUser(portal, `boss${process.pid}`, ["--admin"]);
  eve = { name: `eve${process.pid}`, password: "eve-has-a-long-password" };
  portal.users.push(eve.name);
  mia = await browser.visit(chromium, portal);
  mia.account = addUser(portal, `mia${process.pid}`);
  chief = await browser.visit(chromium, portal);
  await browser.signIn(chief, boss);
  await browser.isSignedIn(chief);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("an account is made, found and given a role", async () => {
  const { page } = chief;
  await page.getByRole("link", { name: "Admin", exact: true }).click();
  await page.getByRole("heading", { name: "Users" }).waitFor();
  await page.getByRole("link", { name: "New user" }).click();
  await page.getByLabel("User name").fill(eve.name);
  await page.getByLabel("Display name").fill("Eve Nakamura");
  await page.getByLabel("Password").fill(eve.password);
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByText("Account created.").waitFor();
  await page.getByRole("heading", { name: "Eve Nakamura" }).waitFor();

  await page.getByRole("radio", { name: /^Operator/ }).check();
  await confirm(page, "Change role");
  await page.getByText("Role changed.").waitFor();
  await page.getByRole("radio", { name: /^User/ }).check();
  await confirm(page, "Change role");
  await page.getByText("Role changed.").waitFor();

  await page.goto(`${portal.url}/admin/users`);
  await page.getByRole("searchbox", { name: "Part of a name" }).fill("nakamura");
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByRole("link", { name: eve.name }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1);
  await check("users-found");
});

test("a file of users is shown, corrected and imported", async () => {
  const { page } = chief;
  const names = ["ida", "jon"].map((name) => `${name}${process.pid}`);
  portal.users.push(...names);
  await page.goto(`${portal.url}/admin/users`);
  await page.getByRole("link", { name: "Import", exact: true }).click();
  const choose = (lines) =>
    page
      .getByLabel("CSV file")
      .setInputFiles({
        name: "course.csv",
        mimeType: "text/csv",
        buffer: Buffer.from(`User name;Full name;Groups;Phone\n${lines.join("\n")}\n`),
      });
  await choose([`${names[0]};Ida Holm;course-${process.pid};1`, "Jon B;;;2"]);
  await page.getByText("Line 3, name:").waitFor();
  await check("users-import-wrong");
  await choose([`${names[0]};Ida Holm;course-${process.pid};1`, `${names[1]};;course-${process.pid};2`]);
  await page.getByText("2 new users").waitFor();
  await page.getByText("These columns are not imported: Phone.").waitFor();
  await check("users-import");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByText("Imported: 2 new users").waitFor();
  await check("users-imported");
  const links = await page.getByLabel("Links for the new users").innerText();
  const address = links.match(new RegExp(`^${names[0]},(\\S+)$`, "m"))[1];
  const ida = await browser.visit(chromium, portal);
  await ida.page.goto(address);
  await ida.page.getByLabel("Password again").waitFor();
  await ida.context.close();
});

test("a group is made, with a member and a manager", async () => {
  const { page } = chief;
  await page.goto(`${portal.url}/admin/groups`);
  const name = page.getByLabel("Name", { exact: true });
  await page.getByRole("link", { name: "New group" }).click();
  await name.fill("Vision Lab");
  await page.getByRole("button", { name: "Create group" }).click();
  await page
    .getByText("a group's name must have", { exact: false })
    .or(page.getByText("A group's name must have", { exact: false }))
    .first()
    .waitFor();
  await page.getByLabel("Name", { exact: true }).fill("vision");
  await page.getByRole("button", { name: "Create group" }).click();
  await page.getByRole("heading", { name: "vision" }).waitFor();
  await page.getByLabel("Add a member").fill(mia.account.name);
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("Member added.").waitFor();
  await page.getByLabel("New manager").fill(mia.account.name);
  await page.getByRole("button", { name: "Add manager" }).click();
  await page.getByText("Manager added.").waitFor();
  await check("group");
});

test("a manager invites, and the invited person accepts by keyboard", async () => {
  await browser.signIn(mia, mia.account);
  await browser.isSignedIn(mia);
  const { page } = mia;
  await page.getByRole("link", { name: "Groups", exact: true }).click();
  await page.getByRole("link", { name: "vision" }).click();
  const invite = async (name, says) => {
    await page.getByLabel("Invite a user").fill(name);
    await page.keyboard.press("Enter");
    await page.getByText(says, { exact: false }).waitFor();
  };
  await invite("nobody-here", "There is no user with this name who can be invited.");
  await invite(eve.name, "Invitation sent.");
  await page.getByText(`invited by ${mia.account.name}`, { exact: false }).waitFor();
  await page.getByRole("button", { name: `Withdraw: ${eve.name}` }).click();
  await page.getByText("Invitation withdrawn.").waitFor();
  await invite(eve.name, "Invitation sent.");
  await photographed(page, "group-invitations");

  const eves = await browser.visit(chromium, portal);
  await browser.signIn(eves, eve);
  await browser.isSignedIn(eves);
  await eves.page.getByText("invites you to the group", { exact: false }).waitFor();
  await photographed(eves.page, "home-invited");
  await eves.page.goto(`${portal.url}/settings`);
  await photographed(eves.page, "settings-invited");
  await eves.page.goto(portal.url);
  await eves.page.getByRole("button", { name: "Accept: vision" }).focus();
  await eves.page.keyboard.press("Enter");
  await eves.page.getByText("You have joined the group.").waitFor();
  await photographed(eves.page, "settings-groups");
  await eves.page.getByRole("button", { name: "Leave: vision" }).focus();
  await eves.page.keyboard.press("Enter");
  const left = eves.page.waitForEvent("load");
  await eves.page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await left;
  await eves.page.getByText("You have left the group.", { exact: false }).waitFor();
  await invite(eve.name, "Invitation sent.");
  await eves.page.goto(portal.url);
  await eves.page.getByRole("button", { name: "Accept: vision" }).click();
  await eves.page.getByText("You have joined the group.").waitFor();
  browser.assertNoFaults(eves);
});

test("a manager sees what the group runs, and nothing else of others", async () => {
  const session = await ask(portal, eve.name, "/sessions", {
    method: "POST",
    body: { app: "terminal", name: "private-name", resources: { cpus: 1 } },
  });
  const state = async () => (await ask(portal, eve.name, `/sessions/${session.id}`)).state;
  await until(async () => (await state()) === "running", 60, "the terminal's start");
  const { page } = mia;
  await page.goto(portal.url);
  await page.getByRole("link", { name: "Groups", exact: true }).click();
  await page.getByRole("link", { name: "vision" }).click();
  await page.getByRole("heading", { name: /Workloads/ }).waitFor();
  await page.getByRole("cell", { name: "Running" }).waitFor();
  assert.ok(!(await page.content()).includes("private-name"));
  assert.equal(await page.getByRole("button", { name: "Rename" }).count(), 0);
  await browser.photograph(page, "group-of-a-manager");
  await browser.assertAccessible(page, "group-of-a-manager");
  assert.equal((await page.goto(`${portal.url}/admin/users`)).status(), 403);
  browser.assertNoFaults(mia, [/status of 403/, /status of 422/]);
});

test("somebody's session is stopped from their page, and the account is closed", async () => {
  const eves = await browser.visit(chromium, portal);
  await browser.signIn(eves, eve);
  await browser.isSignedIn(eves);
  const { page } = chief;
  await page.goto(`${portal.url}/admin/users/${eve.name}`);
  await check("user");
  await browser.press(chief, "private-name", /^Stop/);
  assert.equal(page.url(), `${portal.url}/admin/users/${eve.name}`);
  await until(
    async () => {
      await page.goto(`${portal.url}/admin/users/${eve.name}`);
      return /Stopped/.test(await browser.card(page, "private-name").first().innerText());
    },
    60,
    "the session's end",
  );

  await confirm(page, "Disable");
  await page.getByText("Account disabled.", { exact: false }).first().waitFor();
  await check("user-disabled");
  await eves.page.goto(portal.url);
  await eves.page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByText("Account enabled.").waitFor();
  browser.assertNoFaults(chief, [/status of 422/]);
});

test("an account ends at its date, and is opened again", async () => {
  const eves = await browser.visit(chromium, portal);
  await browser.signIn(eves, eve);
  await browser.isSignedIn(eves);
  const { page } = chief;
  await page.goto(`${portal.url}/admin/users/${eve.name}`);
  const setEnd = async (text) => {
    await page.getByLabel("End of the account").fill(text);
    await page.getByRole("button", { name: "Set end" }).click();
  };
  await setEnd("next week");
  await page.getByText("Enter a time in UTC", { exact: false }).waitFor();
  await setEnd(new Date(Date.now() + 86_400_000).toISOString().slice(0, 16).replace("T", " "));
  await page.getByText("End of the account changed.").waitFor();
  await check("user-expiring");
  await page.goto(`${portal.url}/admin/users?state=expiring`);
  await page.getByRole("link", { name: eve.name }).waitFor();
  await check("users-expiring");
  await eves.page.goto(portal.url);
  await eves.page.getByText("Your account ends", { exact: false }).waitFor();
  await photographed(eves.page, "home-expiring");

  const session = await ask(portal, eve.name, "/sessions", {
    method: "POST",
    body: { app: "terminal", name: "until-the-end", resources: { cpus: 1 } },
  });
  lyceum(portal, ["admin", "user", "expire", eve.name, "--until", "1s"]);
  await page.goto(`${portal.url}/admin/users/${eve.name}`);
  await until(
    async () => {
      await page.reload();
      return await page.getByText("The account ended", { exact: false }).isVisible();
    },
    60,
    "the end of the account",
  );
  await check("user-expired");
  await until(
    async () => {
      await page.reload();
      return /Stopped/.test(await browser.card(page, "until-the-end").first().innerText());
    },
    60,
    `the end of session ${session.id}`,
  );
  await eves.page.goto(portal.url);
  await eves.page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.goto(`${portal.url}/admin/users?state=expired`);
  await page.getByRole("link", { name: eve.name }).click();
  assert.equal(await page.getByRole("button", { name: "Enable" }).count(), 0);
  await setEnd("");
  await page.getByText("End of the account changed.").waitFor();
  await page.getByRole("button", { name: "Enable" }).click();
  await page.getByText("Account enabled.").waitFor();
  browser.assertNoFaults(chief, [/status of 422/]);
});

test("who forgot a password gets a link, and chooses another", async () => {
  const { page } = chief;
  const kim = addUser(portal, `kim${process.pid}`);
  await page.goto(`${portal.url}/admin/users/${kim.name}`);
  await page.getByRole("button", { name: "Create password link" }).click();
  const link = await page.locator(".secret code").innerText();
  await check("user-password-link");

  const visitor = await browser.visit(chromium, portal);
  await visitor.page.goto(link);
  const chosen = { name: kim.name, password: "kim-chose-another-one" };
  await visitor.page.getByLabel("Password", { exact: true }).fill(chosen.password);
  await visitor.page.getByLabel("Password again").fill(chosen.password);
  await visitor.page.getByRole("button", { name: "Set password" }).click();
  await visitor.page.waitForURL(/\/login/);
  await browser.signIn(visitor, chosen);
  await browser.isSignedIn(visitor);
  browser.assertNoFaults(visitor);
  browser.assertNoFaults(chief, [/status of 422/]);
});

test("a program gets an account, whose token is made, rotated and revoked", async () => {
  const { page } = chief;
  const name = `svc${process.pid}`;
  portal.users.push(name);
  await page.goto(`${portal.url}/admin/users`);
  await page.getByRole("link", { name: "New user" }).click();
  await page.getByLabel("User name").fill(name);
  await page.getByRole("checkbox", { name: /^Service account/ }).check();
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByText("Account created.").waitFor();
  assert.equal(await page.getByLabel("New password").count(), 0);
  await check("user-service");

  await page.getByLabel("Name", { exact: true }).fill("nightly");
  await page.getByRole("checkbox", { name: /^jobs/ }).check();
  await page.getByRole("button", { name: "Create token" }).click();
  const first = await page.locator("#token-secret").innerText();
  await check("user-service-token");
  const asks = async (token) => (await fetch(`${portal.url}/api/v1/jobs`, bearer(token))).status;
  assert.equal(await asks(first), 200);

  await confirm(page, "Rotate: nightly");
  await page.locator("#token-secret").waitFor();
  const second = await page.locator("#token-secret").innerText();
  assert.deepEqual([await asks(first), await asks(second)], [401, 200]);
  await confirm(page, "Revoke: nightly");
  await page.getByText("Token revoked.").waitFor();
  assert.equal(await asks(second), 401);
  browser.assertNoFaults(chief, [/status of 422/]);
});

/** The headers of a program that has this token. */
function bearer(token) {
  return { headers: { authorization: `Bearer ${token}` } };
}

/** Presses a button, says yes to its question, and waits for the page that answers. */
async function confirm(page, name) {
  await page.getByRole("button", { name, exact: true }).click();
  const loaded = page.waitForEvent("load");
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await loaded;
}

async function photographed(page, name) {
  await browser.photograph(page, name);
  await browser.assertAccessible(page, name);
}

async function check(name) {
  await browser.photograph(chief.page, name);
  await browser.assertAccessible(chief.page, name);
}
