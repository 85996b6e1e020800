// @ts-check
// One job's log: followed while it lives, searched without being fetched again, or its last lines alone. The rest of the
// page is kept fresh by `live.js`.

import { $ } from "./dom.js";
import { draw, follow, logNodes, nothing, once } from "./log.js";

const log = $("[data-log]"),
  state = $("[data-log-state]");
const search = $("[data-log-search]"),
  found = $("[data-log-found]");
const count = Number(log.dataset.lines) || Infinity;
let text = "";

// The lines that are shown: those that match, or the last ones; null for all of them.
function lines() {
  const wanted = search?.value.trim().toLowerCase();
  if (wanted) return text.split("\n").filter((line) => line.toLowerCase().includes(wanted));
  return count === Infinity ? null : text.trimEnd().split("\n").slice(-count);
}

function show() {
  const some = lines(),
    isSearched = Boolean(search?.value.trim());
  if (found) found.textContent = isSearched ? `${some.length} ${some.length === 1 ? "line" : "lines"}` : "";
  const shown = some ? some.join("\n") : text;
  draw(log, shown ? logNodes(shown) : [isSearched ? "No lines match." : nothing(log)]);
}

let due = false;
function hear(now) {
  text = now;
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    show();
  });
}

search?.addEventListener("input", show);
log.scrollTop = log.scrollHeight;
if (log.dataset.follow === "yes")
  follow(log.dataset.log, hear, (words) => {
    state.textContent = words;
  });
else once(log.dataset.log, hear).catch(() => {});
