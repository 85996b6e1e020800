// What a person installs in a notebook lasts, is seen by the next session and in its
// terminals, cannot break JupyterLab or TensorBoard themselves, and goes by a click.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

const WHEEL = `
import sys, zipfile
info = "ly_demo-1.0.dist-info/"
files = {
    "ly_demo.py": "ANSWER = 42",
    info + "METADATA": "Metadata-Version: 2.1\\nName: ly_demo\\nVersion: 1.0\\n",
    info + "WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    info + "RECORD": "ly_demo.py,,\\n",
}
with zipfile.ZipFile(sys.argv[1] + "/ly_demo-1.0-py3-none-any.whl", "w") as wheel:
    for path, contents in files.items():
        wheel.writestr(path, contents)
`;

const IMPORT = `
import sys
try:
    import ly_demo
    print("answer", ly_demo.ANSWER, sys.prefix.split("/")[-2])
except ImportError as error:
    print("absent:", error.name)
`.trim();

// Both are needed by the server itself.
const BREAK = `
import pathlib, sys, sysconfig
for name in ("tornado", "werkzeug"):
    pathlib.Path(sysconfig.get_path("purelib"), name + ".py").write_text("raise ImportError('broken')")
print("broken", 6 * 7)
`.trim();

let chromium, portal, ada, wheels;

before(async () => {
  wheels = mkdtempSync(join(tmpdir(), "ly-wheels-"));
  chmodSync(wheels, 0o755);
  execFileSync("python3", ["-c", WHEEL, wheels]);
  chmodSync(join(wheels, "ly_demo-1.0-py3-none-any.whl"), 0o644);
  chromium = await browser.openBrowser();
  const configuration = '[scheduler.local]\ncpus = 8\nmemory = "16GiB"';
  portal = await startPortal({ configuration, environment: "kept" });
  const account = addUser(portal, `ada${process.pid}`);
  ada = await browser.visit(chromium, portal);
  ada.account = account.name;
  // Makes the token that is used below.
  await ask(portal, ada.account, "/me");
  await browser.signIn(ada, account);
  await browser.isSignedIn(ada);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  rmSync(wheels, { recursive: true, force: true });
});

async function start(name, app = /JupyterLab/) {
  const id = await browser.startSession(ada, { app, name });
  await browser.waitForState(ada, name, "Running", 180);
  return id;
}

async function stop(id) {
  await ask(portal, ada.account, `/sessions/${id}`, { method: "DELETE" });
  const state = async () => (await ask(portal, ada.account, `/sessions/${id}`)).state;
  await until(async () => (await state()) === "ended", 60, "the end of a session");
}

let first, second;

test("a notebook installs a package and imports it at once", async () => {
  first = await start("first");
  const lab = await browser.openNotebook(ada, "first");
  await browser.runCell(lab, 0, `%pip install --quiet --no-index --find-links ${wheels} ly-demo`);
  await browser.runCell(lab, 1, IMPORT);
  await browser.cellShows(lab, 1, "answer 42 environments");

  // A terminal of JupyterLab's, which draws on a canvas: it writes what it sees into a file.
  await lab
    .getByRole("button", { name: /New Launcher/ })
    .first()
    .click();
  await lab.locator('.jp-LauncherCard[data-category="Other"]', { hasText: "Terminal" }).first().click();
  const screen = lab.locator(".jp-Terminal .xterm-screen");
  await browser.appears(lab, screen, 60, "a terminal in JupyterLab");
  await screen.first().click();
  await lab.keyboard.type(
    "python -c 'import ly_demo; print(ly_demo.ANSWER)' > seen.part; which pip >> seen.part; mv seen.part seen\n",
  );
  const seen = await until(
    async () => {
      const authorization = `Bearer ${portal.tokens.get(ada.account)}`;
      const answer = await fetch(`${portal.url}/s/${first}/api/contents/seen`, { headers: { authorization } });
      return answer.ok && (await answer.json()).content;
    },
    60,
    "what the terminal wrote",
  );
  assert.match(seen, /^42\n.*\.local\/share\/lyceum\/environments\/.*\/bin\/pip\n$/);
  await lab.close();
});

test("the next session sees it", async () => {
  second = await start("second");
  const lab = await browser.openNotebook(ada, "second");
  await browser.runCell(lab, 0, IMPORT);
  await browser.cellShows(lab, 0, "answer 42 environments");
  await lab.close();
});

test("the settings tell what it is and who uses it, and a click removes it", async () => {
  const { page } = ada;
  await page.goto(`${portal.url}/settings`);
  await page.getByRole("link", { name: "Show" }).click();
  await page.getByText("ly_demo").waitFor();
  const text = await page.getByRole("main").innerText();
  assert.match(text, /On top of\s+default\s+Python 3\.\d+\.\d+ · 1 package · \d+/);
  assert.match(text, /Used by: .*first/);
  assert.match(text, /second/);
  await browser.photograph(page, "packages");
  await browser.assertAccessible(page, "packages");
  await page.getByRole("button", { name: /^Reset: default/ }).click();
  const question = page.getByRole("dialog");
  await question.waitFor();
  assert.match(await question.innerText(), /1 package, .*These sessions use them: .*(first.*second|second.*first)/s);
  await browser.photograph(page, "packages-question");
  await question.getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("The packages were removed.").waitFor();
  await page.getByText("No packages are installed.").waitFor();
  await stop(first);
  await stop(second);
});

test("after that it is gone, and broken packages break no server", async () => {
  const third = await start("third");
  const lab = await browser.openNotebook(ada, "third");
  await browser.runCell(lab, 0, IMPORT);
  await browser.cellShows(lab, 0, "absent: ly_demo");
  await browser.runCell(lab, 1, BREAK);
  await browser.cellShows(lab, 1, "broken 42");
  await lab.close();
  await stop(third);

  const fourth = await start("fourth");
  const opened = await browser.openTab(ada, browser.card(ada.page, "fourth").getByRole("link", { name: /^Open/ }));
  await browser.appears(opened, opened.locator(".jp-DirListing"), 90, "JupyterLab with broken packages");
  await opened.close();
  await stop(fourth);
  const board = await start("board", /TensorBoard/);
  await stop(board);
});
