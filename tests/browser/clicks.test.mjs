// How many steps the everyday journeys take: each click, each field and each key is counted, and the numbers are those
// of the table in docs/clicks.md. A step more or less fails until the table says so too. A journey acts by its hand
// alone, which counts: nothing else of it touches the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, afterEach, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

// The most presses of Tab that a user of the keyboard alone needs, from Home to an open session.
const MAX_TABS = 12;
const LIVE = ["queued", "starting", "running", "stopping"];

const table = readTable(new URL("../../docs/clicks.md", import.meta.url));
const walked = new Set();
let chromium, portal, person, user, job;

before(async () => {
  chromium = await browser.openBrowser();
  const configuration = '[scheduler.local]\ncpus = 8\nmemory = "12GiB"\ngpus = 4\n';
  portal = await startPortal({ configuration, environment: process.env.LYCEUM_TEST_PYTHON ? "kept" : "built" });
  user = addUser(portal, `ida${process.pid}`);
  person = await browser.visit(chromium, portal);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

// Each journey finds Home as the one before found it: without live sessions, and in one tab.
afterEach(async () => {
  for (const tab of person.context.pages()) if (tab !== person.page) await tab.close();
  for (const { id } of await live()) await ask(portal, user.name, `/sessions/${id}`, { method: "DELETE" });
  await until(async () => (await live()).length === 0, 60, "the end of all sessions");
});

journey("Sign in", "/login", async (hand) => {
  await hand.fill("User name", user.name);
  await hand.fill("Password", user.password);
  await hand.click("button", "Sign in");
  await hand.sees("button", "Sign out");
});

journey("Start JupyterLab, from Home until it is open", "/", async (hand) => {
  await hand.click("link", "New session");
  await hand.click("button", "Start");
  // A new portal may still be building its environment.
  await hand.seesIn(".jp-Launcher", 400);
});

journey("Start a terminal, from Home until it is open", "/", async (hand) => {
  await hand.click("button", "Terminal");
  await hand.seesIn(".xterm-screen", 60);
});

// Each preset would be one more link before the form, so these come before the first one is saved.
journey("Start a terminal by Tab through the form, from Home until it is open", "/", async (hand) => {
  await toTerminal(hand);
  await hand.tabTo("button", "Start");
  await hand.press("Enter");
  await hand.seesIn(".xterm-screen", 60);
  assert.ok(hand.tabs <= MAX_TABS, `${hand.tabs} presses of Tab`);
});

journey("Start a terminal by Enter in the form, from Home until it is open", "/", async (hand) => {
  await toTerminal(hand);
  await hand.press("Enter");
  await hand.seesIn(".xterm-screen", 60);
});

journey(
  "Open a running session by the keyboard, from Home",
  "/",
  async (hand) => {
    await hand.tabTo("link", "Skip to content");
    await hand.press("Enter");
    await hand.tabTo("link", "Open: shell (new tab)");
    await hand.pressForTab("Enter");
    await hand.seesIn(".xterm-screen", 60);
  },
  startTerminal,
);

test("a terminal is saved as a preset", () =>
  ask(portal, user.name, "/presets", { method: "POST", body: { name: "shell", session: { app: "terminal" } } }));

journey("Start a preset, from Home until it is open", "/", async (hand) => {
  await hand.click("button", "Start: shell");
  await hand.seesIn(".xterm-screen", 60);
});

journey(
  "Stop a session, from Home",
  "/",
  async (hand) => {
    await hand.click("button", "Stop: shell");
    await hand.click("button", "Yes, stop");
    await hand.sees("button", "Start again: shell", 60);
  },
  startTerminal,
);

journey("Submit a job, from Home", "/", async (hand) => {
  await hand.click("link", "New job");
  await hand.fill("Command", "true");
  await hand.click("button", "Submit");
  await hand.seesIn("#main .state.succeeded", 60);
});

test("a job logs a curve", async () => {
  job = await ask(portal, user.name, "/jobs", {
    method: "POST",
    body: {
      name: "resnet",
      script: "lyceum demo-train --steps 40 --rate 40",
      resources: { cpus: 1, memory_bytes: 256 << 20 },
    },
  });
  const curves = async () => (await ask(portal, user.name, `/jobs/${job.id}/metrics`)).runs?.length > 0;
  await until(curves, 90, "its first curve");
});

journey("Find a job, from any page", "/settings", async (hand) => {
  await hand.press("Control+k");
  await hand.type("Search", "resn");
  await hand.sees("option", /Job resnet/);
  await hand.press("Enter");
  await hand.sees("heading", "resnet");
});

journey(
  "Open TensorBoard on a job, from its page",
  () => `/jobs/${job.id}`,
  async (hand) => {
    await hand.clickForTab("button", "TensorBoard");
    await hand.seesText("train/loss", 90);
  },
);

journey("Open TensorBoard on a folder, from Files", "/files", async (hand) => {
  await hand.click("link", "runs");
  await hand.sees("table", "Contents of runs");
  await hand.clickForTab("button", "TensorBoard");
  await hand.seesText("train/loss", 90);
});

test("each row of the table was walked", () => {
  assert.deepEqual([...table.keys()].sort(), [...walked].sort());
  browser.assertNoFaults(person);
});

/** Walks as one person does from the page `from`, and compares the steps with the row of this name. */
function journey(name, from, walk, prepare) {
  walked.add(name);
  test(name, async () => {
    await prepare?.();
    await person.page.goto(portal.url + (typeof from === "function" ? from() : from));
    const hand = new Hand(person);
    await walk(hand);
    assert.equal(hand.steps(), table.get(name), "the steps, and those in docs/clicks.md");
  });
}

/** Acts on a page and counts it. To choose from what is there is a click, and to fill in a field one step. */
class Hand {
  #page;
  #context;
  clicks = 0;
  fields = 0;
  tabs = 0;
  keys = 0;

  constructor({ page, context }) {
    this.#page = page;
    this.#context = context;
  }

  /** All that was done, as the table writes it. */
  steps() {
    const kinds = { click: this.clicks, field: this.fields, Tab: this.tabs, key: this.keys };
    const done = Object.entries(kinds).filter(([, number]) => number > 0);
    return done.map(([kind, number]) => `${number} ${kind}${number === 1 ? "" : "s"}`).join(", ");
  }

  #find(role, name) {
    return this.#page.getByRole(role, { name, exact: true });
  }

  async click(role, name) {
    this.clicks += 1;
    await this.#find(role, name).click();
  }

  /** Clicks what opens in a tab of its own, and goes on there. */
  clickForTab(role, name) {
    return this.#goesOn(() => this.click(role, name));
  }

  /** Presses a key on what opens in a tab of its own, and goes on there. */
  pressForTab(key) {
    return this.#goesOn(() => this.press(key));
  }

  async #goesOn(act) {
    const context = this.#context;
    this.#page = await browser.openTab({ context }, { click: act });
  }

  async fill(label, text) {
    this.fields += 1;
    await this.#page.getByRole("textbox", { name: label, exact: true }).fill(text);
  }

  /** Types into the field that has the focus already. */
  async type(name, text) {
    this.fields += 1;
    await this.#focused("combobox", name);
    await this.#page.keyboard.type(text);
  }

  async press(key) {
    if (key === "Tab") this.tabs += 1;
    else this.keys += 1;
    await this.#page.keyboard.press(key);
  }

  /** Presses Tab until the focus is there. */
  tabTo(role, name) {
    return this.pressUntil("Tab", role, name);
  }

  async pressUntil(key, role, name) {
    const wanted = this.#find(role, name);
    await wanted.waitFor({ state: "attached" });
    for (let presses = 0; presses < 40; presses += 1) {
      await this.press(key);
      if (await wanted.evaluate((element) => element === document.activeElement)) return;
    }
    assert.fail(`${key} does not reach ${name}`);
  }

  #focused(role, name) {
    const field = this.#find(role, name);
    return until(() => field.evaluate((element) => element === document.activeElement), 20, `the focus on ${name}`);
  }

  sees(role, name, seconds = 20) {
    return this.#appears(this.#find(role, name), seconds, name);
  }

  seesIn(selector, seconds) {
    return this.#appears(this.#page.locator(selector), seconds, selector);
  }

  seesText(text, seconds) {
    return this.#appears(this.#page.getByText(text, { exact: true }), seconds, text);
  }

  #appears(locator, seconds, what) {
    return browser.appears(this.#page, locator, seconds, String(what));
  }
}

/** From Home, by keys alone, to the program of a new session. */
async function toTerminal(hand) {
  await hand.tabTo("link", "Skip to content");
  await hand.press("Enter");
  await hand.tabTo("link", "New session");
  await hand.press("Enter");
  await hand.sees("heading", "New session");
  await hand.tabTo("link", "Skip to content");
  await hand.press("Enter");
  await hand.tabTo("radio", /^JupyterLab/);
  await hand.pressUntil("ArrowRight", "radio", /^Terminal/);
}

async function startTerminal() {
  await ask(portal, user.name, "/sessions", { method: "POST", body: { app: "terminal", name: "shell" } });
  const { page } = person;
  // Once the storage is known, Home has a link to it before those of the sessions.
  const isKnown = async () => {
    await page.goto(portal.url);
    return page.getByRole("heading", { name: "Storage" }).isVisible();
  };
  await until(isKnown, 30, "the storage on Home");
  await browser.waitForState(person, "shell", "Running", 60);
}

async function live() {
  const pages = LIVE.map((state) => ask(portal, user.name, `/sessions?state=${state}`));
  return (await Promise.all(pages)).flatMap(({ items }) => items);
}

/** Returns the steps that the portal's column has for each journey. */
function readTable(file) {
  const rows = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.split("|").map((cell) => cell.trim()));
  return new Map(rows.slice(1).map(([, name, steps]) => [name, steps]));
}
