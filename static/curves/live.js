// @ts-check
// Follows what is written to one run while the page is seen: new points as they come, resumed
// where it was left by `Last-Event-ID`, so that nothing is lost and nothing comes twice.

import { backOff } from "../dom.js";

// The portal says something every 15 s; whoever hears nothing for this long has lost it.
const SILENCE = 40_000;

// `heard(kind, data, id, before)` is called for each event; answers a function that ends it.
export function follow(address, since, heard) {
  const pause = backOff(1000, 20_000);
  let [id, closed, request] = [String(since), false, null];

  async function attempt() {
    request = new AbortController();
    let silence = null;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => request.abort(), SILENCE);
    };
    alive();
    try {
      const answer = await fetch(address, {
        headers: { Accept: "text/event-stream", "Last-Event-ID": id },
        cache: "no-store",
        signal: request.signal,
      });
      if (answer.status === 401 || answer.status === 404) return false;
      if (!answer.ok) return true;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const events = parser((event) => {
        pause.reset();
        const before = id;
        if (event.id) id = event.id;
        heard(event.name, JSON.parse(event.data), Number(id), Number(before));
      });
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return true;
        alive();
        events(value);
      }
    } catch {
      return true;
    } finally {
      clearTimeout(silence);
      request.abort();
    }
  }

  async function run() {
    while (!closed && (await attempt()) && !closed) await pause.wait();
  }
  const look = () => {
    if (document.hidden) {
      closed = true;
      request?.abort();
      pause.skip();
    } else if (closed) {
      closed = false;
      run();
    }
  };
  document.addEventListener("visibilitychange", look);
  if (document.hidden) closed = true;
  else run();
  return () => {
    document.removeEventListener("visibilitychange", look);
    closed = true;
    request?.abort();
    pause.skip();
  };
}

// Takes pieces of an event stream and calls back with each whole event.
export function parser(event) {
  let [rest, name, data, id] = ["", "message", [], ""];
  return (piece) => {
    const lines = (rest + piece).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) event({ name, data: data.join("\n"), id });
        [name, data, id] = ["message", [], ""];
      } else if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("id:")) id = line.slice(3).trim();
      else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
    }
  };
}
