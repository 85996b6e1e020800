// @ts-check
// On every page: times in the reader's zone, copying, asking before a form is sent, one send
// for one press, and the theme. Without it every form still works.

import { $, $$, announce, ask, bodyOf, element, enableCopying, refreshTimes, targetOf } from "./dom.js";

document.documentElement.classList.add("js");
refreshTimes();
enableCopying();
setInterval(() => {
  if (!document.hidden) refreshTimes();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refreshTimes();
});

document.addEventListener("click", async (event) => {
  const button = targetOf(event).closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const text = button.dataset.copy ?? $(`#${button.dataset.copyFrom}`)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    announce("The browser did not allow copying. Select the text and copy it manually.");
    return;
  }
  announce("Copied");
  button.classList.add("copied");
  const icon = $("use", button),
    before = icon?.getAttribute("href");
  icon?.setAttribute("href", before.replace(/#.*/, "#check"));
  setTimeout(() => icon?.setAttribute("href", before), 1600);
});

// A file goes into a text field, and what it does is shown before it is done.
document.addEventListener("change", async (event) => {
  const { dataset, files } = targetOf(event);
  if (!dataset.into || !files?.length) return;
  if (files[0].size > 1e6) return announce("The file is larger than 1 MB. Split it.");
  const field = $(`#${dataset.into}`);
  field.value = await files[0].text();
  field.form.requestSubmit();
});

document.addEventListener("submit", async (event) => {
  const form = targetOf(event);
  if (form.method === "dialog") return;
  const button = /** @type {any} */ (event.submitter);
  const question = button?.dataset.confirm ?? form.dataset.confirm;
  if (question && !form.dataset.confirmed) {
    event.preventDefault();
    if (!(await ask(question, `Yes, ${button?.textContent.trim().toLowerCase() ?? "go on"}`))) return;
    form.dataset.confirmed = "yes";
    // What the form stood in may have been drawn anew meanwhile; a form outside the page is never sent.
    if (!form.isConnected) {
      form.hidden = true;
      document.body.append(form);
    }
    form.requestSubmit(button);
    return;
  }
  // What opens another page leaves this one as it is.
  if (button?.formTarget === "_blank") return;
  // Sent once: a second press of the same form would only be answered with the same thing.
  if (form.dataset.sent) return event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => {
    for (const one of $$("button[type=submit]", form)) one.disabled = true;
  });
});

// Back from another page, the browser may show this one as it was left.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of $$("form[data-sent]")) {
    delete form.dataset.sent;
    delete form.dataset.confirmed;
    for (const button of $$("button[type=submit]", form)) button.disabled = false;
  }
});

// On a phone the navigation is a drawer.
const menu = $(".menu");
menu?.addEventListener("click", () => {
  const isOpen = menu.closest(".side").classList.toggle("is-open");
  menu.setAttribute("aria-expanded", String(isOpen));
});

// Keys that work anywhere but in fields: the palette is loaded when it is first asked for.
const palette = $("[data-palette]"),
  script = palette?.dataset.palette;
const openPalette = async () => (await import(script)).open();
palette?.addEventListener("click", openPalette);
const KEYS = [
  ["Ctrl K or /", "Search pages, actions and everything with a name"],
  ["Enter", "On a choice or in a text field of a form: start or submit"],
  ["g then h, s, j, r, d, m", "Go to Home, Sessions, Jobs, Runs, Datasets or Models"],
  ["n", "New session"],
  ["?", "Show these keys"],
];
const PLACES = { h: "/", s: "/sessions", j: "/jobs", r: "/runs", d: "/datasets", m: "/models" };
let isGoing = false;
// Enter presses the button that belongs to the field, where that is not the first one of its form.
document.addEventListener("keydown", (event) => {
  const button =
    event.key === "Enter" &&
    !event.isComposing &&
    event.target instanceof HTMLInputElement &&
    event.target.dataset.enter;
  if (!button) return;
  event.preventDefault();
  document.getElementById(button)?.click();
});

document.addEventListener("keydown", (event) => {
  if (!palette || event.defaultPrevented || $("dialog[open]")) return;
  const isTyping = targetOf(event).closest("input, select, textarea, [contenteditable], [role=application]");
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const going = isGoing;
  isGoing = event.key === "g" && !going;
  if (going && PLACES[event.key]) location.assign(PLACES[event.key]);
  else if (event.key === "/") {
    event.preventDefault();
    openPalette();
  } else if (event.key === "n") location.assign("/sessions/new");
  else if (event.key === "?") showKeys();
});

function showKeys() {
  const rows = KEYS.flatMap(([keys, what]) => [element("dt", {}, element("kbd", {}, keys)), element("dd", {}, what)]);
  const close = element("button", { class: "btn", type: "submit" }, "Close");
  const dialog = element(
    "dialog",
    { class: "keys", "aria-labelledby": "keys" },
    element("h2", { id: "keys" }, "Keyboard shortcuts"),
    element("dl", {}, ...rows),
    element("form", { method: "dialog" }, close),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const theme = $("#theme-form");
theme?.addEventListener("change", async (event) => {
  document.documentElement.dataset.theme = targetOf(event).value;
  const answer = await fetch(theme.action, { method: "POST", body: bodyOf(theme), redirect: "manual" }).catch(
    () => null,
  );
  announce(answer && (answer.ok || answer.type === "opaqueredirect") ? "Theme saved" : "The theme could not be saved");
});
if (theme) $("button", theme).hidden = true;

$("#summary")?.focus();
