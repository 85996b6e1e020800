// @ts-check
// Lists of things: the filter answers while somebody types, without a reload; rows that are selected are counted, and the
// buttons below say what they do with how many. `live.js` keeps the rows fresh. Without this the filter is a form with a
// button, and the buttons below act on what is ticked.

import { $, $$, announce, bodyOf, enableCopying, refreshTimes } from "./dom.js";

// How long somebody may type on (ms).
const TYPING = 250;

const list = $("[data-list]"),
  filter = $("[data-filter]");
const noun = list?.dataset.list;
const chosen = new Set();
let [asked, typing] = [0, null];

const boxes = () => $$('[name="item"]', list);
const things = (count) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// What the filter says, as an address.
function address() {
  const query = new URLSearchParams();
  for (const [name, value] of bodyOf(filter)) if (value !== "") query.append(name, value);
  const text = query.toString();
  return text ? `${location.pathname}?${text}` : location.pathname;
}

// Puts the list of another address in this one's place.
async function load(href) {
  const turn = ++asked;
  list.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(href, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== asked) return;
    const fresh = $("[data-list]", page);
    // Signed out, or something is wrong: the page itself says it better.
    if (!fresh || !answer.ok) return location.assign(href);
    history.replaceState(history.state, "", href);
    const label = list.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const isOpen = $(".pick-columns[open]", list);
    list.replaceChildren(...fresh.childNodes);
    if (isOpen) $(".pick-columns", list)?.setAttribute("open", "");
    if (label) $(`[aria-label="${CSS.escape(label)}"]`, list)?.focus({ preventScroll: true });
    refreshTimes(list);
    enableCopying(list);
    announce(things($$("tbody tr", list).length));
  } catch {
    if (turn === asked) announce("The portal does not respond. The list shows the last data.");
  } finally {
    if (turn === asked) list.removeAttribute("aria-busy");
  }
}

// Counts, and names what the buttons do.
function count() {
  const all = boxes(),
    picked = all.filter((box) => box.checked);
  for (const box of $$("[data-all]", list)) {
    box.closest("label").hidden = all.length === 0;
    box.checked = all.length > 0 && picked.length === all.length;
    box.indeterminate = picked.length > 0 && picked.length < all.length;
  }
  const said = $("[data-selected]", list);
  const words = `${picked.length} of ${all.length} selected`;
  if (said && said.textContent !== words) said.textContent = words;
  for (const button of $$("[data-verb]", list)) {
    const does = picked.length ? `${button.dataset.verb} ${things(picked.length)}` : button.dataset.verb;
    const place = $("[data-words]", button) ?? button;
    if (place.textContent !== does) place.textContent = does;
    button.disabled = picked.length === 0;
    if (button.dataset.ask) button.dataset.confirm = `${does}? ${button.dataset.ask}`;
  }
}

function enhance() {
  list.addEventListener("change", ({ target }) => {
    if ("all" in target.dataset) for (const box of boxes()) box.checked = target.checked;
    else if (target.name !== "item") return;
    for (const box of boxes()) {
      if (box.checked) chosen.add(box.value);
      else chosen.delete(box.value);
    }
    count();
  });
  // What is drawn anew, here or by `live.js`, keeps what was selected.
  new MutationObserver((changes) => {
    if (!changes.some(({ addedNodes }) => [...addedNodes].some((node) => node.nodeType === Node.ELEMENT_NODE))) return;
    for (const box of boxes()) if (chosen.has(box.value) && !box.checked) box.checked = true;
    count();
  }).observe(list, { childList: true, subtree: true });
  // The browser may have kept ticks over a reload.
  for (const box of boxes()) if (box.checked) chosen.add(box.value);
  count();
}

function enhanceFilter() {
  const button = $("[data-find]", filter);
  if (button) button.hidden = true;
  filter.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    clearTimeout(typing);
    load(address());
  });
  filter.addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    typing = setTimeout(() => load(address()), ["search", "text"].includes(target.type) ? TYPING : 0);
  });
}

if (list) {
  enhance();
  if (filter) enhanceFilter();
}
