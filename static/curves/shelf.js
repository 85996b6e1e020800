// @ts-check
// Which charts have a place on the page: those that the view shows, a screenful of them at
// first. A run may have twenty thousand curves; what has no place costs nothing.

import { element } from "../dom.js";
import { describe, makeChart } from "./chart.js";
import { toggled } from "./kept.js";
import { formatCount } from "./scale.js";
import { withPinned } from "./tags.js";

const AT_ONCE = 60;

export function makeShelf(board) {
  const place = element("div", { class: "curve-groups" });
  const rest = element("p", { class: "curve-rest", hidden: true });
  const more = element("button", { type: "button", class: "btn" }, "Show more");
  const count = element("span", { class: "muted" });
  rest.append(more, count);
  board.root.append(place, rest);
  const made = new Map();
  let limit = AT_ONCE;
  more.addEventListener("click", () => {
    limit += AT_ONCE;
    show();
  });

  const seen = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const chart = board.charts.find(({ figure }) => figure === target);
        if (!chart) continue;
        chart.near = isIntersecting;
        if (isIntersecting) {
          board.paint([chart]);
          if (chart.stale) board.schedule();
        }
      }
    },
    { rootMargin: "200px" },
  );
  new ResizeObserver(() => board.paint(board.charts, true)).observe(place);
  document.addEventListener("fullscreenchange", () => board.paint(board.charts, true));

  function show() {
    const { find, only } = board.view;
    const words = find.toLowerCase().trim();
    const isWanted = ({ id, name }) => (only.length === 0 || only.includes(id)) && name.toLowerCase().includes(words);
    const { pinned, folded } = board.kept.get();
    const wanted = withPinned(
      board.groups.map(({ name, charts }) => ({ name, charts: charts.filter(isWanted) })),
      pinned,
    );
    const total = wanted.reduce((sum, { charts }) => sum + charts.length, 0);
    let left = limit;
    board.charts = [];
    const sections = [];
    const isAlone = wanted.filter(({ charts }) => charts.length > 0).length === 1;
    for (const { name, charts } of wanted) {
      const figures = charts.slice(0, left).map(figureOf);
      left -= figures.length;
      // The first group alone needs no heading.
      if (figures.length)
        sections.push({
          name: name || (isAlone ? "" : "Metrics"),
          figures,
          count: charts.length,
          isFolded: folded.includes(name || "Metrics"),
        });
    }
    arrange(sections);
    rest.hidden = total <= limit;
    count.textContent = ` ${formatCount(Math.min(limit, total))} of ${formatCount(total)} charts. Use the search above to find the others.`;
  }

  function figureOf(about) {
    let chart = made.get(about.id);
    if (!chart) {
      chart = makeChart(about, board);
      made.set(about.id, chart);
      seen.observe(chart.figure);
    }
    // A line of it was written for the first time.
    if (chart.filled !== undefined && chart.filled !== about.parts.length) {
      chart.stale = true;
      board.schedule();
    }
    chart.about = about;
    chart.domain = board.domainOf(about);
    board.charts.push(chart);
    describe(chart);
    return chart.figure;
  }

  // The page is touched only where other figures stand than before: focus and selection stay.
  function arrange(sections) {
    const present = [...place.querySelectorAll("figure.curve")];
    const order = sections.flatMap(({ figures }) => figures);
    const names = sections.map(({ name, figures }) => `${figures.length} ${name}`).join("\n");
    if (
      place.dataset.names === names &&
      order.length === present.length &&
      order.every((figure, at) => figure === present[at])
    )
      return;
    place.dataset.names = names;
    /** @type {any} */
    const focused = document.activeElement;
    place.replaceChildren(...sections.map((one) => section(one, board)));
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  }
  return { show };
}

function section({ name, figures, count, isFolded }, board) {
  const grid = element("div", { class: "curve-grid" }, ...figures);
  if (!name) return element("div", {}, grid);
  const heading = element(
    "h3",
    { class: "group-name" },
    element("bdi", {}, name),
    " ",
    element("small", {}, formatCount(count)),
  );
  const details = element(
    "details",
    { class: "curve-section", "aria-label": name, open: !isFolded },
    element("summary", {}, heading),
    grid,
  );
  details.addEventListener("toggle", () => {
    const { folded } = board.kept.get();
    if (folded.includes(name) === details.open) board.kept.set({ folded: toggled(folded, name) });
  });
  return details;
}
