// @ts-check
// One event stream for all pages of a browser: a browser opens six connections to a server at
// most, and a page that holds one for ever takes it from the others. The stream lives in a
// shared worker (this same file); where there is none, in one of the pages that are seen,
// which the browser's locks elect; and where there are no locks either, in each page.
//
// Listeners hear objects: `open` (with `user`, and in `heard` when something was last heard,
// by this browser's clock), the server's own messages, `lost` and `signed-out`.

import { backOff } from "./dom.js";

// The server says something every 15 s. Whoever hears nothing for this long has lost it.
const SILENCE = 40_000;
// The worker keeps the stream for a page that comes soon after the last one has gone.
const LINGER = 5000;
const NAME = "lyceum-events";

// Follows the portal's events until `close()`, however often the line breaks.
function follow(hear) {
  // All browsers lose a portal that restarts in the same moment, and must not all come back so.
  const pause = backOff(2000, 30_000);
  let closed = false,
    request = null;
  const hurry = () => pause.skip();
  addEventListener("online", hurry);

  async function attempt() {
    request = new AbortController();
    let silence = null;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => request.abort(), SILENCE);
    };
    alive();
    try {
      const answer = await fetch("/events", {
        headers: { Accept: "text/event-stream" },
        cache: "no-store",
        redirect: "manual",
        signal: request.signal,
      });
      if (answer.type === "opaqueredirect" || answer.status === 401) return "signed-out";
      if (!answer.ok) return "lost";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "lost";
        // Comments count too: they are there to show that somebody is.
        alive();
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          if (!line.startsWith("data:")) continue;
          pause.reset();
          hear(JSON.parse(line.slice(5)));
        }
      }
    } catch {
      return "lost";
    } finally {
      clearTimeout(silence);
      request.abort();
    }
  }

  (async () => {
    while (!closed) {
      const how = await attempt();
      if (closed) break;
      hear({ type: how });
      if (how === "signed-out") break;
      await pause.wait();
    }
    removeEventListener("online", hurry);
  })();
  return {
    close() {
      closed = true;
      request?.abort();
      pause.skip();
    },
  };
}

// A line, what was last said about it, and when anything was.
function remember(tell) {
  const known = { line: null, state: null, heard: 0 };
  const hear = (message) => {
    known.heard = Date.now();
    if (["open", "lost", "signed-out"].includes(message.type)) known.state = message;
    tell(known.current(message));
  };
  known.current = (message = known.state) => message && { ...message, heard: known.heard };
  known.open = () => {
    known.line ??= follow(hear);
  };
  known.close = () => {
    known.line?.close();
    known.line = known.state = null;
  };
  return known;
}

// In the shared worker: pages say `join` when they are seen and `leave` when they are not.
function serve() {
  const ports = new Set();
  const known = remember((message) => {
    for (const port of ports) port.postMessage(message);
  });
  let leaving = null;
  globalThis.onconnect = ({ ports: [port] }) => {
    port.onmessage = ({ data }) => {
      clearTimeout(leaving);
      if (data === "join") {
        ports.add(port);
        // A page that comes now may be one that has signed in again.
        if (known.state?.type === "signed-out") known.close();
        known.open();
        if (known.state) port.postMessage(known.current());
      } else {
        ports.delete(port);
        if (ports.size === 0) leaving = setTimeout(known.close, LINGER);
      }
    };
  };
}

function joinWorker(address, hear) {
  const worker = new SharedWorker(address, { type: "module", name: NAME });
  const port = worker.port;
  let left = false;
  let leave = () => {
    port.postMessage("leave");
    port.close();
  };
  // A browser that shares no modules says so here.
  worker.onerror = () => {
    if (!left) leave = joinPages(hear);
  };
  port.onmessage = ({ data }) => hear(data);
  port.postMessage("join");
  return () => {
    left = true;
    leave();
  };
}

// Without a worker: whoever holds the lock has the stream and passes on what it says. Pages
// that are not seen have left, so that no sleeping page ever leads.
function joinPages(hear) {
  if (!navigator.locks) {
    const known = remember(hear);
    known.open();
    return known.close;
  }
  const channel = new BroadcastChannel(NAME);
  const known = remember((message) => {
    channel.postMessage(message);
    hear(message);
  });
  channel.onmessage = ({ data }) => {
    if (data !== "join") return hear(data);
    if (known.state?.type === "signed-out") {
      known.close();
      known.open();
    } else if (known.state) channel.postMessage(known.current());
  };
  const left = new AbortController();
  let done = null;
  navigator.locks
    .request(
      NAME,
      { signal: left.signal },
      () =>
        new Promise((resolve) => {
          done = resolve;
          known.open();
        }),
    )
    .catch(() => {});
  channel.postMessage("join");
  return () => {
    left.abort();
    known.close();
    channel.close();
    done?.();
  };
}

// Hears the stream until the answer is called. `address` is this file's own, with its hash:
// pages of another version have another worker.
export function join(address, hear) {
  return globalThis.SharedWorker ? joinWorker(address, hear) : joinPages(hear);
}

if (globalThis.constructor.name === "SharedWorkerGlobalScope") serve();
