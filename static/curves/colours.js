// @ts-check
// The colours of lines and how they are told apart without colour. Ten colours hold in both
// themes and for eyes that confuse red and green; from the eleventh line on, dashes tell
// lines of one colour apart. The colours themselves are in curves.css.

export const COLOURS = 10;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2]];

// Among more lines than this nobody tells one from another by its dashes, which cost the browser ten times as much
// to draw: they are solid, and pointing at one tells which it is.
export const MANY = 20;

// The look of the line at this place among so many.
export function look(at, among = 0) {
  return {
    color: `c${(at % COLOURS) + 1}`,
    dash: among > MANY ? [] : DASHES[Math.floor(at / COLOURS) % DASHES.length],
  };
}

// Parts of one thing: the training's line is blue, the validation's orange and dashed.
const PARTS = { train: 0, validation: 1, test: 2 };
export function partLook(role, others) {
  if (role === null) return look(others === 0 ? 0 : 2 + others);
  return { color: `c${PARTS[role] + 1}`, dash: role === "validation" ? [6, 3] : role === "test" ? [2, 3] : [] };
}

const NAMES = {
  text: "--text",
  muted: "--muted",
  faint: "--muted",
  panel: "--panel",
  grid: "--line",
  axis: "--line-strong",
  cursor: "--muted",
  bad: "--bad",
  attempt: "--warn",
  checkpoint: "--ok",
  accent: "--accent",
};

// What the theme's colours are at the moment: a canvas knows no custom properties.
export function palette(within) {
  const probe = document.createElement("span");
  probe.hidden = true;
  within.append(probe);
  const found = {};
  const read = (name, property) => {
    probe.style.color = `var(${property})`;
    found[name] = getComputedStyle(probe).color;
  };
  for (const [name, property] of Object.entries(NAMES)) read(name, property);
  for (let at = 1; at <= COLOURS; at += 1) read(`c${at}`, `--c${at}`);
  probe.remove();
  return found;
}

// Calls back when the theme changes, whoever changed it.
export function onTheme(changed) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  new MutationObserver(changed).observe(document.documentElement, {
    attributes: true,
    attributeFilter: ["data-theme"],
  });
}

const SVG = "http://www.w3.org/2000/svg";

// A short piece of a line, for legends: `currentColor` of a class c1 … c10.
export function sample({ color, dash }) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [
    ["class", `swatch ${color}`],
    ["viewBox", "0 0 22 8"],
    ["aria-hidden", "true"],
  ])
    svg.setAttribute(name, value);
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M1 4h20");
  if (dash.length) line.setAttribute("stroke-dasharray", dash.join(" "));
  svg.append(line);
  return svg;
}
