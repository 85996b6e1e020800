// @ts-check
// Downloads of one chart: as SVG and PNG, exactly as it is on the page, and as CSV with every point
// that was ever written; and of all charts that are shown. Pictures are made in the browser, CSV of
// every point comes from the portal.

import { announce, element } from "../dom.js";
import { csvAddress } from "./ask.js";
import { csvOf } from "./hardware.js";
import { paintCanvas, svgOf } from "./paint.js";
import { sceneOf } from "./scene.js";

const SIZE = { width: 760, height: 320 };

// The items of a chart's menu; `item(label, work)` makes one.
export function downloadsOf(chart, item) {
  const { about, board } = chart;
  const pictures = [item("Download SVG", () => saveSvg(chart)), item("Download PNG", () => savePng(chart))];
  if (about.local)
    return [
      ...pictures,
      item("Download CSV", () =>
        save(new Blob([csvOf(chart.lines)], { type: "text/csv" }), `${fileName(about.name)}.csv`),
      ),
    ];
  const csv = (part) =>
    element(
      "li",
      {},
      element(
        "a",
        { class: "link", href: csvAddress(board.base, part.source, part), download: `${fileName(part.label)}.csv` },
        about.parts.length > 1 ? `Download CSV, ${part.label}` : "Download CSV, all points",
      ),
    );
  return [...pictures, ...about.parts.filter((part) => !board.isOff(part.key)).map(csv)];
}

// All charts that have a place on the page, in one file.
export function saveCharts(charts, kind) {
  if (kind === "csv")
    save(
      new Blob([csvOfCharts(charts.map((chart) => ({ name: chart.about.name, lines: linesOf(chart) })))], {
        type: "text/csv",
      }),
      "charts.csv",
    );
  else save(new Blob([sheetOf(charts.map(svgText))], { type: "image/svg+xml" }), "charts.svg");
}

const linesOf = (chart) => chart.lines.filter((line) => !chart.board.isOff(line.key));

// What charts show as a table: a row for each place of each line.
export function csvOfCharts(charts) {
  const cell = (value) =>
    typeof value === "number"
      ? Number.isNaN(value)
        ? ""
        : String(value)
      : /[",\r\n]/.test(value)
        ? `"${value.replaceAll('"', '""')}"`
        : value;
  const rows = charts.flatMap(({ name, lines }) =>
    lines.flatMap(({ label, data }) =>
      Array.from({ length: data.count }, (_, at) => [
        name,
        label,
        data.x[at],
        data.mean[at],
        data.low[at],
        data.high[at],
        data.hasSmooth ? data.smooth[at] : NaN,
        data.points[at],
      ]),
    ),
  );
  return [["chart", "line", "x", "mean", "min", "max", "smoothed", "points"], ...rows]
    .map((row) => `${row.map(cell).join(",")}\n`)
    .join("");
}

// Pictures one below the other. Names within one must not mean another's.
export function sheetOf(pictures) {
  let [top, width] = [0, 0];
  const parts = pictures.map((text, at) => {
    const [, wide, high] = /^<svg [^>]*width="(\d+)" height="(\d+)"/.exec(text);
    const placed = text
      .replace("<svg ", `<svg y="${top}" `)
      .replaceAll('id="frame"', `id="frame-${at}"`)
      .replaceAll("url(#frame)", `url(#frame-${at})`);
    [top, width] = [top + Number(high) + 12, Math.max(width, Number(wide))];
    return placed;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${top}" viewBox="0 0 ${width} ${top}">`,
    ...parts,
    "</svg>",
  ].join("\n");
}

// Letters, digits and a few signs of a name that comes from outside; never longer than a file's may be.
export function fileName(text) {
  return (
    text
      .replace(/[^\p{L}\p{N}._-]+/gu, "-")
      .replace(/^[-.]+|-+$/g, "")
      .slice(0, 80) || "chart"
  );
}

function svgText(chart) {
  const legend = linesOf(chart).map(({ label, color, dash }) => ({ label, color, dash }));
  return svgOf(sceneOf(chart.model(SIZE.width, SIZE.height)), chart.board.palette, {
    title: chart.about.title,
    legend,
  });
}

function saveSvg(chart) {
  save(new Blob([svgText(chart)], { type: "image/svg+xml" }), `${fileName(chart.about.name)}.svg`);
}

function savePng(chart) {
  const scene = sceneOf(chart.model(SIZE.width, SIZE.height));
  const canvas = element("canvas", { width: SIZE.width * 2, height: (SIZE.height + 44) * 2 });
  const context = canvas.getContext("2d");
  const { palette } = chart.board;
  context.scale(2, 2);
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const lines = linesOf(chart);
  context.font = "600 13px system-ui, sans-serif";
  context.fillStyle = palette.text;
  context.fillText(chart.about.title, 8, 16);
  context.setTransform(2, 0, 0, 2, 0, 44);
  paintCanvas(context, scene, palette, "panel");
  context.setTransform(2, 0, 0, 2, 0, 0);
  context.font = "11px system-ui, sans-serif";
  for (const [at, line] of lines.slice(0, 6).entries()) {
    const x = 12 + at * 124;
    context.strokeStyle = palette[line.color];
    context.lineWidth = 2;
    context.setLineDash(line.dash);
    context.beginPath();
    context.moveTo(x, SIZE.height + 32);
    context.lineTo(x + 18, SIZE.height + 32);
    context.stroke();
    context.fillStyle = palette.text;
    context.fillText(line.label, x + 23, SIZE.height + 36, 96);
  }
  canvas.toBlob((blob) => save(blob, `${fileName(chart.about.name)}.png`), "image/png");
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  announce(`${name} saved`);
}
