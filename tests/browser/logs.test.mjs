// The rules of a log in a page, without a browser: progress bars, backspaces, pieces that are cut anywhere.

import assert from "node:assert/strict";
import { test } from "node:test";

import "./modules.mjs";

const { settle, eventReader } = await import(new URL("../../static/log.js", import.meta.url));

const CASES = [
  ["10 %\r50 %\r100 %\nnext", "100 %\nnext"],
  ["dos\r\nline", "dos\nline"],
  ["100 %\r\r\nnext", "100 %\nnext"],
  ["50 %\r100 %\r", "100 %\r"],
  ["10 %\b\b\b\b20 %\n", "20 %\n"],
  ["\b\bx", "x"],
  ["first\nbar\r   \rlast\nend", "first\nlast\nend"],
  ["no control", "no control"],
];

test("the last state of a line that is written over itself stays", () => {
  for (const [raw, settled] of CASES) assert.equal(settle(raw), settled, JSON.stringify(raw));
});

test("text can be settled piece by piece", () => {
  for (const [raw, settled] of CASES) {
    for (let cut = 0; cut <= raw.length; cut++) {
      assert.equal(settle(settle(raw.slice(0, cut)) + raw.slice(cut)), settled, `${JSON.stringify(raw)} at ${cut}`);
    }
  }
});

test("events are read wherever the stream is cut", () => {
  const stream = 'event: log\ndata: "a\\rb"\nid: 1.4\n\n: heartbeat\n\nevent: end\ndata: ended\n\n';
  const expected = [
    { event: "log", data: '"a\\rb"', id: "1.4" },
    { event: "end", data: "ended" },
  ];
  for (let cut = 0; cut <= stream.length; cut++) {
    const heard = [];
    const read = eventReader((event) => heard.push(event));
    read(stream.slice(0, cut));
    read(stream.slice(cut));
    assert.deepEqual(heard, expected);
  }
});
