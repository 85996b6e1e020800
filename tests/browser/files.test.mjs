// Somebody's files: an empty folder, uploading by button, going on after a reload, a new
// folder, renaming, deleting, downloading, many entries, and choosing a working directory by
// the keyboard alone.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, person, home, drawer;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const fay = addUser(portal, `fay${process.pid}`);
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, fay);
  await browser.isSignedIn(person);
  home = (await ask(portal, fay.name, "/files/roots")).items[0].path;
  drawer = mkdtempSync(join(tmpdir(), "ly-drawer-"));
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  rmSync(drawer, { recursive: true, force: true });
});

const row = (name) => person.page.getByRole("row").filter({ has: person.page.getByText(name, { exact: true }) });

function draft(name, size) {
  const file = join(drawer, name);
  writeFileSync(file, Buffer.alloc(size, name));
  return file;
}

/** Makes something in the home, as its owner. */
function script(code) {
  const { uid, gid } = statSync(home);
  execFileSync("/usr/bin/python3", ["-c", code], { cwd: home, uid, gid });
}

test("a new folder is made, and is empty", async () => {
  const { page } = person;
  await page.getByRole("link", { name: "Files", exact: true }).click();
  await page.getByText("New folder").click();
  await page.getByLabel("Name", { exact: true }).fill("experiments");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  await page.getByText("The folder was created.").waitFor();
  await page.getByRole("link", { name: "experiments", exact: true }).click();
  await page.getByText("This folder is empty.").waitFor();
  await check("files-empty");
});

test("files are uploaded by button, and one of that name is replaced only when asked", async () => {
  const { page } = person;
  await page.locator("#files").setInputFiles([draft("one.txt", 10), draft("two.bin", 20_000_000)]);
  await row("two.bin").waitFor({ timeout: 60_000 });
  assert.equal(readFileSync(join(home, "experiments/one.txt"), "utf8"), "one.txtone");
  assert.equal(statSync(join(home, "experiments/two.bin")).size, 20_000_000);
  writeFileSync(join(drawer, "one.txt"), "again");
  await page.locator("#files").setInputFiles(join(drawer, "one.txt"));
  // Until the page knows that all is uploaded it asks before it is left; then it loads itself again.
  const loaded = page.waitForEvent("load");
  await page.getByRole("button", { name: "Yes, replace it" }).click();
  await loaded;
  assert.equal(readFileSync(join(home, "experiments/one.txt"), "utf8"), "again");
});

test("an upload goes on after a lost connection, a pause and a reload", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/files?path=experiments`);
  const large = draft("large.bin", 40_000_000);
  // Every second piece is lost on the way.
  let pieces = 0;
  await page.route("**/api/v1/files/uploads/*", async (route) => {
    if (route.request().method() === "PATCH" && ++pieces % 2 === 0) await route.abort("connectionreset");
    else await route.continue();
  });
  await page.locator("#files").setInputFiles(large);
  await until(() => pieces >= 3, 60, "three pieces");
  await page.getByRole("button", { name: "Pause: large.bin" }).click();
  await page.getByText(/paused at/).waitFor();
  await page.unroute("**/api/v1/files/uploads/*");
  await browser.photograph(page, "files-upload");
  assert.throws(() => statSync(join(home, "experiments/large.bin")), "nothing under its name yet");
  await page.reload();
  await page.getByText(/was interrupted/).waitFor();
  await page.locator("#files").setInputFiles(large);
  await row("large.bin").waitFor({ timeout: 60_000 });
  assert.ok(readFileSync(join(home, "experiments/large.bin")).equals(readFileSync(large)));
});

test("an upload that is paused during a request stays paused", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/files?path=experiments`);
  let answer;
  const asked = new Promise((resolve) => (answer = resolve));
  let sent = 0;
  await page.route("**/api/v1/files/uploads/*", async (route) => {
    if (route.request().method() === "PATCH") sent += 1;
    if (route.request().method() !== "GET") return route.continue();
    await asked;
    await route.continue();
  });
  const answered = page.waitForResponse((response) => /\/uploads\/[^/]+$/.test(response.url()));
  await page.locator("#files").setInputFiles(draft("slow.bin", 9_000_000));
  await page.getByRole("button", { name: "Pause: slow.bin" }).click();
  answer();
  await answered;
  await page.unroute("**/api/v1/files/uploads/*");
  await page.getByText(/paused at/).waitFor();
  assert.equal(sent, 0, "a piece was sent in spite of the pause");
  await page.getByRole("button", { name: "Resume: slow.bin" }).click();
  await row("slow.bin").waitFor({ timeout: 60_000 });
  assert.equal(statSync(join(home, "experiments/slow.bin")).size, 9_000_000);
});

test("a file is dropped onto the page", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/files?path=experiments`);
  const transfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["dropped"], "dropped.txt"));
    return data;
  });
  await page.dispatchEvent("#drop", "drop", { dataTransfer: transfer });
  await row("dropped.txt").waitFor();
  assert.equal(readFileSync(join(home, "experiments/dropped.txt"), "utf8"), "dropped");
});

test("a file is downloaded, renamed and deleted", async () => {
  const { page } = person;
  await page.getByRole("link", { name: "dropped.txt", exact: true }).click();
  await page.getByRole("heading", { name: "dropped.txt" }).waitFor();
  assert.equal((await page.locator("pre.numbered").innerText()).trim(), "dropped");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download", exact: true }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "dropped.txt");
  assert.equal(readFileSync(await download.path(), "utf8"), "dropped");
  await check("files-item");
  await page.getByRole("textbox", { name: "Rename" }).fill("one.txt");
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  assert.match(await page.getByRole("alert").innerText(), /already exists/);
  await page.getByRole("textbox", { name: "Rename" }).fill("kept.txt");
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.getByRole("link", { name: "More about kept.txt" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Yes, delete" }).click();
  await page.getByText("Deleted.").waitFor();
  assert.equal(await row("kept.txt").count(), 0);
});

test("files are looked at before they are downloaded", async () => {
  const { page } = person;
  script(`
import base64, json, os, struct, zlib
os.makedirs("looks/runs")
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\\0" + bytes(v for x in range(64) for v in (x * 4, y * 4, 120)) for y in range(64))
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
open("looks/square.png", "wb").write(png)
open("looks/train.py", "w").write("import keras\\n\\n" + "".join(f"step_{n} = {n}  # <script>alert({n})</script>\\n" for n in range(120)))
open("looks/results.csv", "w").write("step,loss,accuracy,note\\n" + "".join(f"{n},{1 / (n + 1):.4f},{n / 400:.3f},\\"a, b\\"\\n" for n in range(400)))
open("looks/config.json", "w").write(json.dumps({"model": "resnet50", "layers": [64, 128], "lr": 0.1}))
open("looks/README.md", "w").write("# Notes\\n\\n- **first** run\\n- \`second\` run\\n")
open("looks/runs/metrics.jsonl", "w").write("".join(json.dumps({"step": n, "loss": 1 / (n + 1)}) + "\\n" for n in range(20)))
text = lambda words: {"output_type": "execute_result", "data": {"text/plain": words, "text/html": "<img src=x onerror=alert(1)>"}}
cells = [{"cell_type": "markdown", "source": "## A **notebook**"},
  {"cell_type": "code", "execution_count": 1, "source": "model.fit(x, y)", "outputs": [{"output_type": "stream", "text": "Epoch 1/3\\n"}, text("<History>"),
    {"output_type": "display_data", "data": {"image/png": base64.b64encode(png).decode()}}]},
  {"cell_type": "code", "execution_count": 2, "source": "1 / 0", "outputs": [{"output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["ZeroDivisionError: division by zero"]}]}]
open("looks/explore.ipynb", "w").write(json.dumps({"cells": cells, "nbformat": 4}))
`);
  const open = async (name) => {
    await page.goto(`${portal.url}/files?path=looks`);
    await page.getByRole("link", { name, exact: true }).click();
    await page.getByRole("heading", { name, exact: true }).waitFor();
  };
  await open("square.png");
  await until(
    () => page.locator(".picture img").evaluate((image) => image.complete && image.naturalWidth === 64),
    10,
    "the picture",
  );
  await check("files-picture");
  await open("train.py");
  assert.equal(await page.locator("pre.numbered > span").count(), 122);
  await check("files-text");
  await open("results.csv");
  await page.getByText("Only the first 200 rows are shown.").waitFor();
  await check("files-table");
  await open("config.json");
  assert.match(await page.locator("pre.numbered").innerText(), /"layers": \[\n/);
  await open("README.md");
  await page.getByText("first", { exact: true }).waitFor();
  await open("explore.ipynb");
  await page.getByText("ZeroDivisionError: division by zero").waitFor();
  await page.getByRole("link", { name: "Start JupyterLab" }).waitFor();
  await check("files-notebook");
  await page.goto(`${portal.url}/files/item?path=looks/runs/metrics.jsonl`);
  await page.getByRole("button", { name: "Show curves" }).click();
  await page.waitForURL(/\/runs\//);
});

test("several files are moved, copied and deleted", async () => {
  const { page } = person;
  script(`
import os
os.makedirs("several/target")
for name in ["a.txt", "b.txt", "c.txt"]: open("several/" + name, "w").write(name)
open("several/target/b.txt", "w").write("old")
`);
  await page.goto(`${portal.url}/files?path=several`);
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByText("Nothing was selected.").waitFor();
  for (const name of ["a.txt", "b.txt"]) await page.getByRole("checkbox", { name: `Select ${name}` }).check();
  await check("files-selecting");
  await page.getByRole("button", { name: "Move to…" }).click();
  await page.getByRole("heading", { name: "Move 2 items" }).waitFor();
  await page.getByLabel("Destination folder", { exact: true }).fill("several/nowhere");
  await page.getByRole("button", { name: "Move", exact: true }).click();
  assert.match(await page.getByRole("alert").innerText(), /does not exist/);
  assert.equal(await page.getByLabel("Destination folder", { exact: true }).inputValue(), "several/nowhere");
  await page.getByLabel("Destination folder", { exact: true }).fill("several/target");
  await page.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByText("Done: 1 of 2.").waitFor();
  await check("files-moving");
  await page.getByRole("checkbox", { name: /Replace files/ }).check();
  await page.getByRole("button", { name: "Move", exact: true }).click();
  await page.getByText("Moved.").waitFor();
  assert.equal(readFileSync(join(home, "several/target/b.txt"), "utf8"), "b.txt");
  await page.getByRole("checkbox", { name: "Select target" }).check();
  await page.getByRole("button", { name: "Copy to…" }).click();
  await page.getByLabel("Destination folder", { exact: true }).fill("looks");
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await page.getByText("Copied.").waitFor();
  assert.equal(readFileSync(join(home, "looks/target/a.txt"), "utf8"), "a.txt");
  await page.getByRole("checkbox", { name: "Select target" }).check();
  await page.getByRole("button", { name: "Delete…" }).click();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("is not empty").waitFor();
  await page.getByRole("checkbox", { name: /Also delete/ }).check();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByText("Deleted.").waitFor();
  assert.equal(await row("target").count(), 0);
});

test("ten thousand entries, long and hostile names", async () => {
  const { page } = person;
  script(`
import os
os.makedirs("many")
for number in range(10000): open(f"many/entry-{number:05}", "w").close()
os.makedirs("odd/" + "a-very-long-folder-name-" * 8)
for name in ["W" * 200, "<img src=x onerror=alert(1)>", "a\\nb", "\\u202egnp.exe", "x" * 60 + ".ipynb"]: open("odd/" + name, "w").write(name)
open(b"odd/\\xff\\xfe.bin", "w").close()
os.symlink("/etc", "odd/out")
`);
  await page.goto(`${portal.url}/files?path=many`);
  await page.getByText("10000 entries").waitFor();
  await page.getByRole("link", { name: "Next page" }).click();
  await row("entry-00100").waitFor();
  await check("files-many");
  await page.getByRole("searchbox").fill("09999");
  await page.getByRole("button", { name: "Find" }).click();
  await row("entry-09999").waitFor();
  await page.goto(`${portal.url}/files?path=odd`);
  await check("files-odd");
});

test("a working directory is chosen by the keyboard alone", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("button", { name: "Choose the working directory" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Choose a folder" });
  await dialog.getByRole("button", { name: "experiments" }).waitFor();
  await until(
    () => page.evaluate(() => document.activeElement?.textContent === "experiments"),
    10,
    "the focus on the first folder",
  );
  await browser.photograph(page, "folder-chooser");
  await browser.assertAccessible(page, "folder-chooser");
  await page.keyboard.press("Enter");
  await dialog.getByText("No folders here.").waitFor();
  await dialog.getByLabel("Name of a new folder").focus();
  await page.keyboard.type("run 1");
  await page.keyboard.press("Enter");
  await dialog.getByRole("button", { name: "run 1" }).waitFor();
  await dialog.getByRole("button", { name: "Choose this folder" }).focus();
  await page.keyboard.press("Enter");
  const field = page.getByLabel("Working directory", { exact: true });
  assert.equal(await field.inputValue(), `${home}/experiments/run 1`);
  await until(() => field.evaluate((input) => input === document.activeElement), 10, "the focus in the field again");
  // A path that was typed is where the dialogue begins, or it says why not.
  await field.fill("/etc");
  await page.getByRole("button", { name: "Choose the working directory" }).click();
  await dialog.getByText(/outside the folders that you can reach/).waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
});

test("nothing went wrong on any of these pages", () => {
  browser.assertNoFaults(person, [/status of (404|409|422)/, /ERR_CONNECTION_RESET/, /net::ERR_FAILED/]);
});

async function check(name) {
  await browser.photograph(person.page, name);
  await browser.assertAccessible(person.page, name);
}
