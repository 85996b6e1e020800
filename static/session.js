// The log of one session, followed by asking for its end while somebody looks. It scrolls
// along as long as the reader is at its end, and slows down when nothing is written.

import { $, logNodes, seen } from "./dom.js";

const log = $("[data-log]");
let shown = null;
let delay = 1000;

async function read() {
  const answer = await fetch(`${log.dataset.log}?tail=500`, { headers: { Accept: "text/plain" } });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const text = await answer.text();
  if (text === shown) return false;
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  shown = text;
  log.replaceChildren(...(text ? logNodes(text) : ["Nothing has been written yet."]));
  if (atEnd) log.scrollTop = log.scrollHeight;
  return true;
}

async function follow() {
  const state = $("[data-log-state]");
  while (true) {
    await seen();
    try {
      delay = (await read()) ? 1000 : Math.min(delay * 1.3, 5000);
      state.textContent = "following";
    } catch {
      delay = Math.min(delay * 2, 20_000);
      state.textContent = "cannot be read at the moment";
    }
    if (["ended", "failed"].includes($("[data-session] [data-card]")?.dataset.state)) break;
    await new Promise((resolve) => setTimeout(resolve, delay));
  }
  await read().catch(() => {});
  state.textContent = "as it ended";
}

if (log) {
  log.scrollTop = log.scrollHeight;
  if (log.dataset.follow === "yes") follow();
  else read().catch(() => {});
}
