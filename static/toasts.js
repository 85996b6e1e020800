// @ts-check
// Messages in the corner of the page that is seen: what has just ended in the background. Each is shown once in a
// browser, however many pages are open and however often they are loaded, and goes by itself unless somebody is at it.

import { $, $$, refreshTimes } from "./dom.js";
import { untold } from "./notify.js";

// How long one stays (ms), and how many are shown at once.
const LIFE = 12_000;
const MOST = 5;

const place = $("#toasts");

// Shows those of these messages that this browser has not shown yet. `send` sends the form of one that is closed.
export async function show(toasts, send) {
  // A page that is not seen leaves them to one that is, or to itself when it is seen again.
  if (!place || document.hidden || toasts.length === 0) return;
  const fresh = await untold(toasts.map((toast) => toast.dataset.toast)).catch(() => []);
  for (const toast of toasts) {
    // Whoever is at what has ended sees it there.
    if (!fresh.includes(toast.dataset.toast) || toast.dataset.href === location.pathname) continue;
    place.append(document.adoptNode(toast));
    refreshTimes(toast);
    live(toast, send);
  }
  for (const old of $$(".toast", place).slice(0, -MOST)) old.remove();
}

// It goes after a while without a pointer over it and without the focus in it.
function live(toast, send) {
  let timer = null;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => toast.remove(), LIFE);
  };
  const stay = () => clearTimeout(timer);
  const left = () => {
    if (!toast.matches(":hover, :focus-within")) wait();
  };
  const close = () => {
    stay();
    const hadFocus = toast.contains(document.activeElement);
    const next = toast.nextElementSibling ?? toast.previousElementSibling;
    toast.remove();
    if (hadFocus) (next ? $("button", next) : $("#main")).focus();
  };
  for (const name of ["pointerenter", "focusin"]) toast.addEventListener(name, stay);
  for (const name of ["pointerleave", "focusout"]) toast.addEventListener(name, () => setTimeout(left));
  toast.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  toast.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    send(event.target).catch(() => null);
    close();
  });
  $("button[type=button]", toast)?.addEventListener("click", close);
  wait();
}
