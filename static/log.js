// @ts-check
// A log in a page: followed by the server's own stream, which is resumed where it broke, so that nothing is
// missed and nothing shown twice, and drawn as a terminal shows it.

import { backOff, element, seen } from "./dom.js";

// A page holds so much of a log; “Plain text” has all that is kept.
const MOST = 512 * 1024;
// The server says something every 15 s.
const SILENCE = 40_000;

// What an empty log shows.
export function nothing(log) {
  return log.dataset.follow === "yes" ? "No output yet." : "No output.";
}

// What is left of text once carriage returns and backspaces have done their work: of a line that is written
// over itself, as a progress bar is, the last state. One that is about to be written over still shows, so text
// can be settled piece by piece.
export function settle(text) {
  if (!/[\r\b]/.test(text)) return text;
  return text.replace(/\r+\n/g, "\n").split("\n").map(settleLine).join("\n");
}

function settleLine(line) {
  if (!/[\r\b]/.test(line)) return line;
  const states = line.split("\r");
  const isWaiting = states.length > 1 && states.at(-1) === "";
  const state = states.findLast((each) => each !== "") ?? "";
  if (!state.includes("\b")) return isWaiting ? `${state}\r` : state;
  const characters = [];
  for (const character of state) {
    if (character === "\b") characters.pop();
    else characters.push(character);
  }
  return characters.join("") + (isWaiting ? "\r" : "");
}

// Settled text as nodes: colours of SGR sequences as classes, all other control sequences dropped.
export function logNodes(text) {
  const nodes = [];
  let classes = "";
  const plain = settle(text).replace(/\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g, "");
  for (const part of plain.split(/(\x1b\[[0-9;?]*[ -/]*[@-~])/)) {
    const codes = /^\x1b\[([0-9;]*)m$/.exec(part);
    if (codes) {
      for (const code of codes[1].split(";").map(Number)) {
        if (code === 0 || code === 39) classes = "";
        else if (code === 1) classes += " bold";
        else if (30 <= code && code <= 37) classes = `a${code - 30}`;
        else if (90 <= code && code <= 97) classes = `a${code - 90}`;
      }
    } else if (part && !part.startsWith("\x1b[")) {
      const words = part.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
      nodes.push(classes ? element("span", { class: classes.trim() }, words) : words);
    }
  }
  return nodes;
}

// Draws into the element, which scrolls along as long as its reader is at its end.
export function draw(log, nodes) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  log.replaceChildren(...nodes);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

// The last lines as they are now.
export async function once(address, hear) {
  const answer = await fetch(`${address}?tail=10000`, { headers: { Accept: "text/plain" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  hear(settle(await answer.text()).slice(-MOST));
}

// Turns the lines of an event stream into its events.
export function eventReader(hear) {
  let rest = "",
    event = {};
  return (piece) => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [, field, value] = /^([a-z]+): ?(.*)$/s.exec(line) ?? [];
      if (field) event[field] = value;
      if (line !== "") continue;
      if (event.event) hear(event);
      event = {};
    }
  };
}

// What an event adds to the text.
function words({ event, data }) {
  if (event === "log") return JSON.parse(data);
  if (event === "dropped") return `\n— ${JSON.parse(data).bytes} bytes of the log were dropped here —\n`;
  if (event === "restart") return "\n— the log starts over here —\n";
  if (event === "attempt") return `\n— attempt ${JSON.parse(data).attempt} —\n`;
  return "";
}

// Follows a log to its end: `hear` gets all of its text that a page holds, whenever it grew, and `say` how it stands.
export async function follow(address, hear, say) {
  const pause = backOff(1000, 20_000);
  let last = null,
    text = "";

  // One reading of the stream; true when the log has come to its end.
  async function listen() {
    const request = new AbortController();
    let silence = null,
      isOver = false;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => request.abort(), SILENCE);
    };
    const headers = { Accept: "text/event-stream", ...(last !== null && { "Last-Event-ID": last }) };
    const read = eventReader((event) => {
      if (event.event === "end") isOver = true;
      text = settle(text + words(event)).slice(-MOST);
      last = event.id ?? last;
    });
    try {
      alive();
      const answer = await fetch(last === null ? `${address}?tail=10000` : address, {
        headers,
        cache: "no-store",
        signal: request.signal,
      });
      if (!answer.ok) throw new Error(`${answer.status}`);
      if (last === null) text = "";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      say("following");
      while (!isOver) {
        const { value, done } = await reader.read();
        if (done) return false;
        alive();
        pause.reset();
        const before = text;
        read(value);
        if (text !== before) hear(text);
      }
      return true;
    } finally {
      clearTimeout(silence);
      request.abort();
    }
  }

  for (;;) {
    await seen();
    try {
      if (await listen()) break;
    } catch {
      say("cannot be loaded at the moment");
    }
    await pause.wait();
  }
  say("final output");
}
