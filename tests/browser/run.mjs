// Runs the journeys one after the other (a browser and a notebook server each want a core),
// and prints them as a list. `node run.mjs sign-in` runs the files whose name holds the word.

import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const wanted = process.argv[2] ?? "";
const files = readdirSync(here)
  .filter((name) => name.endsWith(".test.mjs") && name.includes(wanted))
  .sort()
  .map((name) => join(here, name));
if (files.length === 0) {
  console.error(`no journey's name holds “${wanted}”`);
  process.exit(2);
}

run({ files, concurrency: 1, timeout: 15 * 60 * 1000 })
  .on("test:fail", () => {
    process.exitCode = 1;
  })
  .compose(new spec())
  .pipe(process.stdout);
