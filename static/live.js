// Keeps a page fresh: one EventSource on `/events`. A message about a session fetches its
// card anew; when its state changed, or it is new here, the page's own live regions are
// fetched too. Hidden pages close the stream and catch up when they are seen again.

import { $, $$, announce, backOff, enableCopying, learnClock, refreshTimes, seen } from "./dom.js";

const pause = backOff(1000, 30_000);
const pending = new Map();
let source = null;

function connect() {
  source = new EventSource("/events");
  source.onopen = () => { pause.reset(); stale(false); };
  source.onmessage = (event) => { try { receive(JSON.parse(event.data)); } catch (error) { console.warn("not understood:", error); } };
  source.onerror = async () => {
    source?.close();
    source = null;
    stale(true);
    await pause.wait();
    await seen();
    if (!source) { connect(); refreshPage(); }
  };
}

function stale(is) {
  for (const card of $$("[data-card]")) card.classList.toggle("stale", is);
}

function receive(message) {
  if (message.type === "environment") soon("page", refreshPage);
  if (message.type === "session" && message.id) soon(message.id, () => refreshCard(String(message.id)));
}

// Many messages in a moment make one fetch; while one is under way, one more follows it.
function soon(key, work) {
  const state = pending.get(key);
  if (state) { state.again = true; return; }
  const mine = { again: false };
  pending.set(key, mine);
  setTimeout(async () => {
    try { await work(); } catch (error) { console.warn("not refreshed:", error); }
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
  const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-card]");
  if (!made) return;
  const changed = made.dataset.state !== old.dataset.state;
  if (shape(made) !== shape(old)) replace(old, made);
  if (changed) {
    announce(`${made.getAttribute("aria-label")}: ${$(".state", made)?.textContent ?? ""}`);
    await refreshPage();
  }
}

// Draws every live region of this page anew from its own address.
async function refreshPage() {
  const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
  if (answer.redirected && answer.url.includes("/login")) return location.reload();
  if (!answer.ok) return;
  learnClock(answer);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
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

// Puts the new in the old one's place and keeps the keyboard where it was.
function replace(old, made) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const same = focused && [focused.getAttribute("href"), focused.getAttribute("aria-label")];
  document.adoptNode(made);
  refreshTimes(made);
  enableCopying(made);
  old.replaceWith(made);
  if (!focused) return;
  const heir = $$("a, button", made).find((candidate) => (same[0] && candidate.getAttribute("href") === same[0]) || (same[1] && candidate.getAttribute("aria-label") === same[1]));
  (heir ?? $("a, button", made))?.focus();
}

// What a session uses changes without a message: looked at now and then while it runs.
setInterval(() => {
  if (document.hidden || !source || !$('[data-card][data-state="running"], [data-card][data-state="starting"]')) return;
  const only = $("[data-session]");
  if (only) soon(only.dataset.session, () => refreshCard(only.dataset.session));
  else soon("page", refreshPage);
}, $("[data-session]") ? 4000 : 12_000);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { source?.close(); source = null; }
  else if (!source) { connect(); refreshPage(); }
});
addEventListener("pagehide", () => { source?.close(); source = null; });
addEventListener("pageshow", (event) => { if (event.persisted && !source) { connect(); refreshPage(); } });
if (!document.hidden) connect();
