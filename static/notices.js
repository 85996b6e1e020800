// @ts-check
// What the reader should know of their sessions, on every page of the portal: a turn that has
// come, an end that is near. The stream says when that changes. Where notifications are
// wanted, a page goes on listening when it is not seen, since its reader may be in an app, and
// what happened to jobs is told as well, until they have seen it. What else has just ended is a
// message in the corner (`toasts.js`).

import { $, $$, announce, element, learnClock, markTitle, refreshTimes } from "./dom.js";
import { allowed, notify, offer, untold } from "./notify.js";
import { join } from "./stream.js";
import { show } from "./toasts.js";

const place = $("#notices");
let leave = null,
  shown = "",
  asked = 0;

function hear(message) {
  if (message.type === "open" && message.user !== document.body.dataset.user) return draw("");
  if (message.type === "open" || message.notices) refresh();
}

async function refresh() {
  const mine = ++asked;
  const answer = await fetch(`/notices?toasts=true${allowed() ? "&jobs=true" : ""}`, {
    headers: { Accept: "text/html" },
  }).catch(() => null);
  // The last question's answer counts.
  if (!answer?.ok || answer.redirected || mine !== asked) return;
  learnClock(answer);
  draw(await answer.text());
}

function draw(text) {
  const made = new DOMParser().parseFromString(text, "text/html"),
    toasts = $$("[data-toast]", made);
  for (const toast of toasts) toast.remove();
  show(toasts, send);
  if (made.body.innerHTML === shown) return;
  shown = made.body.innerHTML;
  const focused = place.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  place.replaceChildren(...$$("[data-notice]", made));
  refreshTimes(place);
  if (focused) $(`[aria-label="${CSS.escape(focused)}"]`, place)?.focus();
  const notices = $$("[data-notice]", place);
  markTitle(notices.length);
  seeWhatIsHere();
  const told = notices.filter((notice) => notice.dataset.title);
  if (told.length && allowed()) tell(told);
}

async function tell(notices) {
  const keys = notices.map((notice) => notice.dataset.notice);
  // A browser that remembers nothing tells all: the same twice is one, by its tag.
  const fresh = await untold(keys).catch(() => keys);
  for (const notice of notices.filter((notice) => fresh.includes(notice.dataset.notice))) {
    notify(notice.dataset.title, $("[data-words]", notice).textContent, notice.dataset.notice, notice.dataset.href);
  }
}

// Whoever is at a job's page sees what became of it there.
function seeWhatIsHere() {
  if (document.hidden) return;
  const here = $$("[data-until-seen]", place).find((notice) => notice.dataset.href === location.pathname);
  if (here) send($("form", here)).catch(() => null);
}

function send(form) {
  const data = new FormData(form),
    seconds = Number(data.get("seconds")) || undefined;
  return fetch(`/api/v1${form.getAttribute("action")}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": String(data.get("csrf_token")) },
    body: JSON.stringify({ seconds, job: data.get("job") ?? undefined }),
  });
}

// "Extend", "Keep" and "Dismiss" where one is: the page stays as it is, and a refusal is told beside them.
place.addEventListener("submit", async (event) => {
  event.preventDefault();
  event.stopPropagation();
  const form = event.target,
    notice = form.closest("[data-notice]");
  const button = event.submitter;
  button.disabled = true;
  const answer = await send(form).catch(() => null);
  button.disabled = false;
  if (answer?.ok) {
    announce("Done");
    return refresh();
  }
  const problem = await answer?.json().catch(() => null);
  $("[role=alert]", notice)?.remove();
  $("p", notice).after(
    element("p", { role: "alert" }, problem?.detail ?? "The portal does not respond. Try again in a moment."),
  );
});

function come() {
  if (leave || (document.hidden && !allowed())) return;
  leave = join(place.dataset.stream, hear);
}

function go() {
  leave?.();
  leave = null;
}

function look() {
  if (document.hidden && !allowed()) return go();
  seeWhatIsHere();
  // What changed meanwhile is told by the stream's first word, or is asked for.
  if (leave) refresh();
  else come();
}

document.addEventListener("visibilitychange", look);
addEventListener("pagehide", go);
addEventListener("pageshow", (event) => {
  if (event.persisted) come();
});
const row = $("[data-notify]");
if (row) offer(row, look);
come();
