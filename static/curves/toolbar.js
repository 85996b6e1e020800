// @ts-check
// The row of controls above the charts: the axes, outliers, smoothing, the zoom, downloads. They
// show the view and ask for another one; they hold no state of their own.

import { element } from "../dom.js";
import { onAxis, USUAL } from "./view.js";

const AXES = [
  ["step", "Step"],
  ["relative", "Relative"],
  ["wall", "Wall time"],
];
const MOST_TAGS = 200;
let made = 0;

// `change(view)` is called with the wanted view, `download(kind)` for all charts that are shown.
// Answers {bar, show(view, charts)}.
export function makeToolbar(view, change, download) {
  const name = `axis-${(made += 1)}`;
  const radios = AXES.map(([value, label]) => {
    const input = element("input", { type: "radio", name, value });
    input.addEventListener("change", () => change(onAxis(view(), value)));
    return element("label", {}, input, element("span", {}, label));
  });
  const other = element("select", { "aria-label": "Metric as horizontal axis" });
  other.addEventListener("change", () =>
    change(other.value ? onAxis(view(), "metric", other.value) : onAxis(view(), USUAL.x)),
  );
  const axis = element("div", { class: "segments", role: "group", "aria-label": "X axis" }, ...radios, other);
  const log = tick("Log y", (on) => change({ ...view(), log: on }));
  const logx = tick("Log x", (on) => change({ ...view(), logx: on }));
  const clip = tick("Ignore outliers", (on) => change({ ...view(), clip: on }));
  const slider = element("input", {
    type: "range",
    min: "0",
    max: "0.99",
    step: "0.01",
    "aria-label": "Smoothing",
    title: "Time-weighted moving average: values count by their distance in steps",
  });
  const told = element("output", {}, "0");
  slider.addEventListener("input", () => {
    told.textContent = Number(slider.value).toFixed(2);
    change({ ...view(), smooth: Number(slider.value) });
  });
  const whole = element("button", { type: "button", class: "btn", disabled: true }, "Reset zoom");
  whole.addEventListener("click", () => change({ ...view(), zoom: {}, ranges: {} }));
  const list = element("ul", {});
  const downloads = drop("Download", list);
  for (const [kind, label] of [
    ["csv", "CSV of the charts shown"],
    ["svg", "SVG of the charts shown"],
  ]) {
    const button = element("button", { type: "button", class: "link" }, label);
    button.addEventListener("click", () => {
      downloads.open = false;
      download(kind);
    });
    list.append(element("li", {}, button));
  }
  const bar = element(
    "div",
    { class: "curve-tools one-row", role: "group", "aria-label": "Chart options" },
    element("span", { class: "smooth" }, element("span", { "aria-hidden": "true" }, "X axis"), axis),
    logx.label,
    log.label,
    clip.label,
    element("label", { class: "smooth" }, element("span", {}, "Smoothing"), slider, told),
    whole,
    downloads,
  );

  function show(now, charts) {
    for (const radio of radios) radio.firstChild.checked = radio.firstChild.value === now.x;
    const tags = [...new Set(charts.flatMap(({ parts }) => parts.map(({ tag }) => tag)))].slice(0, MOST_TAGS);
    if (now.by && !tags.includes(now.by)) tags.unshift(now.by);
    other.hidden = tags.length < 2;
    if (other.dataset.names !== tags.join("\n")) {
      other.dataset.names = tags.join("\n");
      other.replaceChildren(
        element("option", { value: "" }, "Metric…"),
        ...tags.map((tag) => element("option", { value: tag }, tag)),
      );
    }
    other.value = now.by;
    log.input.checked = now.log;
    logx.input.checked = now.logx;
    logx.label.hidden = now.x !== "step" && now.x !== "relative";
    clip.input.checked = now.clip;
    if (document.activeElement !== slider) slider.value = String(now.smooth);
    told.textContent = now.smooth.toFixed(2);
    whole.disabled = Object.keys(now.zoom).length === 0 && Object.keys(now.ranges).length === 0;
  }
  return { bar, show };
}

export function tick(label, changed) {
  const input = element("input", { type: "checkbox" });
  input.addEventListener("change", () => changed(input.checked));
  return { input, label: element("label", { class: "tick" }, input, element("bdi", {}, label)) };
}

// A button that opens a list below it; Escape and leaving it close it.
export function drop(label, list, { kind = "pick", button = "btn", name = null } = {}) {
  const summary = element("summary", { class: button, "aria-label": name }, label);
  const details = element("details", { class: kind }, summary, list);
  details.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !details.contains(relatedTarget)) details.open = false;
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    details.open = false;
    summary.focus();
  });
  return details;
}
