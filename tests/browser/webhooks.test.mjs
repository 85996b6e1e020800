// A webhook of the site: added, tested, failing and changed, beside a receiver that gets what happens.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal, until } from "./portal.mjs";

let chromium, portal, chief, receiver, status;
const posts = [];

before(async () => {
  receiver = createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      posts.push({ headers: request.headers, body: Buffer.concat(chunks).toString() });
      response.writeHead(status ?? 204).end();
    });
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const host = `127.0.0.1:${receiver.address().port}`;
  chromium = await browser.openBrowser();
  portal = await startPortal({
    configuration: `[notifications]\nwebhook_hosts = ["${host}"]\nwebhook_networks = ["127.0.0.0/8"]\n`,
  });
  chief = await browser.visit(chromium, portal);
  chief.account = addUser(portal, `boss${process.pid}`, ["--admin"]);
  chief.address = `http://${host}/hook`;
  await browser.signIn(chief, chief.account);
  await browser.isSignedIn(chief);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  receiver?.close();
});

const types = () => posts.map(({ body }) => JSON.parse(body).type);

test("a webhook is added, tested and called", async () => {
  const { page } = chief;
  await page.getByRole("link", { name: "Admin", exact: true }).click();
  await page.getByRole("link", { name: "Webhooks" }).click();
  await page.getByLabel("Address").fill(chief.address);
  await page.getByLabel("Events").fill("jobs.* user.add");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("No event has the type `jobs.*`.").waitFor();
  await browser.assertAccessible(page, "a webhook that was refused");
  await page.getByLabel("Events").fill("job.*, user.add");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("The webhook was added.").waitFor();
  await page.getByRole("button", { name: `Test ${chief.address}` }).click();
  await page.getByText("The test event arrived.").waitFor();
  assert.deepEqual(types(), ["webhook.test"]);

  const name = `ann${process.pid}`;
  portal.users.push(name);
  await ask(portal, chief.account.name, "/users", { method: "POST", body: { name } });
  await until(() => posts.length === 2, 30, "the event of the new user");
  const { headers, body } = posts[1];
  assert.deepEqual([JSON.parse(body).type, JSON.parse(body).subject], ["user.add", name]);
  await page.getByText(`Change ${chief.address}`).click();
  const secret = await page.getByLabel("Secret").inputValue();
  const [, time, mac] = /^t=(\d+),v1=([0-9a-f]+)$/.exec(headers["lyceum-signature"]);
  assert.equal(mac, createHmac("sha256", secret).update(`${time}.${body}`).digest("hex"));
  browser.assertNoFaults(chief, [/status of 422/]);
});

test("one that fails says why, and can be made inactive", async () => {
  const { page } = chief;
  status = 503;
  const name = `bea${process.pid}`;
  portal.users.push(name);
  await ask(portal, chief.account.name, "/users", { method: "POST", body: { name } });
  await until(() => posts.length === 3, 30, "the first attempt");
  await until(
    async () => {
      await page.reload();
      return page.getByText("Failing").isVisible();
    },
    30,
    "the failure on the page",
  );
  await page.getByText("The webhook returned status 503.").waitFor();
  await browser.photograph(page, "webhooks-failing");
  await page.getByText(`Change ${chief.address}`).click();
  await page.getByLabel("Active", { exact: true }).uncheck();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Not active").waitFor();
  await page.getByRole("button", { name: `Remove ${chief.address}` }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("The webhook was removed.").waitFor();
  browser.assertNoFaults(chief, [/status of 422/]);
});
