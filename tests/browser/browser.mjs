// A person at a browser: Chromium, a page that remembers everything that went wrong on it
// (script errors, console errors, breaches of the content policy), and the few things that
// every journey does. Elements are found by role and name, as a person or a screen reader
// finds them.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { until } from "./portal.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const pictures = resolve(here, "..", "..", "target", "screenshots");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--headless=new",
  "--no-sandbox",
  "--disable-dev-shm-usage",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const SIZES = { wide: { width: 1280, height: 860 }, phone: { width: 320, height: 640 } };

export function openBrowser(flags = []) {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: [...FLAGS, ...flags] });
}

/**
 * A person with a browser of their own (no cookies yet) in front of `portal`.
 * `person.faults` gathers what went wrong on the portal's own pages.
 */
export async function visit(browser, portal, { size = "wide", theme = "light" } = {}) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme, reducedMotion: "reduce" });
  const faults = [];
  context.setDefaultTimeout(20_000);
  context.on("page", (page) => watch(page, portal.url, faults));
  const page = await context.newPage();
  return { context, page, portal, faults };
}

/** What this person's browser notifies of from now on: {title, body}, in their order, by the real notifications. */
export async function notifications({ context, portal }) {
  const noted = [];
  await context.grantPermissions(["notifications"], { origin: portal.url });
  await context.exposeFunction("noted", (title, body) => noted.push({ title, body }));
  await context.addInitScript(() => {
    const Real = globalThis.Notification;
    if (!Real) return;
    globalThis.Notification = class extends Real {
      constructor(title, options) {
        super(title, options);
        globalThis.noted(title, options.body);
      }
    };
  });
  return noted;
}

/** Looks at a page whole: pictures in both themes and widths, nothing sideways, nothing that bars anybody. */
export async function examine({ page }, name) {
  await photograph(page, name);
  await assertAccessible(page, name);
  await page.setViewportSize(SIZES.wide);
}

/** Fails when anything went wrong on the portal's pages so far, except for what is expected. */
export function assertNoFaults(person, expected = []) {
  const faults = person.faults.filter((fault) => !expected.some((pattern) => pattern.test(fault)));
  assert.deepEqual(faults, []);
}

export async function signIn(person, { name, password }) {
  const { page, portal } = person;
  if (!page.url().startsWith(`${portal.url}/login`)) await page.goto(`${portal.url}/login`);
  await page.getByLabel("User name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Waits for a page that only those see who are signed in. */
export function isSignedIn(person) {
  return person.page.getByRole("button", { name: "Sign out", exact: true }).waitFor();
}

/** Fills in the start form and sends it; answers the new session's id. */
export async function startSession(person, { app, size, name, environment, logs }) {
  const { page, portal } = person;
  await page.goto(`${portal.url}/sessions/new`);
  await page.getByRole("radio", { name: app }).check({ force: true });
  if (size) await page.getByRole("radio", { name: size }).check({ force: true });
  if (environment) await page.getByLabel("Environment").selectOption(environment);
  if (logs) await page.getByLabel("Log folder", { exact: true }).fill(logs);
  await page.getByLabel("Name", { exact: true }).fill(name);
  await page.getByLabel("Open when ready").uncheck();
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.waitForURL((url) => !url.pathname.startsWith("/sessions/new") && url.pathname !== "/login");
  await page.goto(`${portal.url}/`);
  return card(page, name).first().getAttribute("data-card");
}

/** The card of the session called `name`. */
export function card(page, name) {
  return page.getByRole("article", { name, exact: true });
}

/** Waits on the home page, without a reload, until the card of `name` says `word`. */
export async function waitForState(person, name, word, seconds) {
  const { page } = person;
  // Its sentence may hold the same word.
  const place = card(page, name)
    .first()
    .locator(".state")
    .filter({ hasText: new RegExp(`^\\s*${word}\\s*$`) });
  try {
    await place.waitFor({ timeout: seconds * 1000 });
  } catch (error) {
    const seen = await card(page, name)
      .first()
      .innerText()
      .catch(() => "no card");
    throw new Error(`“${name}” is not “${word}” after ${seconds} s but: ${seen}\n${person.portal.log.slice(-4000)}`, {
      cause: error,
    });
  }
}

/** Clicks what opens in a tab of its own; answers that tab. */
export async function openTab(person, link) {
  const [tab] = await Promise.all([person.context.waitForEvent("page"), link.click()]);
  await tab.waitForLoadState("domcontentloaded");
  return tab;
}

/** Presses a card's button and says yes to the question that may follow. */
export async function press(person, name, button) {
  const { page } = person;
  const pressed = card(page, name).first().getByRole("button", { name: button });
  // What cannot be taken back is asked again.
  const asks = await pressed.evaluate((element) => element.form?.dataset.confirm !== undefined);
  const loaded = page.waitForEvent("load");
  await pressed.click();
  if (asks) await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await loaded;
}

/** Types a line into the terminal page that is open in `tab`. */
export async function typeInTerminal(tab, line) {
  const screen = tab.locator(".xterm-screen").first();
  await screen.waitFor();
  await terminalShows(tab, /[$#%>]\s*$/);
  await screen.click();
  await tab.keyboard.type(line);
  await tab.keyboard.press("Enter");
}

/** Waits until the terminal shows `wanted` outside the line that was typed; answers its text. */
export function terminalShows(tab, wanted) {
  return until(
    async () => {
      const text = (await tab.locator(".xterm-rows").first().innerText()).replace(/\u00a0/g, " ").trimEnd();
      const found = typeof wanted === "string" ? text.includes(wanted) : wanted.test(text);
      return found && text;
    },
    30,
    `“${wanted}” in the terminal`,
  );
}

/** Opens the JupyterLab of the card `name`, and in it a new notebook with an idle kernel. */
export async function openNotebook(person, name) {
  const lab = await openTab(person, card(person.page, name).getByRole("link", { name: /^Open/ }));
  await lab.waitForURL(/\/lab/, { timeout: 60_000 });
  // Not with what an earlier session left open.
  await lab.goto(lab.url().replace(/\/lab.*/, "/lab?reset"));
  const launcher = lab.locator('.jp-LauncherCard[data-category="Notebook"]', { hasText: "Python 3" });
  await appears(lab, launcher, 90, "the launcher of JupyterLab");
  await launcher.first().click();
  // A cell that is run before its kernel is there is not run at all.
  await appears(lab, lab.getByText(/\| Idle/), 90, "an idle kernel");
  return lab;
}

/** Runs code in a cell of the open notebook. */
export async function runCell(lab, index, code) {
  const editor = lab.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(index);
  await editor.click({ timeout: 60_000 });
  // Typing by key would add the editor's own indentation and closing quotes.
  await lab.keyboard.insertText(code);
  await lab.keyboard.press("Shift+Enter");
}

/** Waits until a cell of the open notebook has this output. */
export async function cellShows(lab, index, text) {
  const cell = lab.locator(".jp-Notebook .jp-CodeCell").nth(index);
  await appears(lab, cell.locator(".jp-OutputArea-output", { hasText: text }), 120, `the output ${text}`);
}

/** Waits for what `locator` finds; when it does not come, a picture of the page tells why. */
export async function appears(page, locator, seconds, what) {
  try {
    await locator.first().waitFor({ timeout: seconds * 1000 });
  } catch (error) {
    mkdirSync(pictures, { recursive: true });
    const path = join(pictures, `failed-${what.replaceAll(/[^a-z0-9]+/gi, "-")}.png`);
    await page.screenshot({ path });
    throw new Error(`${what} did not appear within ${seconds} s: see ${path}`, { cause: error });
  }
}

/** Where the picture of this name goes. */
export function pictureOf(name) {
  mkdirSync(pictures, { recursive: true });
  return join(pictures, `${name}.png`);
}

/**
 * Saves target/screenshots/NAME-THEME-WIDTH.png in both themes and three widths, where pictures are asked for
 * (LYCEUM_TEST_PICTURES=1): they are for people to look at, and take longer than all that is tested.
 */
export async function photograph(page, name) {
  await assertNoSidewaysScroll(page, name);
  if (process.env.LYCEUM_TEST_PICTURES === "1") {
    mkdirSync(pictures, { recursive: true });
    for (const width of [375, 1280, 1920]) {
      await page.setViewportSize({ width, height: width < 1000 ? 740 : 860 });
      for (const theme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme: theme, reducedMotion: "reduce" });
        await page.screenshot({ path: join(pictures, `${name}-${theme}-${width}.png`), fullPage: true });
      }
    }
  }
  await page.setViewportSize(SIZES.wide);
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
}

/** Nothing scrolls sideways at phone width, once what follows the window's size has followed. */
export async function assertNoSidewaysScroll(page, name) {
  await page.setViewportSize(SIZES.phone);
  const widths = () => {
    const root = document.documentElement;
    return [Math.max(root.scrollWidth, document.body.scrollWidth), root.clientWidth];
  };
  const settled = `(() => { const [content, window] = (${widths})(); return content <= window; })()`;
  await until(() => page.evaluate(settled), 3).catch(() => {});
  const [content, window] = await page.evaluate(widths);
  assert.ok(content <= window, `${name} is ${content} px wide in a window of ${window} px`);
}

const STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const COLOURS = ["color-contrast", "link-in-text-block"];

/** Runs axe and fails with what it found and where. The dark theme has other colours and nothing else of its own. */
export async function assertAccessible(page, name) {
  await assertWell(page, `${name} (light)`, { runOnly: STANDARDS });
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  await assertWell(page, `${name} (dark)`, { runOnly: { type: "rule", values: COLOURS } });
  await page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
}

/** The same but for colours, for a page whose like was looked at in its colours. */
export function assertOrderly(page, name) {
  return assertWell(page, name, {
    runOnly: STANDARDS,
    rules: Object.fromEntries(COLOURS.map((rule) => [rule, { enabled: false }])),
  });
}

async function assertWell(page, name, options) {
  // What happens to be scrolled halfway below a bar that stays would be called too small to touch.
  await page.evaluate("scrollTo(0, 0)");
  // Evaluated by the debugger, so the page's content policy does not forbid it.
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(axe);
  const found = await page.evaluate((options) => globalThis.axe.run(document, options), {
    resultTypes: ["violations"],
    ...options,
  });
  const places = (fault) => fault.nodes.map((node) => `    ${node.html}\n      ${node.failureSummary}`).join("\n");
  const faults = found.violations.map((fault) => `${fault.id}: ${fault.help}\n${places(fault)}`);
  if (faults.length > 0) assert.fail(`${name}:\n${faults.join("\n")}`);
}

function watch(page, portal, faults) {
  const own = (url) => url.startsWith(portal);
  page.on("pageerror", (error) => {
    if (own(page.url())) faults.push(`${page.url()}: ${error}`);
  });
  page.on("console", (message) => {
    const text = message.text();
    const breach = /Content.Security.Policy/i.test(text);
    if (message.type() === "error" && (own(message.location().url) || (breach && own(page.url())))) {
      faults.push(`${page.url()}: ${text}`);
    }
  });
  // Portal pages ask with a dialogue of their own; a plain one is answered with yes.
  page.on("dialog", (dialog) => dialog.accept());
}
