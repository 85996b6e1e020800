// @ts-check
// The menu of one chart: pin it to the top, show it on the full screen, set the range of its y
// axis, download it. What it does is said to the board, which holds the view and what is kept.

import { announce, element } from "../dom.js";
import { downloadsOf } from "./save.js";
import { drop } from "./toolbar.js";

export function menu(chart) {
  const { board, about } = chart;
  const list = element("ul", {});
  const details = drop("⋯", list, { kind: "save", button: "btn quiet small", name: `Options of ${about.title}` });
  const item = (label, work, attributes = {}) => {
    const button = element("button", { type: "button", class: "link", ...attributes }, label);
    button.addEventListener("click", () => {
      details.open = false;
      work();
    });
    return element("li", {}, button);
  };
  list.addEventListener("click", ({ target }) => {
    if (target.closest("a")) details.open = false;
  });
  // As it opens, not after: what replaces an item later takes the focus away with it.
  details.firstChild.addEventListener("click", () => {
    if (details.open) return;
    const isPinned = board.kept.get().pinned.includes(about.id);
    const items = [item(isPinned ? "Unpin" : "Pin to the top", () => board.pin(about))];
    if (chart.figure.requestFullscreen)
      items.push(item(isFull(chart) ? "Exit full screen" : "Full screen", () => fullScreen(chart)));
    list.replaceChildren(...items, range(chart, details), ...downloadsOf(chart, item));
  });
  return details;
}

const isFull = ({ figure }) => document.fullscreenElement === figure;

function fullScreen(chart) {
  const done = isFull(chart) ? document.exitFullscreen() : chart.figure.requestFullscreen();
  done.then(
    () => chart.place.focus(),
    () => announce("The browser does not allow full screen here."),
  );
}

// The two ends of the y axis. An empty field follows the data.
function range(chart, details) {
  const { board, about } = chart;
  const now = board.view.ranges[about.id] ?? [null, null];
  const [from, to] = ["Y axis from", "Y axis to"].map((label, at) =>
    element("input", {
      type: "number",
      step: "any",
      class: "input",
      placeholder: "auto",
      "aria-label": `${label}, ${about.title}`,
      value: now[at],
    }),
  );
  const problem = element(
    "p",
    { class: "wrong", role: "alert", hidden: true },
    "The first value must be below the second.",
  );
  const form = element(
    "form",
    { class: "y-range" },
    element("span", {}, "Y axis"),
    from,
    element("span", {}, "to"),
    to,
    element("button", { class: "btn small" }, "Set"),
    problem,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const ends = [from, to].map(({ value }) => (value === "" ? null : Number(value)));
    problem.hidden = ends.includes(null) || ends[0] < ends[1];
    if (!problem.hidden) return;
    details.open = false;
    board.setRange(about, ends);
  });
  return element("li", {}, form);
}
