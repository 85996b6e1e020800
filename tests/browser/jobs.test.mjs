// A job from the form to its end: it is submitted, its log grows before one's eyes, its owner opens a
// terminal inside it, it is found in the list, cancelled, given notes and tags, and cloned with what is different shown.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, name;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const joe = addUser(portal, `joe${process.pid}`);
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

test("a demonstration is one press away, and what is chosen in the list is starred, tagged and deleted", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/jobs`);
  await page.getByRole("button", { name: "Run a demonstration" }).click();
  await page.waitForURL(/\/jobs\/[0-9a-f-]{36}$/);
  const id = page.url().split("/").at(-1);
  // What one looks for first is on the overview, and the tabs are addresses.
  await browser.appears(page, page.locator(".metric-tiles b").first(), 90, "its first values");
  await page.getByRole("heading", { name: /^Progress step \d+/ }).waitFor();
  await check("job-overview");
  const tabs = page.getByRole("navigation", { name: "Job" });
  await tabs.getByRole("link", { name: "Metrics" }).click();
  await page.waitForURL(/\?tab=metrics$/);
  assert.equal(await tabs.getByRole("link", { name: "Metrics" }).getAttribute("aria-current"), "page");
  await browser.appears(page, page.locator('#curves figure[data-chart="loss"]'), 90, "its first curve");
  await tabs.getByRole("link", { name: "System" }).click();
  await browser.appears(
    page,
    page.locator('#hardware figure[data-chart="hardware:cpu"]'),
    90,
    "the chart of its cores",
  );
  await check("job-system");
  await ask(portal, name, `/jobs/${id}/cancel`, { method: "POST" });
  await browser.appears(page, page.getByText("You stopped it"), 60, "its end");
  const chosen = async (what) => {
    await page.goto(`${portal.url}/jobs`);
    await page.getByLabel("Select demonstration").check();
    return page.locator("#selection").getByRole("button", { name: what });
  };
  await (await chosen("Star")).click();
  const row = page.getByRole("row").filter({ hasText: "demonstration" });
  await row.getByText("starred:").waitFor();
  const add = await chosen(/^(Add tag|Tag 1 job)$/);
  await page.getByLabel("Tag to add").fill("shown");
  await add.click();
  await row.getByRole("link", { name: "shown" }).waitFor();
  await (await chosen("Delete")).click();
  await page.getByRole("dialog").getByRole("button", { name: /Yes/ }).click();
  await page.getByText("You have no jobs yet.").waitFor();
});

test("the first visit says what to do", async () => {
  const { page } = person;
  await page.getByLabel("Main").getByRole("link", { name: "Jobs" }).click();
  await page.getByText("You have no jobs yet.").waitFor();
  await check("jobs-empty");
  await page.getByRole("link", { name: "Submit your first job" }).click();
  await page.getByRole("heading", { name: "New job" }).waitFor();
});

test("a script is submitted, and its log grows without navigation", async () => {
  const { page } = person;
  await page.getByRole("radio", { name: "Script" }).check();
  await page
    .getByRole("textbox", { name: "Script" })
    .fill(
      "#!/bin/bash\nprintf '\\033[31mred alarm\\033[0m\\nload 10 %%\\rload 100 %%\\n'\nyes 'loss: nan' | head -40\nfor i in $(seq 1 600); do echo \"step $i of 600\"; sleep 1; done\n",
    );
  await page.getByLabel("Name", { exact: true }).fill("counting");
  await page.getByText("Advanced").click();
  await page.getByLabel("Environment variables").fill("SEED=7");
  await page.getByLabel("Arguments").fill("--epochs 'two words'");
  await page.getByLabel("Start like my login shell").check();
  await page.getByText("Starts now").waitFor();
  await check("job-new");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "counting" }).waitFor();
  const log = page.locator("[data-log]");
  await browser.appears(page, log.getByText("step 2 of 600"), 60, "the second line");
  assert.ok((await log.textContent()).split("\n").length <= 12, "the overview has the last lines");
  await page.getByRole("link", { name: "Whole log" }).click();
  await page.waitForURL(/\?tab=log$/);
  await browser.appears(page, log.getByText("red alarm"), 60, "the first line");
  assert.equal(await log.locator("span.a1").textContent(), "red alarm");
  const shown = await log.textContent();
  assert.ok(shown.includes("load 100 %\n") && !shown.includes("load 10 %"), "a progress bar is its last state");
  assert.equal(shown.split("loss: nan\n").length - 1, 40, "equal lines are all shown");
  const here = page.url();
  await browser.appears(page, main().locator(".state.running"), 30, "that it runs");
  await browser.appears(page, log.getByText("step 4 of 600"), 30, "a later line");
  assert.equal(page.url(), here, "nobody navigated");
  await page.getByLabel("Find in the log").fill("step 3 ");
  await until(async () => (await log.textContent()) === "step 3 of 600", 10, "the one line that has it");
  await check("job-running");
  await page.getByRole("link", { name: "Config" }).click();
  const details = await page.locator("[aria-labelledby=facts] dl").first().textContent();
  assert.ok(details.includes("--epochs 'two words'") && details.includes("a login shell"), details);
  await check("job-config");
});

test("its owner looks inside, in a terminal where it runs", async () => {
  const { page } = person;
  const shell = await browser.openTab(person, main().getByRole("link", { name: "Terminal" }));
  await browser.typeInTerminal(shell, "echo $SEED of $LYCEUM_JOB");
  const job = new URL(page.url());
  await browser.terminalShows(shell, `7 of ${job.pathname.split("/").at(-1)}`);
  await browser.photograph(shell, "job-terminal");
  assert.equal(
    await shell.getByRole("link", { name: "Back to the job" }).getAttribute("href"),
    `${job.origin}${job.pathname}`,
  );
  await shell.close();
});

test("the list shows it, and cancels it", async () => {
  const { page } = person;
  await page.getByLabel("Main").getByRole("link", { name: "Jobs" }).click();
  const row = page.getByRole("row").filter({ hasText: "counting" });
  await row.getByText("Running").waitFor();
  await page.getByLabel("Select counting").check();
  await check("jobs");
  await page.locator("#selection").getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /Yes/ }).click();
  await page.getByText("Cancelling 1 job.").waitFor();
  await browser.appears(page, row.getByText("cancelled"), 60, "that it was cancelled");
  const { items } = await ask(portal, name, "/jobs");
  assert.equal(items[0].end_reason, "stopped_by_owner");
});

test("notes are drawn, and do nothing", async () => {
  const { page } = person;
  await page.getByRole("link", { name: "counting" }).click();
  await page.getByText("You stopped it").waitFor();
  await page.getByText("Edit name, notes, tags and visibility").click();
  await page.getByLabel("Tags").fill("trial, baseline");
  await page.getByRole("textbox", { name: "Notes" }).fill("**Too slow**, see <script>alert(1)</script>");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator(".prose strong").getByText("Too slow").waitFor();
  await page.getByText("<script>alert(1)</script>").first().waitFor();
  await page.getByRole("link", { name: "baseline" }).waitFor();
  await check("job-cancelled");
});

test("a clone says what is different", async () => {
  const { page } = person;
  await page.getByRole("link", { name: "Clone" }).click();
  await page.getByText("No changes: this is an exact copy.").waitFor();
  await page.getByLabel("Name", { exact: true }).fill("counting to three");
  await page.getByRole("textbox", { name: "Script" }).fill("seq 1 3; exit 3");
  await page.locator("#changed ins").getByText("counting to three").waitFor();
  await check("job-clone");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "counting to three" }).waitFor();
  await browser.appears(page, main().locator(".state.failed"), 60, "that it failed");
  await page.getByText("with exit code").waitFor();
  await browser.appears(page, page.locator("[data-log]").getByText("3"), 30, "its log");
  await check("job-failed");
});

test("a job that follows another one says for whom it waits, and that it never will", async () => {
  const { page } = person;
  const { id } = await ask(portal, name, "/jobs", {
    method: "POST",
    body: { name: "prepare", command: ["sleep", "600"] },
  });
  await page.goto(`${portal.url}/jobs/${id}`);
  await page.getByRole("link", { name: "Add dependent job" }).click();
  await page.getByRole("textbox", { name: "Command" }).fill("true");
  await page.getByLabel("Name", { exact: true }).fill("afterwards");
  await page.getByLabel("Retries").fill("2");
  await page.locator("#verdict").getByText("Waiting for ‘prepare’ to succeed.").waitFor();
  await check("job-new-after");
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { name: "afterwards" }).waitFor();
  await page.locator("#sentence").getByText("Waiting for ‘prepare’ to succeed.").waitFor();
  await page.getByRole("navigation", { name: "Job" }).getByRole("link", { name: "Config" }).click();
  await main().getByRole("link", { name: "prepare" }).waitFor();
  await check("job-waits-for-another");
  await ask(portal, name, `/jobs/${id}/cancel`, { method: "POST" });
  await browser.appears(
    page,
    page.locator("#sentence").getByText("‘prepare’, which it depends on, was cancelled."),
    60,
    "that it never will",
  );
  await check("job-refused");
});

test("the curves of a training grow on its page", async () => {
  const { page } = person;
  const versions = join(portal.data, "shared", "bin");
  const program = join(versions, readdirSync(versions)[0], "lyceum");
  const command = [program, "demo-train", "--rate", "50", "--steps", "3000"];
  const { id } = await ask(portal, name, "/jobs", { method: "POST", body: { name: "training", command } });
  await page.goto(`${portal.url}/jobs/${id}?tab=metrics`);
  const loss = page.locator('#curves figure[data-chart="loss"]');
  await browser.appears(page, loss, 60, "the chart of the loss");
  const picture = () => loss.locator("canvas.picture").evaluate((canvas) => canvas.toDataURL());
  const before = await picture();
  await until(async () => (await picture()) !== before, 60, "a chart that grows");
  // What it makes of the machine stands below, on the same axis.
  for (const [chart, text] of [
    ["cpu", "CPU (cores)"],
    ["memory", "Memory (GiB)"],
  ]) {
    const figure = page.locator(`#curves figure[data-chart="hardware:${chart}"]`);
    await browser.appears(page, figure, 60, `the chart of ${text}`);
    await figure.getByRole("heading", { name: text }).waitFor();
    await figure.scrollIntoViewIfNeeded();
    await until(
      () =>
        figure.locator("canvas.picture").evaluate(
          (canvas) =>
            canvas.width > 0 &&
            canvas
              .getContext("2d")
              .getImageData(0, 0, canvas.width, canvas.height)
              .data.some((value) => value > 0),
        ),
      30,
      `a drawing of ${text}`,
    );
    assert.equal(await figure.getByRole("button", { name: "limit" }).count(), 1);
  }
  await check("job-curves");
  await ask(portal, name, `/jobs/${id}/cancel`, { method: "POST" });
  await browser.appears(page, page.getByText("You stopped it"), 60, "its end");
  browser.assertNoFaults(person);
});
