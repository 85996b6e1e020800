// The page of the machine on a portal whose GPU driver stands in for one: what a person sees of
// the GPUs, their own session on one, that it changes by itself, and what an operator does about
// GPUs that somebody holds and does not use.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

const source = resolve(dirname(fileURLToPath(import.meta.url)), "..", "it", "fake_nvml.c");
const LINKS = "nvlink 0 2 4\nnvlink 1 3 4\nnear 0 1 50\nnear 0 3 50\nnear 1 2 50\nnear 2 3 50\n";

let chromium, portal, ann, folder;

// What the GPUs are like from now on, whole at once.
function tell(more, percents = [87, 0, 42, 3]) {
  const gpus = percents.map((percent, gpu) => `gpu ${gpu} ${percent} ${percent * 300} ${30 + gpu} 120\n`);
  writeFileSync(join(folder, "next"), more + gpus.join("") + LINKS);
  renameSync(join(folder, "next"), join(folder, "state"));
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "ly-gpus-"));
  execFileSync("chmod", ["755", folder]);
  tell("");
  const library = join(folder, "libfake.so");
  execFileSync("cc", ["-shared", "-fPIC", "-DGPUS=4", `-DSTATE="${join(folder, "state")}"`, "-o", library, source]);
  const configuration = `[scheduler.local]\nnvml = "${library}"\n[gpus]\ninterval = "1s"\nidle_after = "2m"\n`;
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none", configuration });
  ann = await browser.visit(chromium, portal);
  ann.account = addUser(portal, `ann${process.pid}`);
  await browser.signIn(ann, ann.account);
  await browser.isSignedIn(ann);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("a person sees the GPUs and how they are linked", async () => {
  const { page } = ann;
  await page.getByLabel("Main").getByRole("link", { name: "Nodes and GPUs" }).click();
  await page.getByRole("heading", { name: "Cluster" }).waitFor();
  await page.getByText("4 of 4 free").waitFor();
  await page.getByText("87 %").first().waitFor();
  assert.equal(await page.locator(".gpu").count(), 4);
  assert.equal(await page.locator(".matrix .near4").count(), 4);
  await page.getByRole("link", { name: "Last day" }).click();
  await page.locator(".over [aria-current]", { hasText: "Last day" }).waitFor();
});

test("their session and a stranger's program appear by themselves", async () => {
  const { page } = ann;
  await ask(portal, ann.account.name, "/sessions", {
    method: "POST",
    body: { app: "terminal", name: "on-a-gpu", resources: { gpus: 1, cpus: 1 } },
  });
  await browser.appears(
    page,
    page.locator(".gpu", { hasText: "In use" }).getByRole("link", { name: "on-a-gpu" }),
    60,
    "their session",
  );
  tell(`process 3 ${process.pid} 900\nlost 1\n`);
  await browser.appears(
    page,
    page.locator(".gpu", { hasText: "The GPU has fallen off the bus" }).locator(".state.failed"),
    60,
    "the lost GPU",
  );
  await browser.appears(
    page,
    page.locator(".gpu", { hasText: "GPU 3" }).locator(".state.outside"),
    120,
    "the stranger",
  );
  await page.getByText("1 of 4 free").waitFor();
  await browser.photograph(page, "cluster");
  await browser.assertAccessible(page, "cluster");
  browser.assertNoFaults(ann);
});

test("an operator asks about GPUs that are held and rest, and stops who holds them", async () => {
  tell("", [0, 0, 0, 0]);
  const chief = await browser.visit(chromium, portal);
  const account = addUser(portal, `chief${process.pid}`, ["--admin"]);
  await browser.signIn(chief, account);
  await browser.isSignedIn(chief);
  const { page } = chief;
  const row = page.getByRole("row").filter({ hasText: "on-a-gpu" });
  // They have to rest for two minutes first, and a minute in which they worked is over by then.
  const listed = async () => {
    await page.goto(`${portal.url}/cluster`);
    return (await row.count()) === 1;
  };
  await until(listed, 420, "the list of GPUs that rest");
  await browser.photograph(page, "cluster-idle");
  await browser.assertAccessible(page, "cluster-idle");
  await row.getByRole("button", { name: "Ask about on-a-gpu" }).click();
  await browser.appears(page, row.getByText(`asked by ${account.name}`), 60, "who asked");
  await ann.page.goto(portal.url);
  const card = browser.card(ann.page, "on-a-gpu");
  await browser.appears(ann.page, card.getByText("whether you still need these GPUs"), 60, "the question");
  await browser.photograph(ann.page, "asked-about-gpus");

  await page.goto(`${portal.url}/admin/quotas`);
  await page.getByRole("list", { name: "The cluster now" }).getByText("of them idle").waitFor();
  await page.getByRole("link", { name: "show which" }).click();
  await row.getByRole("button", { name: "Stop on-a-gpu" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  const ended = async () => {
    const { items } = await ask(portal, ann.account.name, "/sessions");
    const [{ state, end_reason }] = items;
    if (state === "ended") assert.equal(end_reason, "stopped_by_admin");
    return state === "ended";
  };
  await until(ended, 120, "the end of the session");
  await until(async () => !(await listed()), 60, "the list without it");
  browser.assertNoFaults(chief);
});
