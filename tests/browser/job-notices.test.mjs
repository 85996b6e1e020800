// What happens to jobs is told in the browser: an end, a failure, a value that is no number and a
// curve that grows no more come as a strip on every page and as a notification, once each, also
// when the portal begins anew, and until their owner has seen them.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, ida, person, page;
let noted;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal();
  ida = addUser(portal, `ida${process.pid}`);
  person = await browser.visit(chromium, portal);
  noted = await browser.notifications(person);
  await browser.signIn(person, ida);
  await browser.isSignedIn(person);
  page = person.page;
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("nothing is told of jobs before somebody asks for it in this browser", async () => {
  await page.goto(`${portal.url}/usage`);
  const { id } = await submit("quiet", ["true"]);
  await until(async () => (await unseen()).some((one) => one.job === id), 120, "that its end is noticed");
  // The page that is seen says it in its corner, once, with a link.
  const toast = page.locator("#toasts .toast", { hasText: "Job ‘quiet’ finished" });
  await toast.waitFor({ timeout: 60_000 });
  assert.equal(await toast.getByRole("link", { name: "Show job" }).getAttribute("href"), `/jobs/${id}`);
  // It stays as long as somebody is at it.
  await toast.getByRole("button").focus();
  await browser.assertAccessible(page, "a message in the corner");
  await browser.photograph(page, "toast");
  // The strip was fetched by now: the page asks for it as soon as its stream is open.
  const asked = page.waitForResponse((answer) => new URL(answer.url()).pathname === "/notices", { timeout: 60_000 });
  await page.reload();
  assert.equal(new URL((await asked).url()).search, "?toasts=true", "in the strip for sessions alone");
  assert.equal(await notice("‘quiet’").count(), 0);
  assert.equal(await toast.count(), 0, "it is said once");
  await api("/me/notifications/seen", { method: "POST", body: {} });
  assert.deepEqual(await unseen(), []);

  await page.goto(`${portal.url}/settings`);
  const row = page.locator("[data-notify]");
  await row.getByRole("button", { name: "Switch on" }).click();
  await row.getByText("On in this browser, while a page of the portal is open.").waitFor();
});

test("an end and a failure are told on every page, and one's own cancelling is not", async () => {
  await page.goto(`${portal.url}/usage`);
  await submit("good", ["true"]);
  await told("Job ‘good’ finished");
  await notice("Job ‘good’ finished").waitFor({ timeout: 60_000 });
  const bad = await submit("bad", ["sh", "-c", "exit 3"]);
  const failed = await told("Job ‘bad’ failed");
  assert.match(failed.body, /^It ended with exit code 3\./);
  await notice("Job ‘bad’ failed").waitFor({ timeout: 60_000 });
  await until(async () => (await page.title()).startsWith("(2) "), 60, "the number in the title");
  await browser.assertAccessible(page, "what happened to jobs");
  await browser.assertNoSidewaysScroll(page, "what happened to jobs");
  await browser.photograph(page, "job-notices");

  const cancelled = await submit("cancelled", ["sleep", "600"]);
  await api(`/jobs/${cancelled.id}/cancel`, { method: "POST" });
  await until(async () => (await api(`/jobs/${cancelled.id}`)).state === "ended", 120, "its end");

  // One goes by a click, the other by looking at the job.
  await page.getByRole("button", { name: "Dismiss: Job ‘good’ finished" }).click();
  await notice("Job ‘good’ finished").waitFor({ state: "detached", timeout: 60_000 });
  await notice("Job ‘bad’ failed").getByRole("link").click();
  await page.waitForURL(`${portal.url}/jobs/${bad.id}`);
  await notice("Job ‘bad’ failed").waitFor({ state: "detached", timeout: 60_000 });
  await until(async () => (await unseen()).length === 0, 60, "that both are seen");
});

test("a value that is no number and a training that is stuck are told, by a portal that began anew as well", async () => {
  await api("/me/notifications", {
    method: "PUT",
    body: { events: ["finished", "failed", "not_finite", "stalled"], stalled_after_seconds: 60 },
  });
  await page.goto(`${portal.url}/usage`);
  const demo = (...options) => ["lyceum", "demo-train", "--steps", "0", "--rate", "20", ...options];
  const nan = await submit("unsteady", demo("--nan-at", "30"));
  const still = await submit("still", demo("--stall-at", "30"));
  const value = await told("Job ‘unsteady’ logged values that are not finite numbers");
  assert.match(value.body, /is not a finite number at step \d+\.$/);
  const stuck = await told("Job ‘still’ may be stuck");
  assert.match(stuck.body, /its curves have not grown for 1 min/);
  await notice("‘unsteady’").waitFor({ timeout: 60_000 });
  await notice("‘still’").waitFor({ timeout: 60_000 });
  await browser.photograph(page, "job-notices-curves");

  await portal.end();
  await portal.startAgain();
  await page.reload();
  await notice("‘unsteady’").waitFor({ timeout: 60_000 });
  await notice("‘still’").waitFor({ timeout: 60_000 });
  for (const { id } of [nan, still]) await api(`/jobs/${id}/cancel`, { method: "POST" });
  // What comes after all of that is the last that is told, and nothing was told twice.
  await submit("last", ["true"]);
  await told("Job ‘last’ finished");
  const titles = noted.map((one) => one.title);
  assert.deepEqual([...new Set(titles)].sort(), [...titles].sort());
  assert.deepEqual(
    titles.filter((title) => /quiet|cancelled/.test(title)),
    [],
  );
  browser.assertNoFaults(person, [/ERR_|Failed to (fetch|load)|NetworkError|not refreshed|status of 50\d/]);
});

function api(path, options) {
  return ask(portal, ida.name, path, options);
}

async function unseen() {
  return (await api("/me/notifications")).unseen;
}

function submit(name, command) {
  return api("/jobs", { method: "POST", body: { name, command } });
}

/** The notification with this title, as soon as it was shown. */
function told(title) {
  return until(() => noted.find((one) => one.title === title), 240, `the notification “${title}”`);
}

/** What the page says of a job. */
function notice(words) {
  return page.locator(`#notices [data-title*="${words}"]`);
}
