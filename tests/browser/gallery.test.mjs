// Every page in every state that is hard to bring about (queues, failures, builds, very long
// and hostile words), as the integration tests drew them: nothing scrolls sideways at 320 px,
// and axe finds nothing. A little server hands them out under the portal's content policy.

import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import * as browser from "./browser.mjs";

const repository = resolve(dirname(fileURLToPath(import.meta.url)), "..", "..");
const gallery = join(process.env.CARGO_TARGET_DIR ?? join(repository, "target"), "tmp", "gallery");
const TYPES = { ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml" };

let chromium, server, site;

before(async () => {
  assert.ok(existsSync(gallery), "draw the pages first: cargo test --test it pages");
  server = createServer(answer).listen(0, "127.0.0.1");
  await new Promise((ready) => server.once("listening", ready));
  site = { url: `http://127.0.0.1:${server.address().port}` };
  chromium = await browser.openBrowser();
});

after(async () => {
  await chromium?.close();
  server?.closeAllConnections();
  server?.close();
});

for (const kind of ["real", "long", "hostile"]) {
  test(`pages with ${kind} words are well`, async (t) => {
    const names = readdirSync(join(gallery, kind)).filter((name) => name.endsWith(".html") && name !== "card.html");
    const person = await browser.visit(chromium, site);
    for (const file of names) {
      const name = file.replace(".html", "");
      await t.test(name, async () => {
        // A window for each: some pages go elsewhere by themselves, across the next one's way.
        const page = await person.context.newPage();
        person.faults.length = 0;
        await page.goto(`${site.url}/${kind}/${file}`);
        // Other words change neither colours nor themes; only the real ones are photographed.
        if (kind === "real") {
          await browser.photograph(page, `gallery-${name}`);
          await browser.assertAccessible(page, name);
        } else {
          await browser.assertNoSidewaysScroll(page, `${kind} ${name}`);
          await browser.assertOrderly(page, `${kind} ${name}`);
        }
        await page.close();
        // There is no portal behind these pages: what they fetch is not there.
        browser.assertNoFaults(person, [/status of 404/, /EventSource/, /WebSocket/]);
      });
    }
    await person.context.close();
  });
}

// What a page shows while the portal does not answer is still read.
test("cards that are no longer fresh can be read", async () => {
  const person = await browser.visit(chromium, site);
  await person.page.goto(`${site.url}/real/home.html`);
  await person.page.evaluate(() => {
    for (const card of document.querySelectorAll("[data-card]")) card.classList.add("stale");
  });
  await browser.photograph(person.page, "gallery-home-stale");
  await browser.assertAccessible(person.page, "home, not fresh");
  await person.context.close();
});

function answer(request, response) {
  const path = decodeURIComponent(new URL(request.url, "http://x").pathname);
  if (path === "/events") {
    // A stream on which nothing happens: pages without one are drawn pale.
    response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    return;
  }
  if (path.endsWith("/ptys")) {
    // A session that answers: the page of a terminal whose session is gone goes elsewhere.
    response.writeHead(200, { "content-type": "application/json" }).end('{"items":[]}');
    return;
  }
  const file = path.startsWith("/static/") ? join(repository, path) : join(gallery, path);
  if (
    ![gallery, join(repository, "static")].some((root) => file.startsWith(root)) ||
    !extname(file) ||
    !existsSync(file)
  ) {
    response.writeHead(404).end();
    return;
  }
  const headers = { "content-type": `${TYPES[extname(file)] ?? "text/html"}; charset=utf-8` };
  if (extname(file) === ".html") headers["content-security-policy"] = policy(file);
  response.writeHead(200, headers).end(readFileSync(file));
}

// As the portal sends it: the terminal alone may style by script, because xterm.js does.
function policy(file) {
  const styles = file.includes("terminal") ? "; style-src 'self' 'unsafe-inline'" : "";
  return `default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'${styles}`;
}
