// @ts-check
// Small helpers without side effects, shared by the other modules: elements, times, sizes,
// and the text of logs. Everything that comes from outside enters the page as text.

/** @type {(selector: string, within?: ParentNode) => any} */
export const $ = (selector, within = document) => within.querySelector(selector);
/** @type {(selector: string, within?: ParentNode) => any[]} */
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** What an event happened to. @type {(event: Event) => any} */
export const targetOf = (event) => event.target;

/** What a form sends. @type {(form: HTMLFormElement) => URLSearchParams} */
export const bodyOf = (form) => new URLSearchParams(/** @type {any} */ (new FormData(form)));

// element("a", { class: "btn", href: "/" }, "Home"): attributes by name, children as text or nodes.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

// `45 s`, `12 min`, `1 h 12 min`, `3 d 4 h`: as the server writes it.
export function humanDuration(seconds) {
  seconds = Math.max(0, Math.floor(seconds));
  const days = Math.floor(seconds / 86400),
    hours = Math.floor(seconds / 3600) % 24,
    minutes = Math.floor(seconds / 60) % 60;
  if (days) return hours ? `${days} d ${hours} h` : `${days} d`;
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  return minutes ? `${minutes} min` : `${seconds} s`;
}

const UNITS = { "": 1, b: 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

// Bytes of `4 GiB`, `512M`, `1.5 GB` (powers of 1024), or null.
export function parseSize(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?\s*$/i.exec(text);
  return match ? Math.floor(Number(match[1]) * UNITS[(match[2] ?? "").toLowerCase()]) : null;
}

export function humanSize(bytes) {
  for (const [at, name] of ["TiB", "GiB", "MiB", "KiB"].entries()) {
    const unit = 2 ** (40 - 10 * at);
    if (unit <= bytes) return `${Math.round((bytes / unit) * 10) / 10} ${name}`;
  }
  return `${bytes} B`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayAndClock = new Intl.DateTimeFormat(undefined, {
  weekday: "short",
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

// The server's clock minus ours, so that a wrong clock here shifts no “time left”.
let offset = 0;
export function learnClock(answer) {
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (!Number.isNaN(date) && 5000 < Math.abs(date - Date.now())) offset = date - Date.now();
}

/** @type {(at: number, show: string) => string} */
function told(at, show) {
  const since = (Date.now() + offset - at) / 1000;
  if (show === "left") return humanDuration(-since);
  if (show === "since") return humanDuration(since);
  if (show === "ago") return since < 10 ? "just now" : `${humanDuration(since)} ago`;
  const today = new Date(at).toDateString() === new Date(Date.now() + offset).toDateString();
  return (today ? clock : dayAndClock).format(at);
}

// Writes every <time data-show> in the reader's zone, as of now.
export function refreshTimes(within = document) {
  for (const time of $$("time[data-show]", within)) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const text = told(at, time.dataset.show);
    if (time.textContent !== text) time.textContent = text;
    if (!time.dataset.told) {
      time.title = exact.format(at);
      time.dataset.told = "yes";
    }
  }
}

let title = globalThis.document?.title,
  mark = "";

// The page's own title, and before it how much there is to know: a tab shows little more.
export function setTitle(words) {
  title = words;
  document.title = mark + title;
}

export function markTitle(count) {
  mark = count ? `(${count}) ` : "";
  document.title = mark + title;
}

// Waits `delay` milliseconds, then twice as long each time, at most `longest`; never exactly,
// so that many who wait for one thing do not come back together. `skip` ends the wait.
export function backOff(delay, longest) {
  let next = delay;
  let skip = (/** @type {any} */ _ = null) => {};
  return {
    wait() {
      const time = next * (0.5 + Math.random());
      next = Math.min(next * 2, longest);
      return new Promise((resolve) => {
        skip = resolve;
        setTimeout(resolve, time);
      });
    },
    skip: () => skip(),
    reset() {
      next = delay;
    },
  };
}

// Resolves at once where the page is seen, else when it is seen again.
/** @returns {Promise<void>} */
export function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) =>
    document.addEventListener("visibilitychange", function look() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    }),
  );
}

// Says something to people who listen instead of looking.
export function announce(words) {
  const place = $("#announce");
  if (place) place.textContent = words;
}

// Puts the buttons for copying to work where the browser can copy.
export function enableCopying(within = document) {
  if (!navigator.clipboard) return;
  for (const button of $$("[data-copy], [data-copy-from]", within)) button.hidden = false;
}

// Asks in a dialog; resolves to whether the answer was yes.
export function ask(question, yes) {
  return new Promise((resolve) => {
    const go = element("button", { class: "btn primary", value: "yes" }, yes);
    const no = element("button", { class: "btn", value: "no" }, "No, go back");
    const words = element("p", { id: "question" }, question);
    const dialog = element(
      "dialog",
      { "aria-labelledby": "question" },
      words,
      element("form", { method: "dialog" }, no, go),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
