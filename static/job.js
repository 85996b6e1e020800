// One job's log: followed by the server's own stream while it lives, searched without being
// fetched again. The rest of the page is kept fresh by `live.js`.

import { $, logNodes, seen, backOff } from "./dom.js";

const log = $("[data-log]"), state = $("[data-log-state]");
const search = $("[data-log-search]"), found = $("[data-log-found]");
// A page holds so much of a log; “As text” has more.
const MOST = 512 * 1024;
let text = "";

function draw() {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  const wanted = search.value.trim().toLowerCase();
  const lines = wanted ? text.split("\n").filter((line) => line.toLowerCase().includes(wanted)) : null;
  found.textContent = lines ? `${lines.length} ${lines.length === 1 ? "line" : "lines"}` : "";
  const shown = lines ? lines.join("\n") : text;
  log.replaceChildren(...(shown ? logNodes(shown) : [lines ? "No line has that." : "Nothing has been written yet."]));
  if (atEnd && !lines) log.scrollTop = log.scrollHeight;
}

let due = false;
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

async function once() {
  const answer = await fetch(`${log.dataset.log}?tail=10000`, { headers: { Accept: "text/plain" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  text = (await answer.text()).slice(-MOST);
  soon();
}

// One reading of the stream; true when the log has come to its end.
async function listen() {
  const answer = await fetch(`${log.dataset.log}?tail=10000`, { headers: { Accept: "text/event-stream" }, cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", event = "", first = true;
  state.textContent = "following";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return false;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("event:")) event = line.slice(6).trim();
      if (!line.startsWith("data:")) continue;
      if (event === "end") return true;
      text = ((first ? "" : text) + JSON.parse(line.slice(5))).slice(-MOST);
      first = false;
      soon();
    }
  }
}

async function follow() {
  const pause = backOff(1000, 20_000);
  for (;;) {
    await seen();
    try {
      if (await listen()) break;
      pause.reset();
    } catch {
      state.textContent = "cannot be read at the moment";
    }
    await pause.wait();
  }
  state.textContent = "as it ended";
}

search.addEventListener("input", draw);
log.scrollTop = log.scrollHeight;
if (log.dataset.follow === "yes") follow();
else once().catch(() => {});
