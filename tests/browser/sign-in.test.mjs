// Getting in, and not: a wrong password, signing out, and the keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, startPortal } from "./portal.mjs";

let chromium, portal, bea;

before(async () => {
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  bea = addUser(portal, `bea${process.pid}`);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
});

test("a wrong password is refused with a sentence, and the name is kept", async () => {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, { name: bea.name, password: "not the password" });
  const alert = person.page.getByRole("alert");
  await alert.waitFor();
  const wrongPassword = (await alert.innerText()).replaceAll(bea.name, "NAME");
  assert.equal(await person.page.getByLabel("User name").inputValue(), bea.name);
  assert.equal(await person.page.getByLabel("Password").inputValue(), "");

  await browser.signIn(person, { name: "nobody-at-all", password: "not the password" });
  await alert.waitFor();
  const unknownName = (await alert.innerText()).replaceAll("nobody-at-all", "NAME");
  assert.equal(unknownName, wrongPassword, "an unknown name must not look different");

  await browser.signIn(person, bea);
  await browser.isSignedIn(person);
  // The browser itself logs the refused sign-in as a failed resource.
  browser.assertNoFaults(person, [/status of (401|403|422|429)/]);
  await person.context.close();
});

test("whoever is not signed in is led to the page they wanted, after signing in", async () => {
  const person = await browser.visit(chromium, portal);
  await person.page.goto(`${portal.url}/settings`);
  await browser.signIn(person, bea);
  await person.page.getByRole("heading", { name: "Settings" }).waitFor();
  await person.page.getByRole("button", { name: "Sign out", exact: true }).click();
  await person.page.getByRole("heading", { name: "Sign in" }).waitFor();
  await person.page.goto(`${portal.url}/settings`);
  await person.page.getByRole("heading", { name: "Sign in" }).waitFor();
  browser.assertNoFaults(person);
  await person.context.close();
});

test("the keyboard alone signs in and starts a terminal", async () => {
  const person = await browser.visit(chromium, portal);
  const { page } = person;
  await page.goto(`${portal.url}/login`);
  await focusOn(page, "User name");
  await page.keyboard.type(bea.name);
  await focusOn(page, "Password");
  await page.keyboard.type(bea.password);
  await page.keyboard.press("Enter");
  await browser.isSignedIn(person);

  await focusOn(page, "New session");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "New session" }).waitFor();
  // A group of radio buttons is one stop of the Tab key; arrows choose within it.
  await focusOn(page, /JupyterLab|TensorBoard|Terminal/);
  for (let n = 0; n < 10 && !(await page.getByRole("radio", { name: /Terminal/ }).isChecked()); n += 1) {
    await page.keyboard.press("ArrowRight");
  }
  await focusOn(page, "Name");
  await page.keyboard.type("by-keyboard");
  await focusOn(page, "Start");
  await page.keyboard.press("Enter");
  await page.waitForURL((url) => url.pathname !== "/sessions/new");
  await page.goto(portal.url);
  await browser.waitForState(person, "by-keyboard", "Running", 60);
  browser.assertNoFaults(person);
  await person.context.close();
});

/** Presses Tab until the element of that name has the focus, and sees to it that it shows. */
async function focusOn(page, name) {
  const seen = [];
  for (let n = 0; n < 60; n += 1) {
    const focus = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      const label = element.labels?.[0]?.innerText ?? element.getAttribute("aria-label") ?? element.innerText ?? "";
      // A tile shows the focus of the radio button inside it.
      const shown = [element, ...(element.labels ?? [])].some((part) => {
        const style = getComputedStyle(part);
        return style.outlineStyle !== "none" || style.boxShadow !== "none";
      });
      return { label: label.trim(), shown };
    });
    if (focus) {
      seen.push(focus.label.split("\n")[0]);
      if (typeof name === "string" ? focus.label === name : name.test(focus.label)) {
        assert.ok(focus.shown, `the focus on “${focus.label}” cannot be seen`);
        return;
      }
    }
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never reached “${name}”; it went over ${seen.join(", ")}`);
}
