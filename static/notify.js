// @ts-check
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
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    /* it is asked again, then */
  }
}

export function allowed() {
  return globalThis.Notification?.permission === "granted" && read(WANTED) === "yes";
}

// What was told is kept where a change is one step for all pages: of what one page wrote into
// localStorage another, in another process, may know nothing for a while yet.
function store() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(TOLD, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(TOLD);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

// Those of `keys` that nobody in this browser has told yet. They count as told from now on.
export async function untold(keys) {
  const database = await store();
  try {
    return await new Promise((resolve, reject) => {
      const change = database.transaction(TOLD, "readwrite"),
        kept = change.objectStore(TOLD);
      const asked = kept.get(TOLD);
      let fresh = [];
      asked.onsuccess = () => {
        const told = asked.result ?? [];
        fresh = keys.filter((key) => !told.includes(key));
        if (fresh.length) kept.put([...told, ...fresh].slice(-MEMORY), TOLD);
      };
      change.oncomplete = () => resolve(fresh);
      change.onabort = () => reject(change.error);
    });
  } finally {
    database.close();
  }
}

// Shows a notification that leads to a page of ours.
export function notify(title, body, tag, href) {
  try {
    const shown = new Notification(title, { body, tag });
    shown.onclick = () => {
      focus();
      location.assign(href);
      shown.close();
    };
  } catch {
    // Some browsers of phones know the word and cannot do it.
  }
}

const STATES = {
  lacking: ["This browser cannot show notifications from this portal. Over plain HTTP, no browser can.", null],
  denied: [
    "This browser blocks notifications from this portal. Allow them in the browser's settings for this page.",
    null,
  ],
  off: ["Off in this browser.", "Switch on"],
  on: ["On in this browser, while a page of the portal is open.", "Switch off"],
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
