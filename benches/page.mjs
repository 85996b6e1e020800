// A page of many runs in a real browser, for `run.py`: a portal of its own reads a directory of event
// files, and Chromium opens the run's page again and again, each time as if it had never seen it. Prints
// one line of JSON: of each time the milliseconds to the first chart, and in how many of them the page would
// not have answered a key.

import { mkdtempSync, chmodSync, rmSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";

import * as browser from "../tests/browser/browser.mjs";
import { addUser, ask, startPortal, until } from "../tests/browser/portal.mjs";

const [writer, runs, tags, steps, rounds] = process.argv.slice(2).map((word, place) => (place ? Number(word) : word));

const portal = await startPortal({ environment: "none" });
const chromium = await browser.openBrowser();
const directory = mkdtempSync(join(tmpdir(), "ly-page-"));
try {
  chmodSync(directory, 0o755);
  execFileSync(writer, ["write", directory, runs, tags, steps].map(String));
  const user = addUser(portal, `page${process.pid}`);
  const run = await ask(portal, user.name, "/runs", { method: "POST", body: { directory, name: "many" } });
  await until(async () => (await ask(portal, user.name, `/runs/${run.id}`)).points >= runs * tags * steps, 120, "every point");
  const figures = [];
  for (let round = 0; round < rounds; round += 1) figures.push(await open(user, `${portal.url}/runs/${run.id}`));
  process.stdout.write(`${JSON.stringify(figures)}\n`);
} finally {
  await chromium.close();
  await portal.stop();
  rmSync(directory, { recursive: true, force: true });
}

/** The page from its address to its first drawn charts. */
async function open(user, address) {
  const person = await browser.visit(chromium, portal);
  await browser.signIn(person, user);
  await browser.isSignedIn(person);
  await person.page.addInitScript(() => {
    const busy = { total: 0 };
    globalThis.busy = busy;
    new PerformanceObserver((list) => {
      for (const task of list.getEntries()) busy.total += task.duration;
    }).observe({ entryTypes: ["longtask"] });
  });
  const begin = performance.now();
  await person.page.goto(address, { waitUntil: "commit" });
  await person.page.waitForFunction(() => {
    const canvas = document.querySelector("figure[data-chart] canvas.picture");
    return canvas?.width && canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
  }, null, { timeout: 60_000 });
  const drawn = performance.now() - begin;
  const busy = await person.page.evaluate(() => globalThis.busy.total);
  await person.context.close();
  return { drawn, busy };
}
