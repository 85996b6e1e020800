// @ts-check
// One column of the results against another, a dot a run, and how far the ranks of both go
// together. It says “correlation” and no more: few runs prove nothing.

import { element } from "../dom.js";
import { svgElement } from "./compare.js";
import { rankCorrelation } from "./results.js";
import { formatTick, formatValue, logTicks, scale, ticks } from "./scale.js";

const HEIGHT = 230;
const FRAME = { left: 52, right: 12, top: 10, bottom: 24 };

export function makeScatter(board) {
  const [across, up] = ["X axis", "Y axis"].map((label) => {
    const select = element("select", { class: "input", "aria-label": label });
    select.addEventListener("change", () => {
      if (last) draw();
    });
    return select;
  });
  const svg = svgElement("svg", {
    class: "scatter",
    role: "img",
    "aria-label": "Scatter plot of two columns. The table has the same values.",
  });
  const said = element("p", { class: "hint" });
  const figure = element(
    "figure",
    { class: "curve panel" },
    element(
      "figcaption",
      {},
      element("h3", {}, "Scatter plot"),
      element("span", { class: "grow" }),
      up,
      element("span", { class: "muted" }, "against"),
      across,
    ),
    svg,
    said,
  );
  let last = null;
  new ResizeObserver(() => {
    if (last) draw();
  }).observe(figure);

  function show(params, metrics, rows, parts) {
    const numeric = [...params, ...metrics].filter((column) => column.numeric);
    last = { numeric, rows, parts, metrics };
    options(across, numeric);
    options(up, numeric, metrics[0]);
    draw();
  }

  function draw() {
    const { numeric, rows, parts } = last;
    const [x, y] = [across, up].map((select) => numeric.find(({ key }) => key === select.value) ?? numeric[0]);
    if (!x || !y) {
      figure.hidden = true;
      return;
    }
    const dots = rows
      .map((row) => [row, row.cells.get(x.key), row.cells.get(y.key)])
      .filter(([, a, b]) => typeof a === "number" && typeof b === "number");
    const width = Math.max(240, figure.clientWidth - 26);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.setAttribute("height", HEIGHT);
    const [sx, sy] = [
      scaleOf(
        dots.map(([, a]) => a),
        [FRAME.left, width - FRAME.right],
      ),
      scaleOf(
        dots.map(([, , b]) => b),
        [HEIGHT - FRAME.bottom, FRAME.top],
      ),
    ];
    const shapes = [];
    for (const mark of sy.marks)
      shapes.push(
        svgElement("path", { class: "grid", d: `M${FRAME.left} ${sy.map(mark).toFixed(1)}H${width - FRAME.right}` }),
        svgElement(
          "text",
          { x: FRAME.left - 6, y: sy.map(mark) + 4, "text-anchor": "end" },
          formatTick(mark, sy.apart),
        ),
      );
    for (const mark of sx.marks)
      shapes.push(
        svgElement("text", { x: sx.map(mark), y: HEIGHT - 6, "text-anchor": "middle" }, formatTick(mark, sx.apart)),
      );
    for (const [row, a, b] of dots) {
      const dot = svgElement(
        "circle",
        {
          cx: sx.map(a),
          cy: sy.map(b),
          r: 5,
          class: `${parts.get(row.source).color}${board.view.off.includes(row.id) ? " out" : ""}`,
        },
        svgElement("title", {}, `${row.name}: ${formatValue(a)}, ${formatValue(b)}`),
      );
      dot.addEventListener("pointerenter", () => board.highlight(row.id));
      dot.addEventListener("pointerleave", () => board.highlight(null));
      shapes.push(dot);
    }
    svg.replaceChildren(...shapes);
    const rho = rankCorrelation(dots.map(([, a, b]) => [a, b]));
    said.textContent =
      rho === null
        ? `Too few runs for a correlation (${dots.length}).`
        : `Rank correlation ${formatValue(Number(rho.toFixed(2)))} (Spearman, ${dots.length} runs).`;
  }
  return { figure, show };
}

function options(select, columns, chosen) {
  const names = columns.map(({ key }) => key).join("\n");
  if (select.dataset.names === names) return;
  const before = select.value;
  select.dataset.names = names;
  select.replaceChildren(...columns.map(({ key, label }) => element("option", { value: key }, label)));
  select.value = columns.some(({ key }) => key === before) ? before : ((chosen ?? columns[0])?.key ?? "");
}

// With some air, so that no dot lies on the frame; on a logarithm where values span decades.
function scaleOf(values, range) {
  const [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const isLog = low > 0 && high / low >= 30;
  const share = isLog ? (high / low) ** 0.06 : 0;
  const air = (high - low) * 0.06 || Math.abs(low) * 0.1 || 1;
  const domain = isLog ? [low / share, high * share] : [low - air, high + air];
  const marks = (isLog ? logTicks : ticks)(...domain, 5);
  return {
    ...scale(isLog ? "log" : "linear", domain, range),
    marks,
    apart: isLog || marks.length < 2 ? 0 : marks[1] - marks[0],
  };
}
