// @ts-check
// One job's log: followed while it lives, searched without being fetched again. The rest of the page is kept
// fresh by `live.js`.

import { $ } from "./dom.js";
import { draw, follow, logNodes, nothing, once } from "./log.js";

const log = $("[data-log]"), state = $("[data-log-state]");
const search = $("[data-log-search]"), found = $("[data-log-found]");
let text = "";

function show() {
  const wanted = search.value.trim().toLowerCase();
  const lines = wanted ? text.split("\n").filter((line) => line.toLowerCase().includes(wanted)) : null;
  found.textContent = lines ? `${lines.length} ${lines.length === 1 ? "line" : "lines"}` : "";
  const shown = lines ? lines.join("\n") : text;
  draw(log, shown ? logNodes(shown) : [lines ? "No lines match." : nothing(log)]);
}

let due = false;
function hear(now) {
  text = now;
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; show(); });
}

search.addEventListener("input", show);
log.scrollTop = log.scrollHeight;
if (log.dataset.follow === "yes") follow(log.dataset.log, hear, (words) => { state.textContent = words; });
else once(log.dataset.log, hear).catch(() => {});
