// Runs the journeys, three at a time (much of each is waiting), the longest first, and prints
// them as a list. `node run.mjs sign-in` runs the files whose name holds the word.

import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";

/** Journeys of several minutes: begun last, they would end long after all others. */
const isLong = (name) => Number(["gallery.test.mjs", "turns.test.mjs", "live.test.mjs"].includes(name));

const here = dirname(fileURLToPath(import.meta.url));
const wanted = process.argv[2] ?? "";
const files = readdirSync(here)
  .filter((name) => name.endsWith(".test.mjs") && name.includes(wanted))
  .sort((one, other) => isLong(other) - isLong(one) || one.localeCompare(other))
  .map((name) => join(here, name));
if (files.length === 0) {
  console.error(`no journey's name holds “${wanted}”`);
  process.exit(2);
}

run({ files, concurrency: 3, timeout: 40 * 60 * 1000 })
  .on("test:fail", () => {
    process.exitCode = 1;
  })
  .compose(new spec())
  .pipe(process.stdout);
