// The controls above the charts: the axis, log, smoothing, clipping, which charts. They show
// the view and ask for another one; they hold no state of their own.

import { announce, element } from "../dom.js";
import { onAxis, USUAL } from "./view.js";

const AXES = [["step", "Step"], ["relative", "Elapsed"], ["wall", "Clock"]];
const MOST_PICKED = 200;
let made = 0;

// `change(view)` is called with the wanted view. Answers {bar, show(view, charts)}.
export function makeToolbar(view, change) {
  const name = `axis-${(made += 1)}`;
  const radios = AXES.map(([value, label]) => {
    const input = element("input", { type: "radio", name, value });
    input.addEventListener("change", () => change(onAxis(view(), value)));
    return element("label", {}, input, element("span", {}, label));
  });
  const axis = element("div", { class: "segments", role: "radiogroup", "aria-label": "Horizontal axis" }, ...radios);
  const other = element("select", { class: "input", "aria-label": "Another curve as horizontal axis" });
  other.addEventListener("change", () => change(other.value ? onAxis(view(), "metric", other.value) : onAxis(view(), USUAL.x)));
  const log = tick("Log", (on) => change({ ...view(), log: on }));
  const logx = tick("Log axis", (on) => change({ ...view(), logx: on }));
  const clip = tick("Clip outliers", (on) => change({ ...view(), clip: on }));
  const slider = element("input", { type: "range", min: "0", max: "0.99", step: "0.01", "aria-label": "Smoothing" });
  const told = element("output", {}, "0");
  slider.addEventListener("input", () => {
    told.textContent = Number(slider.value).toFixed(2);
    change({ ...view(), smooth: Number(slider.value) });
  });
  const find = element("input", { type: "search", class: "input", placeholder: "Find charts", "aria-label": "Find charts" });
  find.addEventListener("input", () => change({ ...view(), find: find.value }));
  const boxes = element("ul", {});
  const picker = element("details", { class: "pick" }, element("summary", { class: "btn" }, "Charts"), boxes);
  picker.addEventListener("keydown", (event) => { if (event.key === "Escape") { picker.open = false; picker.querySelector("summary").focus(); } });
  picker.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !picker.contains(relatedTarget)) picker.open = false; });
  const whole = element("button", { type: "button", class: "btn", hidden: true }, "Show all of it");
  whole.addEventListener("click", () => change({ ...view(), zoom: {} }));
  const link = element("button", { type: "button", class: "btn quiet", hidden: !navigator.clipboard }, "Copy link");
  link.addEventListener("click", () => navigator.clipboard.writeText(location.href).then(() => announce("Link copied"), () => announce("Copying was not allowed. The address of this page is the link.")));
  const bar = element("div", { class: "curve-tools", role: "toolbar", "aria-label": "How curves are shown" },
    element("div", {}, axis, other, logx.label, element("label", { class: "smooth" }, element("span", {}, "Smoothing"), slider, told), log.label, clip.label),
    element("div", { class: "which" }, whole, find, picker, link));

  function show(now, charts) {
    for (const radio of radios) radio.firstChild.checked = radio.firstChild.value === now.x;
    const tags = [...new Set(charts.flatMap(({ parts }) => parts.map(({ tag }) => tag)))].slice(0, MOST_PICKED);
    if (now.by && !tags.includes(now.by)) tags.unshift(now.by);
    other.hidden = tags.length < 2;
    if (other.dataset.names !== tags.join("\n")) {
      other.dataset.names = tags.join("\n");
      other.replaceChildren(element("option", { value: "" }, "Over a curve…"), ...tags.map((tag) => element("option", { value: tag }, tag)));
    }
    other.value = now.by;
    log.input.checked = now.log;
    logx.input.checked = now.logx;
    logx.label.hidden = now.x !== "step" && now.x !== "relative";
    clip.input.checked = now.clip;
    if (document.activeElement !== slider) slider.value = String(now.smooth);
    told.textContent = now.smooth.toFixed(2);
    if (document.activeElement !== find) find.value = now.find;
    whole.hidden = Object.keys(now.zoom).length === 0;
    const names = charts.map((chart) => chart.id);
    // More are found by the search.
    picker.hidden = names.length < 2 || names.length > MOST_PICKED;
    if (!picker.hidden && boxes.dataset.names !== names.join("\n")) {
      boxes.dataset.names = names.join("\n");
      boxes.replaceChildren(...charts.map((chart) => {
        const box = tick(chart.title, () => change({ ...view(), only: chosen() }));
        box.input.value = chart.id;
        return element("li", {}, box.label);
      }));
    }
    for (const box of boxes.querySelectorAll("input")) box.checked = now.only.length === 0 || now.only.includes(box.value);
    picker.firstChild.textContent = now.only.length ? `Charts: ${now.only.length} of ${names.length}` : "Charts";
  }

  // Nothing chosen or everything chosen is the usual.
  function chosen() {
    const all = [...boxes.querySelectorAll("input")];
    const on = all.filter((box) => box.checked).map((box) => box.value);
    return on.length === all.length ? USUAL.only : on;
  }
  return { bar, show };
}

function tick(label, changed) {
  const input = element("input", { type: "checkbox" });
  input.addEventListener("change", () => changed(input.checked));
  return { input, label: element("label", { class: "tick" }, input, element("bdi", {}, label)) };
}
