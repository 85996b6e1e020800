// @ts-check
// The log of one session, followed while it lives.

import { $ } from "./dom.js";
import { draw, follow, logNodes, nothing, once } from "./log.js";

const log = $("[data-log]"),
  state = $("[data-log-state]");
let text = "",
  due = false;

function hear(now) {
  text = now;
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    draw(log, text ? logNodes(text) : [nothing(log)]);
  });
}

if (log) {
  log.scrollTop = log.scrollHeight;
  if (log.dataset.follow === "yes")
    follow(log.dataset.log, hear, (words) => {
      state.textContent = words;
    });
  else once(log.dataset.log, hear).catch(() => {});
}
