// A sweep from the form to its end: what it takes is told before, its tasks are a grid and a table
// that fill by themselves, the best is named, it is paused, goes on and is stopped; and the queue
// is held and let go.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, name;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const joe = addUser(portal, `swe${process.pid}`);
  name = joe.name;
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, joe);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

const check = (picture) => browser.examine(person, picture);

const main = () => person.page.locator("#main");
// Its loss is what it is told; it goes on until it is ended.
const SCRIPT = `#!/bin/sh
mkdir -p $LYCEUM_LOG_DIRECTORY
step=0
while :; do
  echo "{\\"step\\": $step, \\"val/loss\\": $level}" >> $LYCEUM_LOG_DIRECTORY/metrics.jsonl
  step=$((step + 1))
  sleep 0.5
done
`;

test("what a sweep takes is told before it is submitted", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sweeps`);
  await page.getByText("You have no sweeps yet.").waitFor();
  await check("sweeps-empty");
  await page.getByRole("link", { name: "Create your first sweep" }).click();
  await page.getByRole("radio", { name: "Script" }).check();
  await page.getByRole("textbox", { name: "Script" }).fill(SCRIPT);
  await page.getByLabel("Name", { exact: true }).fill("levels");
  await page.getByText("Array job or hyperparameter sweep").click();
  await page.getByLabel("Parameters").fill("level = 0.5, 0.25, 0.75\nwidth = 32, 64");
  await page.getByLabel("Parallel tasks").fill("2");
  await page.getByLabel("Metric").fill("val/loss");
  await page.locator("#verdict").getByText("6 tasks, 2 at once").waitFor();
  await page.locator("#verdict").getByText("core-hours").waitFor();
  await check("sweep-new");
  await page.getByLabel("Parameters").fill("level");
  await page.getByLabel("Trials").fill("3");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByText("`level` is not of the form `name = values`").first().waitFor();
  await check("sweep-new-wrong");
  await page.getByLabel("Parameters").fill("level = 0.5, 0.25, 0.75\nwidth = 32, 64");
  await page.getByLabel("Trials").fill("");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "levels" }).waitFor();
});

test("its tasks and the best of them come by themselves", async () => {
  const { page } = person;
  const here = page.url();
  await browser.appears(page, main().locator(".best-task .value").getByText("0.5"), 90, "the best so far");
  await page.getByText("2 of 6 tasks have started").waitFor();
  assert.equal(await page.locator(".task-grid li").count(), 6);
  assert.equal(page.url(), here, "nobody navigated");
  await check("sweep");
  const first = page.getByRole("row").nth(1);
  await first.getByRole("button", { name: /Cancel/ }).click();
  await page.getByRole("dialog").getByRole("button", { name: /Yes/ }).click();
  // Its own page comes up.
  await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
  await page.goto(here);
  await browser.appears(page, page.getByText("3 of 6 tasks have started"), 90, "that another took its place");
});

test("it is paused, goes on, and is stopped", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sweeps`);
  await page.getByRole("link", { name: "levels" }).click();
  await page.getByRole("heading", { name: "levels" }).waitFor();
  // The page is drawn anew between press and release, which must not cost the click.
  const pause = await page.getByRole("button", { name: "Pause" }).boundingBox();
  assert.ok(pause);
  await page.mouse.move(pause.x + pause.width / 2, pause.y + pause.height / 2);
  await page.mouse.down();
  const drawn = page.waitForResponse((answer) => answer.url() === page.url());
  const running = (await ask(portal, name, "/jobs")).items.find((job) => job.state === "running");
  await ask(portal, name, `/jobs/${running.id}/cancel`, { method: "POST" });
  await (await drawn).finished();
  await page.mouse.up();
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  // The page before has a button of that name too.
  await page.getByRole("button", { name: "Pause" }).waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  // The page is drawn anew while the question stands.
  await page.getByRole("dialog").waitFor();
  await page.evaluate(() => {
    for (const region of document.querySelectorAll("[data-live]")) region.replaceWith(region.cloneNode(true));
  });
  await page.getByRole("dialog").getByRole("button", { name: /Yes/ }).click();
  await browser.appears(page, main().locator(".page .state").getByText("Ended"), 90, "its end");
  await check("sweep-ended");
  await page.goto(`${portal.url}/sweeps`);
  await page.getByRole("link", { name: "levels" }).waitFor();
  await check("sweeps");
});

test("the queue is held, and says so", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/jobs`);
  await page.getByText("Pause the queue").click();
  await page.getByRole("button", { name: "Hold my jobs" }).click();
  await page.getByText("The owner paused their pending jobs.").waitFor();
  const { id } = await ask(portal, name, "/jobs", { method: "POST", body: { name: "held", command: ["true"] } });
  await check("jobs-held");
  await page.goto(`${portal.url}/jobs/${id}`);
  await page.locator("#sentence").getByText("The owner paused their pending jobs.").waitFor();
  await page.goto(`${portal.url}/jobs`);
  await page.getByText("Pause the queue").click();
  await page.getByRole("button", { name: "Release my jobs" }).click();
  await until(async () => (await ask(portal, name, `/jobs/${id}`)).state === "ended", 60, "that it runs");
  // What could not be was refused.
  browser.assertNoFaults(person, [/status of 422/]);
});
