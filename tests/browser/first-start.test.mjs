// The journey for which everything else is there: a fresh machine, the first sign-in, a
// notebook, its curves in TensorBoard, a terminal, stop, and start again.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, firstPassword, startPortal, until } from "./portal.mjs";

const LOG_A_CURVE = `
from tensorboard.summary import Writer
writer = Writer("runs/journey")
for step in range(20):
    writer.add_scalar("loss", 1 / (step + 1), step)
writer.close()
print("logged", 6 * 7)
`.trim();

let chromium, portal, ada;

before(async () => {
  chromium = await browser.openBrowser();
  // Counted, so that three sessions fit on a small machine too.
  const configuration = '[scheduler.local]\ncpus = 8\nmemory = "12GiB"';
  portal = await startPortal({ configuration, environment: "built" });
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("a first start leads to the sign-in page, which says where the password is", async () => {
  const admin = await browser.visit(chromium, portal);
  await admin.page.goto(portal.url);
  await admin.page.getByRole("heading", { name: "Sign in" }).waitFor();
  const password = firstPassword(await admin.page.getByRole("main").innerText());
  await browser.signIn(admin, { name: "admin", password });
  await browser.isSignedIn(admin);
  browser.assertNoFaults(admin);
  await admin.context.close();
});

test("the password's file is gone after the first sign-in", async () => {
  // Somebody of this run alone: a home directory that nobody has been in.
  const account = addUser(portal, `ada${process.pid}`, ["--display-name", "Ada"]);
  ada = await browser.visit(chromium, portal);
  await ada.page.goto(portal.url);
  assert.doesNotMatch(await ada.page.getByRole("main").innerText(), /First start/);
  await browser.signIn(ada, account);
  await browser.isSignedIn(ada);
});

test("JupyterLab waits for its environment, then runs", async () => {
  await browser.startSession(ada, { app: /JupyterLab/, name: "notebook" });
  await browser.waitForState(ada, "notebook", "Running", 400);
  browser.assertNoFaults(ada);
});

test("a cell computes 1+1, and another logs a curve", async () => {
  const lab = await browser.openNotebook(ada, "notebook");
  await browser.runCell(lab, 0, "1+1");
  await browser.cellShows(lab, 0, "2");
  await browser.runCell(lab, 1, LOG_A_CURVE);
  await browser.cellShows(lab, 1, "logged 42");
  await lab.close();
});

test("TensorBoard shows the run that the cell logged", async () => {
  await browser.startSession(ada, { app: /TensorBoard/, name: "board", logs: "~/runs" });
  await browser.waitForState(ada, "board", "Running", 90);
  const board = await browser.openTab(ada, browser.card(ada.page, "board").getByRole("link", { name: /^Open/ }));
  await browser.appears(board, board.getByText("journey", { exact: true }), 60, "the run in TensorBoard");
  await browser.appears(board, board.getByText("loss", { exact: true }), 60, "the curve in TensorBoard");
  await board.close();
});

test("JupyterLab leads to the board of a folder, and offers one where there is none", async () => {
  const lab = await browser.openNotebook(ada, "notebook");
  const portals = async (press) => {
    const [page] = await Promise.all([lab.waitForEvent("popup"), press()]);
    return page;
  };
  await lab.locator('.jp-DirListing-item[data-isdir="true"]', { hasText: "runs" }).click({ button: "right" });
  const board = await portals(() => lab.getByRole("menuitem", { name: "TensorBoard" }).click());
  await browser.appears(board, board.getByText("journey", { exact: true }), 60, "the board that runs on the folder");
  await board.close();

  await lab
    .getByRole("button", { name: /New Launcher/ })
    .first()
    .click();
  const tile = lab.locator('.jp-LauncherCard[data-category="Other"]', { hasText: "TensorBoard" });
  const offer = await portals(() => tile.first().click());
  await offer.getByText("No TensorBoard is running on ~.").waitFor();
  await browser.assertAccessible(offer, "the offer of a board");
  await offer.getByRole("button", { name: "Start TensorBoard" }).waitFor();
  await offer.close();
  await lab.close();
});

test("a terminal answers `id`", async () => {
  await browser.startSession(ada, { app: /Terminal/, name: "shell" });
  await browser.waitForState(ada, "shell", "Running", 60);
  const shell = await browser.openTab(ada, browser.card(ada.page, "shell").getByRole("link", { name: /^Open/ }));
  await browser.typeInTerminal(shell, "id; echo done-$((6*7))");
  const text = await browser.terminalShows(shell, "done-42");
  assert.match(text, /uid=\d+\(/);
  await shell.close();
});

test("stop ends a session, and start again brings it back", async () => {
  await ada.page.goto(portal.url);
  await browser.photograph(ada.page, "home-running");
  await browser.press(ada, "shell", /^Stop/);
  await browser.waitForState(ada, "shell", "Stopped", 60);
  await browser.press(ada, "shell", /^Start again/);
  await ada.page.goto(portal.url);
  await until(
    async () => (await browser.card(ada.page, "shell").first().innerText()).includes("Running"),
    60,
    "the new one",
  );
  browser.assertNoFaults(ada);
});
