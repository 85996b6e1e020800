// Takes a chart away: as SVG and PNG, exactly as it is on the page, and as CSV with every point
// that was ever written. Pictures are made in the browser, CSV comes from the portal.

import { announce, element } from "../dom.js";
import { csvAddress } from "./ask.js";
import { csvOf } from "./hardware.js";
import { paintCanvas, svgOf } from "./paint.js";
import { sceneOf } from "./scene.js";

const SIZE = { width: 760, height: 320 };

// The button that opens the list of what can be saved.
export function menu(chart) {
  const list = element("ul", {});
  const details = element("details", { class: "save" }, element("summary", { class: "btn quiet small", "aria-label": `Save ${chart.about.title}` }, "Save"), list);
  const item = (label, work) => {
    const button = element("button", { type: "button", class: "link" }, label);
    button.addEventListener("click", () => { details.open = false; work(); });
    return element("li", {}, button);
  };
  const csv = (part) => element("li", {}, element("a", { class: "link", href: csvAddress(chart.board.base, part.source, part), download: `${fileName(part.label)}.csv` }, chart.about.parts.length > 1 ? `CSV, ${part.label}` : "CSV, every point"));
  list.addEventListener("click", ({ target }) => { if (target.closest("a")) details.open = false; });
  details.addEventListener("toggle", () => {
    if (!details.open) return;
    const pictures = [item("SVG", () => saveSvg(chart)), item("PNG", () => savePng(chart))];
    if (chart.about.local) return list.replaceChildren(...pictures, item("CSV", () => save(new Blob([csvOf(chart.lines)], { type: "text/csv" }), `${fileName(chart.about.name)}.csv`)));
    list.replaceChildren(...pictures, ...chart.about.parts.filter((part) => !chart.board.isOff(part.key)).map(csv));
  });
  details.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !details.contains(relatedTarget)) details.open = false; });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
  });
  return details;
}

// Letters, digits and a few signs of a name that comes from outside; never longer than a file's may be.
export function fileName(text) {
  return text.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(0, 80) || "chart";
}

function saveSvg(chart) {
  const legend = chart.lines.filter((line) => !chart.board.isOff(line.key)).map(({ label, color, dash }) => ({ label, color, dash }));
  const text = svgOf(sceneOf(chart.model(SIZE.width, SIZE.height)), chart.board.palette, { title: chart.about.title, legend });
  save(new Blob([text], { type: "image/svg+xml" }), `${fileName(chart.about.name)}.svg`);
}

function savePng(chart) {
  const scene = sceneOf(chart.model(SIZE.width, SIZE.height));
  const canvas = element("canvas", { width: SIZE.width * 2, height: (SIZE.height + 44) * 2 });
  const context = canvas.getContext("2d");
  const { palette } = chart.board;
  context.scale(2, 2);
  context.fillStyle = palette.panel;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const lines = chart.lines.filter((line) => !chart.board.isOff(line.key));
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
