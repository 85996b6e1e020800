// @ts-check
// Keeps a page fresh by the browser's one event stream. A message about a session fetches its
// card anew; when its state changed, or it is new here, the page's own live regions are
// fetched too. Pages that are not seen hear nothing and catch up when they are seen again.

import { $, $$, announce, element, enableCopying, learnClock, refreshTimes, setTitle } from "./dom.js";
import { join } from "./stream.js";

const stream = $("[data-stream]").dataset.stream;
const pending = new Map();
let leave = null,
  connected = false;
// What this page shows is no older than this.
let fresh = performance.timeOrigin;

function hear(message) {
  if (message.type === "open") {
    // Somebody else has signed in meanwhile, in another tab.
    if (message.user !== document.body.dataset.user) return location.reload();
    connected = true;
    tell(null);
    if (fresh <= message.heard) soon("page", refreshPage);
  } else if (message.type === "lost") {
    connected = false;
    tell("lost");
  } else if (message.type === "signed-out") {
    connected = false;
    tell("signed-out");
  } else if (["environment", "announcements"].includes(message.type)) soon("page", refreshPage);
  else if (message.type === "session" && message.id) soon(message.id, () => refreshCard(String(message.id)));
  else if (message.type === "job" && message.id) hearOfJob(String(message.id));
}

// Of one job's page only that job is news; on the page of a session none is.
function hearOfJob(id) {
  const only = $("[data-job][data-live]");
  if (only ? only.dataset.job === id : $('[data-live="jobs"]')) soon("page", refreshPage);
}

let told = null,
  telling = null;

// Says what there is to say about the line itself, and nothing of a short break.
function tell(what) {
  if (told === what) return;
  told = what;
  clearTimeout(telling);
  if (what === "lost") telling = setTimeout(show, 3000, what);
  else show(what);
}

function show(what) {
  $("#line")?.remove();
  for (const card of $$("[data-card]")) card.classList.toggle("stale", what !== null);
  if (what === "lost")
    document.body.append(element("p", { id: "line", class: "line", role: "status" }, "Not connected, trying again…"));
  if (what === "signed-out") {
    const next = encodeURIComponent(location.pathname + location.search);
    const words = element(
      "span",
      {},
      "You are signed out. This page is no longer updated. ",
      element("a", { href: `/login?next=${next}` }, "Sign in"),
      " to continue.",
    );
    $("#main").prepend(element("p", { id: "line", class: "note warn", role: "status" }, words));
  }
}

// Many messages in a moment make one fetch; while one is under way, one more follows it.
function soon(key, work) {
  const state = pending.get(key);
  if (state) {
    state.again = true;
    return;
  }
  const mine = { again: false };
  pending.set(key, mine);
  setTimeout(async () => {
    try {
      await work();
    } catch (error) {
      console.warn("not refreshed:", error);
    }
    pending.delete(key);
    if (mine.again) soon(key, work);
  }, 150);
}

async function refreshCard(id) {
  const only = $("[data-session]");
  if (only && only.dataset.session !== id) return;
  const old = $(`[data-card="${CSS.escape(id)}"]`);
  if (!old) return refreshPage();
  const answer = await fetch(`/sessions/${encodeURIComponent(id)}/card`, { headers: { Accept: "text/html" } });
  if (!answer.ok) return refreshPage();
  learnClock(answer);
  const made = $("[data-card]", new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (!made) return;
  const name = made.getAttribute("aria-label");
  const [changed, renamed] = [made.dataset.state !== old.dataset.state, name !== old.getAttribute("aria-label")];
  await released();
  if (shape(made) !== shape(old)) replace(old, made);
  if (changed) announce(`${name}: ${$(".state", made)?.textContent ?? ""}`);
  if (changed || renamed) await refreshPage();
}

// Draws every live region of this page anew from its own address.
async function refreshPage() {
  const asked = Date.now();
  const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
  if (answer.redirected && answer.url.includes("/login")) return tell("signed-out");
  if (!answer.ok) return;
  fresh = asked;
  learnClock(answer);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  await released();
  setTitle(page.title);
  for (const region of $$("[data-live]")) {
    const made = $(`[data-live="${CSS.escape(region.dataset.live)}"]`, page);
    if (made && shape(made) !== shape(region)) replace(region, made);
  }
  const [card, mine] = [$("[data-session] [data-card]", page), $("[data-session] [data-card]")];
  if (card && mine && shape(card) !== shape(mine)) replace(mine, card);
}

// A region without what this browser wrote into it: equal shapes need no new drawing, which
// would only take somebody's selection away.
function shape(region) {
  const copy = region.cloneNode(true);
  copy.classList.remove("stale");
  for (const time of $$("time[data-show]", copy)) {
    time.replaceChildren();
    time.removeAttribute("title");
    delete time.dataset.told;
  }
  for (const button of $$("[data-copy]", copy)) button.hidden = true;
  for (const card of $$(".stale", copy)) card.classList.remove("stale");
  return copy.outerHTML;
}

// A button that is replaced between press and release is never clicked, so nothing is replaced meanwhile. A release that
// nobody tells of, outside the window, is not waited for longer than this (milliseconds).
const LONGEST_PRESS = 3000;
let release = null,
  pressed = Promise.resolve();

function hold() {
  if (release) return;
  pressed = new Promise((done) => {
    release = done;
    setTimeout(done, LONGEST_PRESS);
  });
}

// The click itself comes first.
function letGo() {
  setTimeout(() => {
    release?.();
    release = null;
  });
}

addEventListener("pointerdown", hold, true);
addEventListener("keydown", (event) => event.key === " " && hold(), true);
for (const type of ["pointerup", "pointercancel", "keyup"]) addEventListener(type, letGo, true);
// Of the window, not of what had the focus before.
addEventListener("blur", letGo);

function released() {
  return pressed;
}

// Puts the new in the old one's place and keeps the keyboard where it was.
function replace(old, made) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const same = focused && [focused.getAttribute("href"), focused.getAttribute("aria-label")];
  const words = focused?.textContent.trim();
  document.adoptNode(made);
  refreshTimes(made);
  enableCopying(made);
  old.replaceWith(made);
  if (!focused) return;
  const heir = $$("a, button, input", made).find(
    (candidate) =>
      (same[0] && candidate.getAttribute("href") === same[0]) ||
      (same[1] && candidate.getAttribute("aria-label") === same[1]) ||
      (words && candidate.tagName === focused.tagName && candidate.textContent.trim() === words),
  );
  (heir ?? $("a, button", made))?.focus();
}

// What a session uses changes without a message: looked at now and then while it runs.
setInterval(
  () => {
    if (
      document.hidden ||
      !connected ||
      !$('[data-card][data-state="running"], [data-card][data-state="starting"], [data-refresh]')
    )
      return;
    const only = $("[data-session]");
    if (only) soon(only.dataset.session, () => refreshCard(only.dataset.session));
    else soon("page", refreshPage);
  },
  $("[data-session]") ? 4000 : 12_000,
);

// A page that says so changes by itself: every so many seconds.
const every = $("[data-every]")?.dataset.every;
if (every)
  setInterval(() => {
    if (!document.hidden && connected) soon("page", refreshPage);
  }, 1000 * every);

function come(back) {
  if (document.hidden || leave) return;
  leave = join(stream, hear);
  if (back) soon("page", refreshPage);
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
