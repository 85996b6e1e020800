// @ts-check
// The command palette: Ctrl-K or "/" opens one field that finds pages, actions and everything with a name. Loaded when it
// is first used. Arrow keys choose, Enter opens, Escape closes; "?" lists the keys.

import { element } from "./dom.js";

// Typing waits this long before the portal is asked (milliseconds).
const SEARCH_DELAY = 120;

const list = element("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" });
const field = element("input", {
  class: "input",
  type: "search",
  maxlength: 200,
  autocomplete: "off",
  spellcheck: "false",
  role: "combobox",
  placeholder: "Search sessions, jobs, runs, datasets, models, pages",
  "aria-label": "Search",
  "aria-controls": "palette-list",
  "aria-expanded": "true",
});
const line = element("p", { class: "hint", role: "status" });
const dialog = element("dialog", { id: "palette", "aria-label": "Search" }, field, list, line);
document.body.append(dialog);

let chosen = 0,
  asked = null,
  timer = null;
// What is listed belongs to an earlier text; Enter then waits for the answer.
let isStale = false,
  goesAtOnce = false;

const options = () => [...list.children];

function choose(index) {
  const all = options();
  if (!all.length) return field.removeAttribute("aria-activedescendant");
  chosen = (index + all.length) % all.length;
  for (const [at, option] of all.entries()) option.setAttribute("aria-selected", String(at === chosen));
  field.setAttribute("aria-activedescendant", all[chosen].id);
  all[chosen].scrollIntoView({ block: "nearest" });
}

function draw(items) {
  list.replaceChildren(
    ...items.map((item, at) =>
      element(
        "li",
        { id: `found-${at}`, role: "option", "aria-selected": "false", "data-href": item.href },
        element("span", { class: "chip" }, item.kind),
        " ",
        element("b", {}, element("bdi", {}, item.label)),
        " ",
        item.detail ? element("span", { class: "muted" }, element("bdi", {}, item.detail)) : null,
      ),
    ),
  );
  line.textContent = items.length ? "" : "No matches.";
  choose(0);
  isStale = false;
  if (goesAtOnce) go(options()[0]);
  goesAtOnce = false;
}

async function search() {
  asked?.abort();
  const mine = (asked = new AbortController());
  try {
    const answer = await fetch(`/search?find=${encodeURIComponent(field.value.trim())}`, {
      headers: { Accept: "application/json" },
      signal: mine.signal,
    });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    draw(await answer.json());
  } catch (error) {
    if (error.name !== "AbortError") line.textContent = "The portal does not respond at the moment.";
  }
}

function go(option, inNewTab) {
  if (!option) return;
  if (inNewTab) window.open(option.dataset.href, "_blank", "noopener");
  else location.assign(option.dataset.href);
}

field.addEventListener("input", () => {
  // An answer for the earlier text, were it still to come, would be taken for this one's.
  asked?.abort();
  isStale = true;
  goesAtOnce = false;
  clearTimeout(timer);
  timer = setTimeout(search, SEARCH_DELAY);
});

field.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    choose(chosen + step);
  }
  if (event.key === "Enter" && isStale) {
    event.preventDefault();
    goesAtOnce = true;
  } else if (event.key === "Enter") {
    event.preventDefault();
    go(options()[chosen], event.ctrlKey || event.metaKey);
  }
});
list.addEventListener("click", (event) => go(event.target.closest("[data-href]"), event.ctrlKey || event.metaKey));

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

export function open() {
  if (dialog.open) return;
  field.value = "";
  dialog.showModal();
  search();
}
