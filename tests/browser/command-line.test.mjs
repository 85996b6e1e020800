// `lyceum session …` against the real portal: start and wait, list, log, open, stop, and what
// it says when it may not.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { addUser, lyceum, startPortal } from "./portal.mjs";

let portal, env, id;

before(async () => {
  portal = await startPortal();
  const { name } = addUser(portal, `eve${process.pid}`);
  const token = lyceum(portal, ["admin", "token", "create", "--user", name]).trim();
  env = { LYCEUM_URL: portal.url, LYCEUM_TOKEN: token };
});

after(() => portal?.stop());

const session = (...words) => lyceum(portal, ["session", ...words], { env });

test("start --wait ends when it runs, and list shows it", () => {
  const told = session("start", "terminal", "--name", "from-a-shell", "--cpus", "1", "--memory", "512M", "--wait");
  assert.match(told, /from-a-shell is running on \S+, .* left/);
  id = told.split(" ")[0];
  assert.match(session("list"), /from-a-shell +terminal +running +1 core, 512 MiB/);
  const listed = JSON.parse(session("list", "--json"));
  assert.equal(listed.items[0].id, id);
});

test("an id may be cut short, and open prints an address that answers", async () => {
  const address = session("open", id.slice(0, 30)).trim();
  assert.match(address, /^http:\/\/127\.0\.0\.1:\d+\/s\//);
  assert.ok((await fetch(address, { redirect: "manual" })).status < 500);
  session("log", id);
});

test("stop stops it, and list --all says so", () => {
  assert.match(session("stop", id), /is stopping|stopped/);
  assert.match(session("list", "--all"), /stopping|stopped/);
});

test("errors say what to do, and have their exit status", () => {
  const refused = (words, changed = {}) => {
    try {
      lyceum(portal, ["session", ...words], { env: { ...env, ...changed } });
    } catch (error) {
      return [error.status, error.stderr];
    }
    return assert.fail(`${words} went well`);
  };
  const [status, said] = refused(["start", "no-such-app"]);
  assert.equal(status, 65);
  assert.match(said, /app: /);
  assert.match(refused(["list"], { LYCEUM_TOKEN: "wrong" })[1], /the token is not valid/);
  assert.deepEqual(refused(["list"], { LYCEUM_TOKEN: "" })[0], 2);
  assert.deepEqual(refused(["start"])[0], 2);
  assert.match(refused(["stop", "ffffffff"])[1], /no session whose id begins or ends with/);
});
