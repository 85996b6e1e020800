// A portal of one's own: the built binary with a fresh data directory on a free port of the
// loopback. It is ended by its pid, its log is shown when something fails, and what it left
// on the machine (accounts, homes, directories) is removed.

import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, rmdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { keepCompiled, lendCompiled } from "./compiled.mjs";

const repository = resolve(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const lyceumBinary = process.env.LYCEUM_BIN ?? join(repository, "target", "debug", "lyceum");
const isRoot = process.getuid() === 0;

/**
 * Starts a portal and waits until it says `ready`.
 *
 * `configuration` is TOML. The default environment is `"built"` by the portal itself, as on a
 * fresh machine; or the one that was `"kept"` from earlier (its Python is LYCEUM_TEST_PYTHON);
 * or there is `"none"`, which is enough for terminals.
 *
 * Where the port stands in the configuration, that is a function of it; `address` then says
 * how the browser calls the portal. `https` where the configuration names a certificate.
 */
export async function startPortal({ configuration = "", environment = "none", address, https = false } = {}) {
  const data = mkdtempSync(join(tmpdir(), "ly-"));
  chmodSync(data, 0o755);
  const port = await freePorts(2);
  const file = join(data, "lyceum.toml");
  const settings = typeof configuration === "function" ? configuration(port) : configuration;
  writeFileSync(file, `${settings}\n${environmentSection(environment)}`, { mode: 0o644 });

  const argv = ["serve", "--config", file, "--data", join(data, "d"), "--listen", `127.0.0.1:${port}`];
  // Where this process asks it, and where the browser does.
  const api = `${https ? "https" : "http"}://127.0.0.1:${port}`;
  const portal = {
    url: address?.(port) ?? api,
    api,
    data: join(data, "d"),
    log: "",
    child: null,
    file,
    users: [],
    lends: environment === "kept",
  };
  // Somebody else's portal on this machine may have made `ly-admin`; that is not ours to remove.
  if (!hasAccount("ly-admin")) portal.users.push("admin");

  let ended = null;
  const serve = async () => {
    const child = spawn(lyceumBinary, argv, { cwd: data, env: cleanEnvironment(), stdio: ["ignore", "pipe", "pipe"] });
    portal.child = child;
    ended = new Promise((done) => child.once("close", (code, signal) => done(code ?? signal)));
    const before = portal.log.length;
    await new Promise((ready, failed) => {
      const read = (chunk) => {
        portal.log += chunk;
        if (/\bready\b/.test(portal.log.slice(before))) ready();
      };
      child.stdout.on("data", read);
      child.stderr.on("data", read);
      child.once("error", (error) => failed(new Error(`cannot start ${lyceumBinary}: ${error.message}`)));
      ended.then((how) => failed(new Error(`the portal ended (${how}) before it was ready:\n${portal.log}`)));
      setTimeout(() => failed(new Error(`the portal is not ready after a minute:\n${portal.log}`)), 60_000).unref();
    });
  };
  // What runs goes on running meanwhile, that is the point of it.
  portal.end = async () => {
    portal.child.kill("SIGTERM");
    const patience = setTimeout(() => portal.child.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(patience);
  };
  portal.startAgain = serve;
  portal.stop = async () => {
    await stopSessions(portal);
    await portal.end();
    if (portal.lends) for (const name of portal.users) if (hasAccount(`ly-${name}`)) keepCompiled(`ly-${name}`);
    for (const name of portal.users) removeAccount(`ly-${name}`);
    removeLeftovers(portal.data);
    rmSync(data, { recursive: true, force: true });
  };

  await serve().catch(async (error) => {
    await portal.stop();
    throw error;
  });
  return portal;
}

/** Runs `lyceum ARGUMENTS` on the portal's data; `input` goes to its standard input. */
export function lyceum(portal, arguments_, { input, env } = {}) {
  return execFileSync(lyceumBinary, [...arguments_, "--config", portal.file, "--data", portal.data], {
    input,
    encoding: "utf8",
    env: { ...cleanEnvironment(), ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
}

/** Makes an account, and gives back what it signs in with. */
export function addUser(portal, name, options = []) {
  const password = `${name}-has-a-long-password`;
  portal.users.push(name);
  if (portal.lends && isRoot) {
    execFileSync("useradd", ["--create-home", "--shell", "/bin/bash", `ly-${name}`]);
    lendCompiled(`ly-${name}`);
    options = [...options, "--unix-name", `ly-${name}`];
  }
  lyceum(portal, ["admin", "user", "add", name, ...options, "--password-stdin"], { input: `${password}\n` });
  return { name, password };
}

/** Asks the API with a token of `name`'s; answers the JSON. */
export async function ask(portal, name, path, { method = "GET", body } = {}) {
  portal.tokens ??= new Map();
  if (!portal.tokens.has(name)) {
    portal.tokens.set(name, lyceum(portal, ["admin", "token", "create", "--user", name]).trim());
  }
  const answer = await fetch(`${portal.api}/api/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${portal.tokens.get(name)}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text === "" ? null : JSON.parse(text);
}

/** The password that a first start leaves for `admin`; the sign-in page names the file. */
export function firstPassword(pageText) {
  const file = /\/\S*password\S*/i.exec(pageText)?.[0];
  if (!file || !existsSync(file)) throw new Error(`the page names no password file:\n${pageText}`);
  return readFileSync(file, "utf8").trim();
}

/** Waits until `what` answers something true, asking again and again. */
export async function until(what, seconds, describe = "it") {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await what();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`${describe} did not happen within ${seconds} s`);
    await later(150);
  }
}

// Sessions outlive the portal by design, so a test ends all of them before it ends the portal.
async function stopSessions(portal) {
  if (portal.child.exitCode !== null) return;
  const live = async () => {
    const pages = ["queued", "starting", "running", "stopping"].map((state) =>
      ask(portal, "admin", `/sessions?owner=*&limit=500&state=${state}`),
    );
    return (await Promise.all(pages)).flatMap((page) => page.items);
  };
  try {
    for (const session of await live()) await ask(portal, "admin", `/sessions/${session.id}`, { method: "DELETE" });
    await until(async () => (await live()).length === 0, 60, "the end of all sessions");
  } catch (error) {
    console.error(`could not stop the sessions: ${error.message}`);
  }
}

function environmentSection(environment) {
  if (environment === "built") return "";
  const kept = process.env.LYCEUM_TEST_PYTHON;
  if (environment === "kept" && !kept) throw new Error("LYCEUM_TEST_PYTHON says where the environment's Python is");
  if (environment === "none") return `[environments]\nbuild = "never"\n`;
  return `[environments]\nbuild = "never"\n[[environments.list]]\nname = "default"\npython = ${JSON.stringify(kept)}\n`;
}

// Nothing of the caller's own configuration may reach the portal.
function cleanEnvironment() {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("LYCEUM_")));
}

function hasAccount(name) {
  return readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .some((line) => line.startsWith(`${name}:`));
}

// What a portal keeps outside its data directory is named after that directory: the parents of
// run directories and of control groups, empty by now.
function removeLeftovers(data) {
  const instance = createHash("sha256").update(data).digest("hex").slice(0, 8);
  const run = isRoot ? "/run/lyceum" : `/tmp/lyceum-${process.getuid()}`;
  const groups = ["", "memory", "cpu", "cpuacct", "cpu,cpuacct", "pids", "unified"];
  for (const parent of [join(run, instance), ...groups.map((g) => join("/sys/fs/cgroup", g, `lyceum-${instance}`))]) {
    try {
      rmdirSync(parent);
    } catch (error) {
      if (error.code !== "ENOENT") console.error(`left behind: ${parent} (${error.code})`);
    }
  }
}

function removeAccount(name) {
  if (!isRoot || !hasAccount(name)) return;
  try {
    execFileSync("userdel", ["--remove", name], { stdio: "ignore" });
  } catch (error) {
    console.error(`could not remove the account ${name}: ${error.message}`);
  }
}

/** The first of `count` neighbouring ports that are free, below the range of outgoing ones. */
async function freePorts(count) {
  for (;;) {
    const first = 20_000 + Math.floor(Math.random() * 12_000);
    const free = await Promise.all(Array.from({ length: count }, (_, n) => isFree(first + n)));
    if (free.every(Boolean)) return first;
  }
}

function isFree(port) {
  return new Promise((done) => {
    const server = createServer();
    server.once("error", () => done(false));
    server.listen(port, "127.0.0.1", () => server.close(() => done(true)));
  });
}

function later(milliseconds) {
  return new Promise((done) => setTimeout(done, milliseconds));
}
