// @ts-check
// The table of results: its tools act at once, Shift adds a second column to the order, and the curves
// of the runs that are ticked are drawn below it. The portal draws the table; the address holds all
// of it. Without this the tools are a form and the headings are links.

import { $, $$, announce, element, refreshTimes, seen } from "../dom.js";
import { start } from "./index.js";
import { pressed } from "./results.js";

// How long somebody may type on, and how often rows that grow are asked for (ms).
const TYPING = 250,
  FRESH = 15_000;
// More lines than this nobody tells apart.
const MOST = 50;

const tools = $("#tools"),
  place = $("[data-results]"),
  below = $("[data-picked]");
const picked = new Set((below?.dataset.picked ?? "").split(",").filter(Boolean));
let [asked, typing, drawn] = [0, null, ""];

// What the tools say, as a query.
function query() {
  const columns = $("[data-columns]", tools);
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(tools)) {
    if (
      value === "" ||
      (name === "step" && tools.elements.value.value !== "at") ||
      (name === "column" && !("chosen" in columns.dataset))
    )
      continue;
    query.append(name, String(value));
  }
  for (const id of picked) query.append("pick", id);
  return query;
}

// How the charts are looked at stays as it is.
function address(query) {
  const all = new URLSearchParams(query);
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (["x", "log", "logx", "smooth", "clip", "zoom", "find", "only", "off"].includes(name)) all.append(name, value);
  }
  const text = all.toString();
  return text ? `?${text}` : location.pathname;
}

async function load(query) {
  const turn = ++asked;
  place.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(`/runs?${query}`, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== asked) return;
    const fresh = $("[data-results]", page);
    // Signed out, or something is wrong here: the page itself says it better.
    if (!fresh) return location.assign(`/runs?${query}`);
    if (answer.ok) history.replaceState(history.state, "", address(query));
    const says = $("#where-says"),
      told = $("#where-says", page);
    says.className = told.className;
    says.textContent = told.textContent;
    tools.elements.where.setAttribute("aria-invalid", String(!answer.ok));
    if (!answer.ok) return;
    for (const input of $$("input[type=hidden]", tools)) input.remove();
    tools.prepend(...$$("#tools input[type=hidden]", page));
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    const scrolled = $("[aria-label=Results]", place)?.scrollLeft ?? 0;
    place.replaceChildren(...fresh.childNodes);
    const panel = $("[aria-label=Results]", place);
    if (panel) panel.scrollLeft = scrolled;
    refocus(focused);
    refreshTimes();
    say();
  } catch {
    if (turn === asked) $("#where-says").textContent = "The portal is not reachable. The table shows the last data.";
  } finally {
    if (turn === asked) place.removeAttribute("aria-busy");
  }
}

function refocus(before) {
  if (!before) return;
  const { key } = before.dataset;
  const label = before.getAttribute("aria-label");
  const same = key ? `[data-key="${CSS.escape(key)}"]` : label ? `[aria-label="${CSS.escape(label)}"]` : null;
  if (same) $(same, place)?.focus({ preventScroll: true });
}

function say() {
  const words = $("[data-picked-says]", place);
  if (words)
    words.textContent = picked.size
      ? `${picked.size} ${picked.size === 1 ? "run" : "runs"} selected; their curves are below.`
      : "Select runs to see their curves together.";
  const all = $("[data-all-runs]", place);
  if (!all) return;
  all.textContent = picked.size ? "Clear selection" : "Select all";
  all.hidden = !picked.size && boxes().length === 0;
}

function boxes() {
  return $$("input[name=id]", place);
}

// Selects the runs of this page, as many as can be drawn together, or nothing where some are selected.
function toggleAll() {
  const all = picked.size ? [] : boxes().slice(0, MOST);
  picked.clear();
  for (const { value } of all) picked.add(value);
  for (const box of boxes()) box.checked = picked.has(box.value);
  if (boxes().length > MOST && all.length)
    announce(`The first ${MOST} runs are selected: no more can be drawn together.`);
  history.replaceState(history.state, "", address(query()));
  drawPicked();
}

function drawPicked() {
  const ids = [...picked].join(",");
  if (ids === drawn) return;
  drawn = ids;
  say();
  if (!ids) return below.replaceChildren();
  const section = element("section", {
    "data-charts": "",
    "data-kind": "run",
    "data-ids": ids,
    "data-overlay": "",
    "aria-label": "Curves of the selected runs",
  });
  below.replaceChildren(section);
  start(section);
}

function enhance() {
  $("[data-apply]", tools).hidden = true;
  const columns = $("[data-columns]", tools);
  for (const box of $$("[data-usual]", tools)) box.checked = true;
  const showStep = () => {
    tools.elements.step.hidden = tools.elements.value.value !== "at";
  };
  showStep();
  tools.addEventListener("submit", (event) => {
    event.preventDefault();
    event.stopPropagation();
    load(query());
  });
  tools.addEventListener("input", ({ target }) => {
    if (!["search", "number"].includes(target.type)) return;
    clearTimeout(typing);
    typing = setTimeout(() => load(query()), TYPING);
  });
  tools.addEventListener("change", ({ target }) => {
    if (["search", "number"].includes(target.type)) return;
    if (target.name === "column") columns.dataset.chosen = "";
    showStep();
    if (target.name === "value" && target.value === "at" && tools.elements.step.value === "")
      return tools.elements.step.focus();
    load(query());
  });
  place.addEventListener("click", (event) => {
    if (event.target.closest("[data-all-runs]")) return toggleAll();
    const link = event.target.closest("a[data-key], a.pin");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = new URL(link.href).searchParams;
    if (event.shiftKey && link.dataset.key) {
      const order = pressed(query().getAll("sort"), link.dataset.key, true);
      next.delete("sort");
      for (const key of order) next.append("sort", key);
    }
    next.delete("pick");
    for (const id of picked) next.append("pick", id);
    load(next);
  });
  place.addEventListener("change", ({ target }) => {
    if (target.name !== "id") return;
    if (target.checked && picked.size >= MOST) {
      target.checked = false;
      return announce(`At most ${MOST} runs can be drawn together.`);
    }
    if (target.checked) picked.add(target.value);
    else picked.delete(target.value);
    history.replaceState(history.state, "", address(query()));
    drawPicked();
  });
  // Runs that are ticked on other pages go along.
  place.addEventListener("submit", ({ target }) => {
    if (target.id !== "selection") return;
    const here = new Set($$("input[name=id]:checked", target).map(({ value }) => value));
    for (const id of picked)
      if (!here.has(id)) target.append(element("input", { type: "hidden", name: "id", value: id }));
  });
  // The browser may have kept ticks over a reload.
  for (const box of boxes()) box.checked = picked.has(box.value);
  drawPicked();
}

async function keepFresh() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, FRESH));
    await seen();
    if ($(".state.running, .state.queued", place) && !place.hasAttribute("aria-busy")) await load(query());
  }
}

if (tools && place) {
  enhance();
  keepFresh();
}
