// A hostile notebook, opened by the person it is aimed at, wherever apps may live: on a port of
// their own, on a name for each session (by plain HTTP on this machine, and by HTTPS with the
// portal on the same site), and on the portal's own origin, where less is promised. Each attack
// stands beside something of the same kind that must work, so that it cannot fail by itself.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, folder;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "ly-hostile-"));
  chmodSync(folder, 0o755);
  copyFileSync(join(dirname(fileURLToPath(import.meta.url)), "hostile.py"), join(folder, "hostile.py"));
  const certificate = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
    "-days",
    "2",
  ];
  const names = ["-subj", "/CN=lab", "-addext", "subjectAltName=DNS:portal.lab.test,DNS:*.apps.lab.test"];
  execFileSync(
    "openssl",
    [...certificate, ...names, "-out", join(folder, "cert.pem"), "-keyout", join(folder, "key.pem")],
    { stdio: "ignore" },
  );
  chmodSync(join(folder, "key.pem"), 0o644);
  // The site's name server, and an authority that the browser knows, in two lines.
  const { publicKey } = new X509Certificate(readFileSync(join(folder, "cert.pem")));
  const known = createHash("sha256")
    .update(publicKey.export({ type: "spki", format: "der" }))
    .digest("base64");
  const resolver = "--host-resolver-rules=MAP *.lab.test 127.0.0.1";
  chromium = await browser.openBrowser([resolver, `--ignore-certificate-errors-spki-list=${known}`]);
});

after(async () => {
  await chromium?.close();
  rmSync(folder, { recursive: true, force: true });
});

const MODES = [
  { mode: "port", server: () => "" },
  {
    mode: "subdomain",
    server: () => 'apps = "subdomain"\napps_domain = "apps.localhost"',
    address: (port) => `http://localhost:${port}`,
  },
  {
    mode: "subdomain",
    https: true,
    server: (port) =>
      `apps = "subdomain"\napps_domain = "apps.lab.test"\npublic_url = "https://portal.lab.test:${port}"\n` +
      `tls_cert = "${folder}/cert.pem"\ntls_key = "${folder}/key.pem"`,
    address: (port) => `https://portal.lab.test:${port}`,
  },
  { mode: "path", server: () => 'apps = "path"' },
];

for (const settings of MODES) {
  const { mode, https = false } = settings;
  test(`a hostile notebook, mode ${mode}${https ? " by HTTPS" : ""}`, { timeout: 300_000 }, async (t) => {
    const scene = await setUp(settings);
    try {
      for (const [name, act] of Object.entries(mode === "path" ? ON_ONE_ORIGIN : ON_ANOTHER_ORIGIN)) {
        await t.test(name, () => act(scene));
      }
    } finally {
      await scene.person.context.close();
      await scene.portal.stop();
    }
  });
}

const ON_ANOTHER_ORIGIN = {
  "reads nothing of the portal": async ({ page, portal, own }) => {
    assert.equal((await page.evaluate(read, own)).text.includes("hostile page"), true, "its own it can read");
    for (const path of ["/", "/settings", "/login", "/api/v1/me", "/api/v1/sessions", "/events", "/static/app.css"]) {
      for (const options of [{ credentials: "include" }, { credentials: "include", mode: "no-cors" }]) {
        const got = await page.evaluate(read, [portal.url + path, options]);
        assert.equal(got.text ?? "", "", `${path} ${JSON.stringify(options)}: ${JSON.stringify(got)}`);
      }
    }
    assert.doesNotMatch(await page.evaluate(() => document.cookie), /lyceum_/);
  },
  "changes nothing in the portal": changesNothing,
  "frames nothing of the portal": framesNothing,
  "has no hold on a window of the portal's": hasNoHold,
  "opens no socket but its own": async ({ page, portal, own, ids, mode, address }) => {
    assert.equal(await page.evaluate(socket, `${own}ws`), "open");
    assert.equal(await page.evaluate(socket, `${portal.url}/s/${ids.own}/ws`), "refused");
    assert.equal(await page.evaluate(socket, `${address(ids.bobs)}/s/${ids.bobs}/ws`), "refused");
    // On a port, one person's sessions share an origin; with names they do not.
    const second = await page.evaluate(socket, `${address(ids.second)}/s/${ids.second}/ws`);
    assert.equal(second, mode === "port" ? "open" : "refused");
  },
  "sees other sessions only where they share its origin": async ({ page, ids, mode, address }) => {
    const second = `${address(ids.second)}/s/${ids.second}/`;
    const got = await page.evaluate(read, [second, { credentials: "include" }]);
    if (mode === "port") return assert.match(got.text, /hostile page/);
    assert.ok(got.error, JSON.stringify(got));
    assert.equal((await page.evaluate(read, [second, { credentials: "include", mode: "no-cors" }])).text ?? "", "");
    assert.equal(await frame(page, second), "chrome-error://chromewebdata/");
    // By way of its own name, or with the other's path on its own, it gets there no better.
    const wrong = await page.evaluate(read, [`/s/${ids.second}/`, { credentials: "include" }]);
    assert.equal(wrong.status, 404, JSON.stringify(wrong));
  },
  "opens nobody else's session": opensNobodyElses,
  "installs a service worker for itself alone": async ({ page, person, portal, own, ids, mode }) => {
    assert.match(await page.evaluate(work, ["sw.js", "/"]), /SecurityError/, "wider than its own path");
    if (mode === "port") assert.match(await page.evaluate(work, ["sw.js", `/s/${ids.second}/`]), /SecurityError/);
    assert.equal(await page.evaluate(work, ["sw.js", undefined]), "registered");
    await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
    await page.reload();
    assert.equal(await page.innerText("body"), "from the worker", "it works");
    const settings = await person.context.newPage();
    await settings.goto(`${portal.url}/settings`);
    await settings.getByRole("heading", { name: "Settings" }).waitFor();
    await settings.close();
    await page.evaluate(async () => (await navigator.serviceWorker.getRegistration()).unregister());
    await page.goto(own);
    assert.equal(await page.title(), "hostile");
  },
  "puts no cookie in the portal's place": tossesInVain,
};

const ON_ONE_ORIGIN = {
  // What is not promised: a page on the portal's origin is the portal to a browser.
  "reads the portal, as the documentation says": async ({ page, portal, alice }) => {
    const got = await page.evaluate(read, [`${portal.url}/api/v1/me`, { credentials: "include" }]);
    assert.equal(JSON.parse(got.text).name, alice.name);
    assert.doesNotMatch(await page.evaluate(() => document.cookie), /lyceum_/, "but its login cookie it cannot");
  },
  "frames nothing of the portal": framesNothing,
  "has no hold on a window of the portal's": hasNoHold,
  "opens no socket but its person's": async ({ page, portal, own, ids }) => {
    assert.equal(await page.evaluate(socket, `${own}ws`), "open");
    assert.equal(await page.evaluate(socket, `${portal.url}/s/${ids.bobs}/ws`), "refused");
  },
  "opens nobody else's session": opensNobodyElses,
  "installs no service worker": async ({ page }) => {
    for (const scope of ["/", undefined]) assert.match(await page.evaluate(work, ["sw.js", scope]), /Error/);
  },
};

// Two sessions of Alice's and one of Bob's, and Alice looks at her first.
async function setUp({ mode, https = false, server, address }) {
  // A certificate of our own making: for what this process itself asks.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = https ? "0" : "1";
  const app = `[[apps]]\nname = "hostile"\ncommand = ["/usr/bin/python3", "${folder}/hostile.py", "{socket}"]`;
  // Not started by root, all of them run as one account; browsers do not see that.
  const accounts = process.getuid() === 0 ? "" : "[accounts]\nshared_uid = true";
  const configuration = (port) => `[server]\n${server(port)}\n${accounts}\n${app}`;
  const portal = await startPortal({ configuration, address, https });
  try {
    const [alice, bob] = ["alice", "bob"].map((name) => addUser(portal, `${name}${process.pid}`));
    const start = async (who) =>
      (await ask(portal, who.name, "/sessions", { method: "POST", body: { app: "hostile" } })).id;
    const ids = { own: await start(alice), second: await start(alice), bobs: await start(bob) };
    for (const [who, id] of [
      [alice, ids.own],
      [alice, ids.second],
      [bob, ids.bobs],
    ]) {
      const runs = async () => (await ask(portal, who.name, `/sessions/${id}`)).state === "running";
      await until(runs, 90, "a running session");
    }
    const openUrl = (await ask(portal, alice.name, `/sessions/${ids.own}`)).open_url;
    const person = await browser.visit(chromium, portal);
    await browser.signIn(person, alice);
    await browser.isSignedIn(person);
    const origin = (id) => new URL(openUrl.replaceAll(ids.own, id), portal.url).origin;
    const page = await person.context.newPage();
    // The other one is known to this browser too, so that its cookie could be sent.
    for (const id of [ids.second, ids.own]) {
      await page.goto(`${portal.url}/s/${id}/`);
      assert.equal(await page.title(), "hostile");
      assert.equal(page.url(), `${origin(id)}/s/${id}/`);
    }
    assert.equal(new URL(openUrl).origin, origin(ids.own));
    return { mode, https, portal, person, page, alice, bob, ids, own: page.url(), address: origin };
  } catch (error) {
    await portal.stop();
    throw error;
  }
}

async function changesNothing({ page, portal, person, alice, ids }) {
  const token = JSON.stringify({ name: "stolen" });
  const json = { "content-type": "application/json" };
  for (const [path, options] of [
    ["/api/v1/tokens", { method: "POST", body: token, mode: "no-cors" }],
    ["/api/v1/tokens", { method: "POST", body: token, headers: json }],
    ["/settings/tokens", { method: "POST", body: new URLSearchParams({ name: "stolen" }).toString(), mode: "no-cors" }],
    ["/api/v1/logout", { method: "POST", mode: "no-cors" }],
    ["/logout", { method: "POST", mode: "no-cors" }],
    [`/api/v1/sessions/${ids.second}`, { method: "DELETE" }],
    [`/sessions/${ids.second}/stop`, { method: "POST", mode: "no-cors" }],
  ]) {
    const got = await page.evaluate(read, [portal.url + path, { credentials: "include", ...options }]);
    assert.equal(got.text ?? "", "", `${path}: ${JSON.stringify(got)}`);
  }
  // As a form, which no preflight asks about.
  for (const path of ["/settings/tokens", "/logout", `/sessions/${ids.second}/stop`]) {
    for (const target of ["sink", "_blank"]) {
      const answered = person.context.waitForEvent("response", (answer) => answer.url() === portal.url + path);
      await page.evaluate(submit, [portal.url + path, target]);
      // To another site a browser does not even send the login, and nobody's is not signed out.
      assert.ok([303, 401, 403].includes((await answered).status()), `${path} ${target}`);
    }
  }
  const others = person.context.pages().filter((other) => other !== page && other !== person.page);
  for (const other of others) await other.close();
  const tokens = await ask(portal, alice.name, "/tokens");
  assert.deepEqual(
    tokens.items.filter((found) => found.name === "stolen"),
    [],
  );
  assert.equal((await ask(portal, alice.name, `/sessions/${ids.second}`)).state, "running");
  await person.page.goto(`${portal.url}/settings`);
  await browser.isSignedIn(person);
}

async function framesNothing({ page, portal, own }) {
  assert.equal(await frame(page, `${own}framed`), `${own}framed`, "its own it can");
  for (const path of ["/", "/settings", "/login"]) {
    // Of a page of another site's that is refused not even the address of the refusal is told.
    assert.ok(["", "chrome-error://chromewebdata/"].includes(await frame(page, portal.url + path)), path);
  }
}

async function hasNoHold({ page, person, portal }) {
  const opened = person.context.waitForEvent("page");
  await page.evaluate((url) => void (globalThis.popup = window.open(url)), `${portal.url}/settings`);
  const settings = await opened;
  await settings.getByRole("heading", { name: "Settings" }).waitFor();
  assert.equal(await settings.evaluate(() => window.opener), null);
  // What it has in its hand is a window that is gone.
  await until(() => page.evaluate(() => globalThis.popup.closed), 20, "the end of its hold");
  await settings.close();
}

async function opensNobodyElses({ page, portal, person, ids, own, address }) {
  const visit = await person.context.newPage();
  for (const base of new Set([portal.url, address(ids.bobs), address(ids.own)])) {
    const answer = await visit.goto(`${base}/s/${ids.bobs}/`);
    assert.equal(answer.status(), 404, base);
  }
  await visit.close();
  const got = await page.evaluate(read, [own.replaceAll(ids.own, ids.bobs), { credentials: "include" }]);
  assert.ok(got.error || [401, 404].includes(got.status), JSON.stringify(got));
}

async function tossesInVain({ page, person, portal, own, https, alice }) {
  const domains = ["", "; domain=localhost", "; domain=apps.localhost", "; domain=lab.test", "; domain=apps.lab.test"];
  await page.evaluate((domains) => {
    for (const name of ["lyceum_login", "lyceum_form", "__Host-lyceum_login", "__Host-lyceum_form"]) {
      for (const path of ["/", "/settings", "/login"]) {
        for (const domain of domains) document.cookie = `${name}=tossed; path=${path}${domain}`;
      }
    }
    document.cookie = "beside=1";
  }, domains);
  assert.match(await page.evaluate(() => document.cookie), /beside=1/, "a cookie of its own it can");
  const seen = await page.evaluate(read, `${own}seen`);
  assert.match(seen.text, /beside=1/);
  assert.doesNotMatch(seen.text, /lyceum_/);
  const settings = await person.context.newPage();
  await settings.goto(`${portal.url}/settings`);
  // By HTTPS nothing has happened; on one host by plain HTTP the second cookie signs nobody in.
  const told = settings.getByText("two sign-in cookies");
  const signedIn = settings.getByRole("button", { name: "Sign out", exact: true });
  await (https ? signedIn : signedIn.or(told)).first().waitFor();
  if (await signedIn.isVisible()) await settings.getByText(alice.name).first().waitFor();
  await settings.close();
}

// In the hostile page:

async function read(asked) {
  const [url, options] = [asked].flat();
  try {
    const answer = await fetch(url, { cache: "no-store", ...options });
    return { status: answer.status, type: answer.type, text: await answer.text() };
  } catch (error) {
    return { error: String(error) };
  }
}

function socket(url) {
  return new Promise((done) => {
    const opened = new WebSocket(url.replace(/^http/, "ws"));
    opened.onopen = () => (opened.close(), done("open"));
    opened.onerror = () => done("refused");
  });
}

async function work([script, scope]) {
  try {
    await navigator.serviceWorker.register(script, scope === undefined ? {} : { scope });
    return "registered";
  } catch (error) {
    return String(error);
  }
}

function submit([action, target]) {
  document.body.append(Object.assign(document.createElement("iframe"), { name: "sink" }));
  const form = Object.assign(document.createElement("form"), { action, method: "post", target });
  form.append(Object.assign(document.createElement("input"), { name: "name", value: "stolen" }));
  document.body.append(form);
  form.submit();
}

/** Where a frame that the page opens ends. */
async function frame(page, url) {
  const frame = await page.evaluateHandle(
    (url) =>
      new Promise((done) => {
        const frame = Object.assign(document.createElement("iframe"), { src: url });
        frame.onload = () => done(frame);
        document.body.append(frame);
      }),
    url,
  );
  return (await frame.contentFrame()).url();
}
