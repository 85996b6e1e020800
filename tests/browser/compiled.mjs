// What JAX compiled in earlier tests, lent to the homes of people who train, and kept afterwards:
// each test's accounts are new, and compiling the same few networks again takes half of the time.
// The folder is LYCEUM_TEST_COMPILED's, which `./test` keeps from one run to the next.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

const kept = process.env.LYCEUM_TEST_COMPILED;
const placeOf = (account) => join(homeOf(account), ".cache", "lyceum", "jax");

/** Copies what is kept into the home of an account. */
export function lendCompiled(account) {
  if (!kept || !existsSync(kept)) return;
  const place = placeOf(account);
  mkdirSync(place, { recursive: true, mode: 0o700 });
  cpSync(kept, place, { recursive: true });
  execFileSync("chown", ["-R", `${account}:`, join(homeOf(account), ".cache")]);
}

/** Keeps what the account's trainings have compiled besides. */
export function keepCompiled(account) {
  if (kept && existsSync(placeOf(account))) cpSync(placeOf(account), kept, { recursive: true, force: false });
}

function homeOf(account) {
  const line = execFileSync("getent", ["passwd", account], { encoding: "utf8" });
  return line.split(":")[5];
}
