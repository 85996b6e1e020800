// Browser notifications: whether this browser may and its reader wants them, and that each is
// told once, however many pages are open and however often they are loaded. The wish and what
// was told are this browser's own; permission is asked by a click alone.

import { $ } from "./dom.js";

const WANTED = "lyceum-notify";
const TOLD = "lyceum-told";
// Of what was told so many are remembered; older ones are over.
const MEMORY = 200;

// A browser that keeps nothing for us has no wishes either.
function read(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

function write(name, value) {
  try { localStorage.setItem(name, value); } catch { /* it is told again, then */ }
}

export function allowed() {
  return globalThis.Notification?.permission === "granted" && read(WANTED) === "yes";
}

// Runs `work` with whatever of `keys` this browser has told to nobody yet, and remembers them.
export async function once(keys, work) {
  const choose = () => {
    let told;
    try { told = JSON.parse(read(TOLD)) ?? []; } catch { told = []; }
    const fresh = keys.filter((key) => !told.includes(key));
    if (fresh.length) write(TOLD, JSON.stringify([...told, ...fresh].slice(-MEMORY)));
    return fresh;
  };
  // Two pages must not choose at once. Where there are no locks there are no notifications.
  work(navigator.locks ? await navigator.locks.request(TOLD, choose) : choose());
}

// Shows a notification that leads to a page of ours.
export function notify(title, body, tag, href) {
  try {
    const shown = new Notification(title, { body, tag });
    shown.onclick = () => { focus(); location.assign(href); shown.close(); };
  } catch {
    // Some browsers of phones know the word and cannot do it.
  }
}

const STATES = {
  lacking: ["This browser shows no notifications from here; over plain HTTP none does.", null],
  denied: ["This browser blocks notifications from here. Its own settings for this page allow them again.", null],
  off: ["Off in this browser.", "Switch on"],
  on: ["On in this browser, while some page of the portal is open.", "Switch off"],
};

function state() {
  if (!globalThis.Notification || !isSecureContext) return "lacking";
  if (Notification.permission === "denied") return "denied";
  return allowed() ? "on" : "off";
}

// The row of the settings; `changed` hears of every change.
export function offer(row, changed) {
  const button = $("button", row);
  const show = () => {
    const [words, label] = STATES[state()];
    $("[data-notify-state]", row).textContent = words;
    button.hidden = label === null;
    button.textContent = label ?? "";
  };
  button.addEventListener("click", async () => {
    if (allowed()) write(WANTED, "no");
    else if ((await Notification.requestPermission()) === "granted") write(WANTED, "yes");
    show();
    changed();
  });
  addEventListener("storage", show);
  show();
}
