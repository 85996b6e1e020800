// @ts-check
// The table above compared runs: one row a run, what differs between them, what each metric came
// to. What the table shows is what the charts draw: a row can be switched off, and the filter
// narrows both.

import { $, element } from "../dom.js";
import { curvesOf } from "./ask.js";
import { keyButton } from "./chart.js";
import { look, sample } from "./colours.js";
import { shorten } from "./label.js";
import { filterOf, pressed, sorted, tabled } from "./results.js";
import { formatStep, formatValue } from "./scale.js";
import { makeParallel } from "./parallel.js";
import { makeScatter } from "./scatter.js";
import { BEST_RULE } from "./tags.js";

// Fewer runs are told by the table better than by a plot of them.
const LEAST = 6;
// More metrics are found in the charts.
const METRICS = 6;
const SPARK_POINTS = 40;

// Answers the function that brings it up to date.
export function makeComparison(board) {
  const own = new Map(
    board.sources.map((source, at) => [
      source,
      { key: source.id, label: source.name, ...look(at, board.sources.length) },
    ]),
  );
  // How each run looks: by itself, or as its group does.
  let [parts, buttons, grouped] = [own, new Map(), null];
  const where = element("input", {
    type: "search",
    class: "input",
    placeholder: "lr < 0.01 and optimizer = adam",
    "aria-label": "Filter runs",
    "aria-describedby": "where-says",
  });
  where.addEventListener("input", () => board.setView({ ...board.view, where: where.value }));
  const says = element("span", { class: "muted", id: "where-says", role: "status" });
  const [same, onlyDiffers] = tickbox("Only differing columns", (on) => board.setView({ ...board.view, same: !on }));
  const radios = ["best", "last"].map((value) => {
    const input = element("input", { type: "radio", name: "value-of", value });
    input.addEventListener("change", () => board.setView({ ...board.view, value }));
    return element("label", {}, input, element("span", {}, value === "best" ? "Best" : "Last"));
  });
  const grouping = element("select", { class: "input", "aria-label": "Group runs" });
  grouping.addEventListener("change", () => board.setView({ ...board.view, group: grouping.value }));
  const legend = element("ul", { class: "keys", hidden: true });
  const tools = element(
    "div",
    { class: "curve-tools" },
    element("div", { class: "filter-runs" }, where, says),
    element(
      "div",
      { class: "which" },
      same,
      grouping,
      element(
        "div",
        { class: "segments", role: "radiogroup", "aria-label": "Value of each metric", title: BEST_RULE },
        ...radios,
      ),
    ),
  );
  const place = element("div", {
    class: "panel scroll-x results",
    tabindex: "0",
    role: "group",
    "aria-label": "Compared runs",
  });
  const plots = element("div", { class: "curve-grid plots" });
  const parallel = makeParallel(board),
    scatter = makeScatter(board);
  plots.append(parallel.figure, scatter.figure);
  board.root.querySelector("h2").after(tools, place, legend, plots);
  const sparks = new Map();
  let sparked = null;

  async function drawSparks({ tag, run, key, label }) {
    if (sparked === key) return;
    sparked = key;
    const items = await curvesOf(board.base, board.sources, [tag], { x: "step", points: SPARK_POINTS }).catch(() => []);
    for (const source of board.sources) {
      const item =
        items.find((item) => item.id === source.id && item.run === run) ?? items.find((item) => item.id === source.id);
      if (item)
        sparks.set(
          source,
          spark(
            item.buckets.map(({ mean }) => mean),
            parts.get(source).color,
            `${label} of ${source.name}`,
          ),
        );
    }
    show();
  }

  function show() {
    const { view } = board;
    const { rows, columns } = tabled(board.sources, view.value);
    const filter = filterOf(view.where, columns);
    const kept = filter.error ? rows : rows.filter(filter.test);
    const narrowed = kept.length === rows.length ? null : new Set(kept.map(({ id }) => id));
    if (
      String([...(narrowed ?? [])]) !== String([...(board.narrowed ?? [])]) ||
      (narrowed === null) !== (board.narrowed === null)
    ) {
      board.narrowed = narrowed;
      // The charts were asked before they knew.
      queueMicrotask(() => board.setView(board.view));
    }
    if (document.activeElement !== where) where.value = view.where;
    where.setAttribute("aria-invalid", String(filter.error !== null));
    says.textContent = filter.error ?? (narrowed ? `${kept.length} of ${rows.length} runs` : `${rows.length} runs`);
    onlyDiffers.checked = !view.same;
    group(
      rows,
      columns.filter(({ kind, differs }) => kind === "param" && differs),
    );
    for (const radio of radios) radio.firstChild.checked = radio.firstChild.value === view.value;
    const params = columns.filter(({ kind, differs }) => kind === "param" && (view.same || differs));
    const metrics = columns.filter(({ kind }) => kind === "metric").slice(0, METRICS);
    const shown = [...params, ...metrics];
    if (metrics[0]) drawSparks(metrics[0]);
    for (const [source, button] of buttons) button.setAttribute("aria-pressed", String(!view.off.includes(source.id)));
    draw(shown, sorted(kept, view.sort), metrics[0]);
    const enough = rows.length >= LEAST && params.some(({ differs }) => differs) && metrics.length > 0;
    plots.hidden = !enough;
    if (enough) {
      const differing = params.filter(({ differs }) => differs);
      parallel.show([...differing, metrics[0]], rows, kept, parts);
      scatter.show(differing, metrics, kept, parts);
    }
  }

  // One look a group. A parameter that is not there, of an old link, groups nothing.
  function group(rows, params) {
    const { view } = board;
    const names = ["", ...params.map(({ label }) => label)];
    if (grouping.dataset.names !== names.join("\n")) {
      grouping.dataset.names = names.join("\n");
      grouping.replaceChildren(
        ...names.map((name) => element("option", { value: name }, name ? `by ${shorten(name, 30)}` : "Not grouped")),
      );
    }
    grouping.value = names.includes(view.group) ? view.group : "";
    grouping.hidden = names.length < 2;
    const column = params.find(({ label }) => label === view.group);
    const key = column ? `${column.key} ${rows.map((row) => JSON.stringify(row.cells.get(column.key))).join()}` : "";
    if (grouped === key) return;
    grouped = key;
    const looks = column ? looksOf(rows, column) : null;
    parts = looks ?? own;
    buttons = new Map(
      board.sources.map((source) => [
        source,
        keyButton({ ...parts.get(source), key: source.id, label: source.name }, board),
      ]),
    );
    board.groupOf = looks && ((line) => looks.get(line.source));
    const unique = looks ? [...new Map([...looks.values()].map((look) => [look.key, look])).values()] : [];
    legend.hidden = !looks;
    legend.replaceChildren(
      ...unique.map((look) => element("li", { class: "key" }, sample(look), element("bdi", {}, look.label))),
    );
    queueMicrotask(() => board.setView(board.view));
  }

  function draw(columns, rows, first) {
    /** @type {any} */
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    const head = (key, label, numeric) => {
      const { sort } = board.view;
      const at = sort.findIndex((other) => other === key || other === `-${key}`);
      const way = at < 0 ? null : sort[at].startsWith("-") ? "descending" : "ascending";
      const arrow = way === null ? "" : ` ${way === "ascending" ? "↑" : "↓"}${sort.length > 1 ? at + 1 : ""}`;
      const button = element(
        "button",
        { type: "button", "data-column": key, title: "Sort by this column; with Shift, as the second column" },
        element("bdi", {}, label),
        arrow,
      );
      button.addEventListener("click", ({ shiftKey }) =>
        board.setView({ ...board.view, sort: pressed(board.view.sort, key, shiftKey) }),
      );
      return element("th", { scope: "col", class: numeric ? "n" : null, "aria-sort": way }, button);
    };
    const bests = new Map(
      columns.filter(({ kind }) => kind === "metric").map((column) => [column.key, extreme(rows, column)]),
    );
    const base = rows.find(({ id }) => id === board.view.base) ?? null;
    const pin = (row) => {
      const button = element(
        "button",
        {
          type: "button",
          class: "pin",
          "aria-pressed": String(row === base),
          title: "Compare the other runs with this run",
          "aria-label": `Baseline ${row.name}`,
        },
        "Δ",
      );
      button.addEventListener("click", () => board.setView({ ...board.view, base: row === base ? "" : row.id }));
      return button;
    };
    const body = rows.map((row) =>
      element(
        "tr",
        {},
        element(
          "th",
          { scope: "row" },
          buttons.get(row.source),
          pin(row),
          element("a", { class: "open", href: `/runs/${row.id}`, "aria-label": `Open ${row.name}` }, "↗"),
        ),
        ...(first ? [element("td", {}, sparks.get(row.source) ?? "")] : []),
        ...columns.map((column) => cellOf(row, column, bests.get(column.key), base)),
      ),
    );
    const table = element(
      "table",
      { "aria-label": "Results" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          head("name", "Run", false),
          ...(first ? [element("th", { scope: "col" }, element("bdi", {}, first.label))] : []),
          ...columns.map(({ key, label, numeric }) => head(key, label, numeric)),
        ),
      ),
      element("tbody", {}, ...body),
    );
    place.replaceChildren(rows.length ? table : element("p", { class: "pad muted" }, "No runs match."));
    if (focused && !focused.isConnected)
      (
        $(`[data-column="${CSS.escape(focused.dataset.column ?? "")}"]`, place) ??
        $(`[aria-label="${CSS.escape(focused.getAttribute("aria-label") ?? "")}"]`, place)
      )?.focus();
    else focused?.focus?.({ preventScroll: true });
  }
  return show;
}

// A value; the best of all rows is said by weight and a word, not by colour.
function cellOf(row, { key, kind, numeric }, best, base) {
  const value = row.cells.get(key);
  if (value === undefined || value === null)
    return element("td", { class: "n muted" }, kind === "metric" && value === null ? "not finite" : "–");
  if (kind === "param")
    return element(
      "td",
      { class: numeric ? "n" : null },
      element("bdi", {}, numeric ? formatValue(value) : String(value)),
    );
  const isBest = best !== null && value === best;
  const other = base === null || base === row ? null : base.cells.get(key);
  const delta =
    typeof other === "number"
      ? element("small", { class: "delta" }, `${value < other ? "−" : "+"}${formatValue(Math.abs(value - other))}`)
      : null;
  return element(
    "td",
    { class: "n" },
    element(isBest ? "b" : "span", {}, formatValue(value)),
    element("small", { class: "muted" }, ` at ${formatStep(row.steps.get(key))}`),
    delta,
    isBest ? element("span", { class: "visually-hidden" }, " best") : null,
  );
}

// The look of each row's group, in the order of the values.
function looksOf(rows, { key, label }) {
  const values = [
    ...new Map(sorted(rows, [key]).map((row) => [JSON.stringify(row.cells.get(key)), row.cells.get(key)])).entries(),
  ];
  return new Map(
    rows.map((row) => {
      const at = values.findIndex(([text]) => text === JSON.stringify(row.cells.get(key)));
      const value = row.cells.get(key);
      const count = rows.filter((other) => JSON.stringify(other.cells.get(key)) === values[at][0]).length;
      const word =
        value === undefined || value === null
          ? `${label} not set`
          : `${label} = ${typeof value === "number" ? formatValue(value) : value}`;
      return [
        row.source,
        { key: `group ${at}`, label: `${shorten(word, 48)}, ${count} ${count === 1 ? "run" : "runs"}`, ...look(at) },
      ];
    }),
  );
}

function extreme(rows, { key, rule }) {
  const values = rows.map((row) => row.cells.get(key)).filter((value) => typeof value === "number");
  return values.length < 2
    ? null
    : values.reduce((best, value) => (rule === "min" ? Math.min(best, value) : Math.max(best, value)));
}

function tickbox(label, changed) {
  const input = element("input", { type: "checkbox" });
  input.addEventListener("change", () => changed(input.checked));
  return [element("label", { class: "tick" }, input, label), input];
}

const SVG = "http://www.w3.org/2000/svg";

export function svgElement(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A curve of a few pixels, in its own range.
function spark(values, color, label) {
  const finite = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  let [d, down] = ["", false];
  for (const [at, value] of values.entries()) {
    if (value === null) {
      down = false;
      continue;
    }
    d += `${down ? "L" : "M"}${((at / Math.max(1, values.length - 1)) * 88 + 1).toFixed(1)} ${(21 - ((value - low) / (high - low || 1)) * 18).toFixed(1)}`;
    down = true;
  }
  return svgElement(
    "svg",
    { class: `spark-line ${color}`, viewBox: "0 0 90 24", role: "img", "aria-label": label },
    svgElement("path", { d }),
  );
}
