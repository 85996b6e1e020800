// @ts-check
// The strip of announcements on top of every page: fetched anew when the portal says that it
// has changed, and when a page is seen again. What is put aside goes without a reload.

import { $, announce, bodyOf, refreshTimes, targetOf } from "./dom.js";
import { join } from "./stream.js";

const stream = $('[src*="announcements.js"]').dataset.stream;
let leave = null,
  connected = false,
  pending = null;

function hear(message) {
  if (message.type === "announcements") soon();
  // Something may have been said while the line was broken.
  else if (message.type === "open" && !connected) {
    connected = true;
    if (performance.timeOrigin <= message.heard) soon();
  } else if (message.type === "lost" || message.type === "signed-out") connected = false;
}

// All pages of a portal hear it in the same moment, and need not come back in the same one.
function soon() {
  pending ??= setTimeout(refresh, Math.random() * 400);
}

async function refresh() {
  pending = null;
  const answer = await fetch("/announcements/strip", { headers: { Accept: "text/html" }, redirect: "manual" }).catch(
    () => null,
  );
  if (!answer?.ok) return;
  const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#announcements");
  if (made) replace(made);
}

// Whatever is there already stays as it is, so that it is not read out again.
function replace(made) {
  const strip = $("#announcements");
  const old = new Map([...strip.children].map((line) => [shape(line), line]));
  const children = [...made.children].map((line) => old.get(shape(line)) ?? document.adoptNode(line));
  for (const child of [...strip.children]) if (!children.includes(child)) child.remove();
  children.forEach((child, at) => {
    if (strip.children[at] !== child) strip.insertBefore(child, strip.children[at] ?? null);
  });
  refreshTimes(strip);
}

function shape(line) {
  const copy = line.cloneNode(true);
  for (const time of copy.querySelectorAll("time")) {
    time.replaceChildren();
    time.removeAttribute("title");
    delete time.dataset.told;
  }
  for (const field of copy.querySelectorAll("input, button")) field.remove();
  copy.querySelector("form")?.removeAttribute("data-sent");
  return copy.outerHTML;
}

document.addEventListener(
  "submit",
  async (event) => {
    const line = targetOf(event).closest("[data-announcement]");
    if (!line) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const form = targetOf(event);
    const answer = await fetch(form.action, { method: "POST", body: bodyOf(form), redirect: "manual" }).catch(
      () => null,
    );
    if (answer?.type !== "opaqueredirect") return announce("The announcement could not be dismissed. Try again.");
    const next = line.nextElementSibling ?? line.previousElementSibling;
    line.remove();
    (next?.querySelector("button") ?? $("#main")).focus();
    announce("Dismissed");
  },
  true,
);

function come(back) {
  if (document.hidden || leave) return;
  leave = join(stream, hear);
  if (back) soon();
}

function go() {
  leave?.();
  leave = null;
  connected = false;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) go();
  else come(true);
});
addEventListener("pagehide", go);
addEventListener("pageshow", (event) => {
  if (event.persisted) come(true);
});
come(false);
