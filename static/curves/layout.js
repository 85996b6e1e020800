// @ts-check
// The second row of controls: which charts there are, how large, and what their tooltip lists.
// The search and the selection belong to the view and its link; the rest is kept by this browser.

import { announce, element } from "../dom.js";
import { LIMITS, ORDERS, SIZES } from "./kept.js";
import { drop, tick } from "./toolbar.js";
import { USUAL } from "./view.js";

const MOST_PICKED = 200;
const ORDER_WORDS = { near: "Nearest", high: "Highest", low: "Lowest" };
let made = 0;

// `change(view)` is called with the wanted view, `changed()` after something that is kept.
export function makeLayout(view, change, kept, changed) {
  const find = element("input", {
    type: "search",
    class: "input",
    placeholder: "Find charts",
    "aria-label": "Find charts",
  });
  find.addEventListener("input", () => change({ ...view(), find: find.value }));
  const boxes = element("ul", {});
  const picker = drop("Charts", boxes);

  const name = `size-${(made += 1)}`;
  const radios = SIZES.map((size) => {
    const input = element("input", {
      type: "radio",
      name,
      value: size,
      "aria-label": `${size[0].toUpperCase()}${size.slice(1)} charts`,
    });
    input.addEventListener("change", () => {
      kept.set({ size });
      changed();
    });
    return element(
      "label",
      { title: input.getAttribute("aria-label") },
      input,
      element("span", {}, size[0].toUpperCase()),
    );
  });
  const sizes = element("div", { class: "segments", role: "radiogroup", "aria-label": "Chart size" }, ...radios);

  const order = select(
    "Tooltip order",
    ORDERS.map((value) => [value, ORDER_WORDS[value]]),
    (value) => kept.set({ order: value }),
  );
  const limit = select(
    "Tooltip limit",
    LIMITS.map((value) => [String(value), String(value)]),
    (value) => kept.set({ limit: Number(value) }),
  );
  const tooltip = element("span", { class: "smooth" }, element("span", {}, "Tooltip"), order, limit);

  const link = element("button", { type: "button", class: "btn quiet", hidden: !navigator.clipboard }, "Copy link");
  link.addEventListener("click", () =>
    navigator.clipboard.writeText(location.href).then(
      () => announce("Link copied"),
      () => announce("Copying was blocked by the browser. Copy the address of this page instead."),
    ),
  );
  const bar = element(
    "div",
    { class: "curve-tools", role: "group", "aria-label": "Chart layout" },
    find,
    picker,
    sizes,
    tooltip,
    link,
  );

  function show(now, charts) {
    const { size, order: by, limit: most } = kept.get();
    for (const radio of radios) radio.firstChild.checked = radio.firstChild.value === size;
    order.value = by;
    limit.value = String(most);
    if (document.activeElement !== find) find.value = now.find;
    const names = charts.map((chart) => chart.id);
    // More are found by the search.
    picker.hidden = names.length < 2 || names.length > MOST_PICKED;
    if (!picker.hidden && boxes.dataset.names !== names.join("\n")) {
      boxes.dataset.names = names.join("\n");
      boxes.replaceChildren(
        ...charts.map((chart) => {
          const box = tick(chart.title, () => change({ ...view(), only: chosen() }));
          box.input.value = chart.id;
          return element("li", {}, box.label);
        }),
      );
    }
    for (const box of boxes.querySelectorAll("input"))
      box.checked = now.only.length === 0 || now.only.includes(box.value);
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

function select(label, options, chosen) {
  const made = element(
    "select",
    { class: "input", "aria-label": label },
    ...options.map(([value, word]) => element("option", { value }, word)),
  );
  made.addEventListener("change", () => chosen(made.value));
  return made;
}
