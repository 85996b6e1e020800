// An image is added and pulled from a registry with its progress on the page, and a notebook's kernel runs in it. The
// page also shows what a failed pull and one without answer look like.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, chief, ada, folder, registry, host;

async function startRegistry() {
  const settings = join(folder, "registry.yml");
  const storage = `storage:\n  filesystem: {rootdirectory: ${folder}/data}`;
  writeFileSync(settings, `version: 0.1\nlog: {level: info}\n${storage}\nhttp: {addr: "127.0.0.1:0"}\n`);
  registry = spawn("docker-registry", ["serve", settings], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  registry.stderr.on("data", (bytes) => (said += bytes));
  const port = () => said.match(/listening on 127\.0\.0\.1:(\d+)/)?.[1];
  host = `127.0.0.1:${await until(async () => port(), 20, "the port of the registry")}`;
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "ly-registry-"));
  await startRegistry();
  const archive = join(folder, "notebook.tar");
  execFileSync(process.env.LYCEUM_TEST_PYTHON, [fileURLToPath(new URL("image.py", import.meta.url)), archive]);
  const target = `docker://${host}/nvcr.io/nvidia/notebook:1`;
  execFileSync("skopeo", ["copy", "-q", "--dest-tls-verify=false", `docker-archive:${archive}`, target]);
  chromium = await browser.openBrowser();
  const mirror = `[images.mirrors]\n"nvcr.io" = "http://${host}/nvcr.io"\n`;
  const machine = '[scheduler.local]\ncpus = 8\nmemory = "16GiB"\n';
  portal = await startPortal({ configuration: `${machine}${mirror}`, environment: "kept" });
  const account = addUser(portal, `ada${process.pid}`);
  const boss = addUser(portal, `boss${process.pid}`, ["--admin"]);
  [chief, ada] = [await browser.visit(chromium, portal), await browser.visit(chromium, portal)];
  for (const [person, who] of [
    [chief, boss],
    [ada, account],
  ]) {
    await browser.signIn(person, who);
    await browser.isSignedIn(person);
  }
  ada.account = account.name;
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  registry?.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

async function add(name, reference) {
  const { page } = chief;
  await page.goto(`${portal.url}/images`);
  const form = page.locator("details", { hasText: "Add an image" }).first();
  if (!(await form.evaluate((details) => details.open))) await form.locator("summary").click();
  await page.getByLabel("Reference").fill(reference);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Title").fill(`The image ${name}`);
  await page.getByRole("button", { name: "Add", exact: true }).first().click();
  await page.getByText("The image was added.").waitFor();
}

const row = (name) => chief.page.getByRole("row", { name: new RegExp(`The image ${name}`) });

test("an image is pulled with its progress on the page", async () => {
  await add("notebook", "nvcr.io/nvidia/notebook:1");
  registry.kill("SIGSTOP");
  await chief.page.getByRole("button", { name: "Pull notebook" }).click();
  await row("notebook").getByText("Pulling").waitFor();
  await chief.page.getByRole("progressbar", { name: "Progress of notebook" }).waitFor();
  registry.kill("SIGCONT");
  await row("notebook").getByText("Ready").waitFor({ timeout: 60_000 });
  await row("notebook").getByText("Content").click();
  await row("notebook")
    .getByText(/ipykernel \d/)
    .waitFor();
});

test("the page shows what is ready, pulled and failed", async () => {
  await add("absent", "nvcr.io/nvidia/absent:1");
  await chief.page.getByRole("button", { name: "Pull absent" }).click();
  await row("absent")
    .getByText(/does not have .* \(404\)/)
    .waitFor({ timeout: 30_000 });
  await add("slow", "nvcr.io/nvidia/notebook:slow");
  registry.kill("SIGSTOP");
  await chief.page.getByRole("button", { name: "Pull slow" }).click();
  await chief.page.getByRole("progressbar", { name: "Progress of slow" }).waitFor();
  await browser.photograph(chief.page, "images");
  await browser.assertAccessible(chief.page, "images");
  registry.kill("SIGCONT");
  await row("slow").getByText("Failed").waitFor({ timeout: 30_000 });
});

test("a notebook's kernel runs in the image", async () => {
  const { page } = ada;
  const body = { app: "jupyter", image: "notebook", name: "inside", duration_seconds: 3600 };
  const session = await ask(portal, ada.account, "/sessions", { method: "POST", body });
  await page.goto(portal.url);
  await browser.waitForState(ada, "inside", "Running", 180);
  const lab = await browser.openTab(ada, browser.card(page, "inside").getByRole("link", { name: /^Open/ }));
  const launcher = lab.locator('.jp-LauncherCard[data-category="Notebook"]', { hasText: "The image notebook" });
  await browser.appears(lab, launcher, 90, "the kernel of the image in the launcher");
  await launcher.first().click();
  await browser.appears(lab, lab.getByText(/\| Idle/), 90, "an idle kernel");
  await browser.runCell(lab, 0, "print(1 + 1, open('/etc/os-release').read())");
  await browser.cellShows(lab, 0, "2 NAME=of-the-image");
  await lab.close();
  await ask(portal, ada.account, `/sessions/${session.id}`, { method: "DELETE" });
  const state = async () => (await ask(portal, ada.account, `/sessions/${session.id}`)).state;
  await until(async () => (await state()) === "ended", 60, "the end of the session");
  assert.equal(await state(), "ended");
});
