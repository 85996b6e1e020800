// @ts-check
// What a person chose for their charts in this browser: how large charts are, which ones are
// pinned, which sections are folded, and what the tooltip lists. What belongs to a view, and so to
// its link, is in view.js.

const NAME = "lyceum-charts";
// More names are not kept: the oldest are dropped.
const MAX_NAMES = 200;

export const SIZES = ["small", "medium", "large"];
export const ORDERS = ["near", "high", "low"];
export const LIMITS = [5, 10, 20];
export const DEFAULTS = Object.freeze({
  size: "medium",
  pinned: Object.freeze([]),
  folded: Object.freeze([]),
  order: "near",
  limit: 5,
});

// The choices that a stored text holds. What is not understood is as by default.
export function parseKept(text) {
  let given = {};
  try {
    given = JSON.parse(text ?? "{}") ?? {};
  } catch {
    /* as by default */
  }
  const one = (name, all) => (all.includes(given[name]) ? given[name] : DEFAULTS[name]);
  const names = (list) =>
    (Array.isArray(list) ? list.filter((name) => typeof name === "string") : []).slice(-MAX_NAMES);
  return {
    size: one("size", SIZES),
    pinned: names(given.pinned),
    folded: names(given.folded),
    order: one("order", ORDERS),
    limit: one("limit", LIMITS),
  };
}

// A list with a name added, or without it where it was there.
export const toggled = (list, name) => (list.includes(name) ? list.filter((other) => other !== name) : [...list, name]);

// Where a browser stores nothing, the choices last as long as the page.
export function makeKept() {
  let now = parseKept(read());
  return {
    get: () => now,
    set(change) {
      now = parseKept(JSON.stringify({ ...now, ...change }));
      try {
        localStorage.setItem(NAME, JSON.stringify(now));
      } catch {
        /* lasts as long as the page */
      }
    },
  };
}

function read() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}
