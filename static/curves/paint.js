// @ts-check
// Two painters of one scene: the canvas on the page, and the SVG that is saved. `palette` has
// the colours of the theme by their names.

const FONT = 11;
const FACE = 'system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif';

// What a mark looks like, as corners around its middle.
const CORNERS = {
  diamond: [
    [0, -4],
    [4, 0],
    [0, 4],
    [-4, 0],
  ],
  up: [
    [0, -4.5],
    [4.5, 3.5],
    [-4.5, 3.5],
  ],
  down: [
    [0, 4.5],
    [4.5, -3.5],
    [-4.5, -3.5],
  ],
};

// Draws on a context whose unit is the CSS pixel. `all` false leaves the words out.
export function paintCanvas(context, scene, palette, background) {
  const { frame } = scene.scales ?? {};
  context.clearRect(0, 0, scene.width, scene.height);
  if (background) {
    context.fillStyle = palette[background];
    context.fillRect(0, 0, scene.width, scene.height);
  }
  context.lineJoin = "round";
  for (const shape of scene.shapes) {
    context.save();
    if (shape.clip) {
      context.beginPath();
      context.rect(frame.left - 1, frame.top - 5, frame.right - frame.left + 2, frame.bottom - frame.top + 6);
      context.clip();
    }
    context.globalAlpha = shape.opacity ?? 1;
    context.setLineDash(shape.dash ?? []);
    context.lineWidth = shape.width ?? 1;
    if (shape.stroke) context.strokeStyle = palette[shape.stroke];
    if (shape.fill) context.fillStyle = palette[shape.fill];
    DRAW[shape.kind](context, shape, palette);
    context.restore();
  }
}

const DRAW = {
  rule(context, { points: [x1, y1, x2, y2] }) {
    context.beginPath();
    context.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    context.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
    context.stroke();
  },
  line(context, { points }) {
    trace(context, points);
    context.stroke();
  },
  area(context, { points }) {
    trace(context, points);
    context.closePath();
    context.fill();
  },
  dot(context, { x, y, radius }) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fill();
  },
  ring(context, { x, y, radius, stroke }, palette) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = palette.panel;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = palette[stroke];
    context.stroke();
  },
  mark(context, { shape, x, y, fill }, palette) {
    if (shape === "cross") {
      context.strokeStyle = palette[fill];
      context.lineWidth = 2;
      trace(context, [x - 4, y - 4, x + 4, y + 4, NaN, NaN, x - 4, y + 4, x + 4, y - 4]);
      context.stroke();
      return;
    }
    trace(
      context,
      CORNERS[shape].flatMap(([dx, dy]) => [x + dx, y + dy]),
    );
    context.fill();
  },
  text(context, { x, y, anchor, text, bold, fill }, palette) {
    context.font = `${bold ? "600 " : ""}${FONT}px ${FACE}`;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    context.fillStyle = palette[fill ?? "muted"];
    context.fillText(text, x, y);
  },
};

// Points as x, y, x, y …; NaN lifts the pen.
function trace(context, points) {
  context.beginPath();
  let down = false;
  for (let at = 0; at < points.length; at += 2) {
    if (Number.isNaN(points[at]) || Number.isNaN(points[at + 1])) {
      down = false;
      continue;
    }
    if (down) context.lineTo(points[at], points[at + 1]);
    else context.moveTo(points[at], points[at + 1]);
    down = true;
  }
}

// The scene as the text of an SVG file. `title` and the words of its legend come from outside
// and are escaped.
export function svgOf(scene, palette, { title = "", legend = [] } = {}) {
  const head = title ? 22 : 0;
  const [width, height] = [
    Math.ceil(scene.width),
    Math.ceil(scene.height) + head + (legend.length ? 18 * Math.ceil(legend.length / 4) + 6 : 0),
  ];
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${escapeXml(FACE)}" font-size="${FONT}">`,
    `<title>${escapeXml(title)}</title><rect width="${width}" height="${height}" fill="${palette.panel}"/>`,
  ];
  if (title)
    parts.push(`<text x="8" y="15" font-size="13" font-weight="600" fill="${palette.text}">${escapeXml(title)}</text>`);
  const frame = scene.scales?.frame;
  if (frame)
    parts.push(
      `<clipPath id="frame"><rect x="${frame.left - 1}" y="${frame.top - 5}" width="${frame.right - frame.left + 2}" height="${frame.bottom - frame.top + 6}"/></clipPath>`,
    );
  parts.push(`<g transform="translate(0 ${head})">`);
  for (const shape of scene.shapes) parts.push(svgShape(shape, palette));
  parts.push("</g>");
  for (const [at, { label, color, dash }] of legend.entries()) {
    const [x, y] = [12 + (at % 4) * ((width - 20) / 4), scene.height + head + 16 + 18 * Math.floor(at / 4)];
    parts.push(
      `<path d="M${short(x)} ${y - 4}h18" stroke="${palette[color]}" stroke-width="2"${dashed(dash)}/><text x="${short(x + 23)}" y="${y}" fill="${palette.text}">${escapeXml(label)}</text>`,
    );
  }
  parts.push("</svg>");
  return parts.join("\n");
}

const dashed = (dash) => (dash?.length ? ` stroke-dasharray="${dash.join(" ")}"` : "");

function svgShape(shape, palette) {
  const opacity = shape.opacity !== undefined && shape.opacity !== 1 ? ` opacity="${shape.opacity}"` : "";
  const clip = shape.clip ? ' clip-path="url(#frame)"' : "";
  const { x, y, radius } = shape;
  switch (shape.kind) {
    case "rule":
      return `<path d="M${short(shape.points[0])} ${short(shape.points[1])}L${short(shape.points[2])} ${short(shape.points[3])}" stroke="${palette[shape.stroke]}"${dashed(shape.dash)}/>`;
    case "line":
      return `<path d="${pathOf(shape.points)}" fill="none" stroke="${palette[shape.stroke]}" stroke-width="${shape.width}" stroke-linejoin="round"${dashed(shape.dash)}${opacity}${clip}/>`;
    case "area":
      return `<path d="${pathOf(shape.points)}Z" fill="${palette[shape.fill]}"${opacity}${clip}/>`;
    case "dot":
      return `<circle cx="${short(x)}" cy="${short(y)}" r="${radius}" fill="${palette[shape.fill]}"${opacity}${clip}/>`;
    case "ring":
      return `<circle cx="${short(x)}" cy="${short(y)}" r="${radius}" fill="${palette.panel}" stroke="${palette[shape.stroke]}" stroke-width="2"/>`;
    case "mark":
      return shape.shape === "cross"
        ? `<path d="M${short(x - 4)} ${short(y - 4)}l8 8m-8 0l8-8" stroke="${palette[shape.fill]}" stroke-width="2"/>`
        : `<path d="${pathOf(CORNERS[shape.shape].flatMap(([dx, dy]) => [x + dx, y + dy]))}Z" fill="${palette[shape.fill]}"/>`;
    default:
      return `<text x="${short(x)}" y="${short(y)}" text-anchor="${shape.anchor}" fill="${palette[shape.fill ?? "muted"]}">${escapeXml(shape.text)}</text>`;
  }
}

const short = (number) => String(Math.round(number * 10) / 10);

export function pathOf(points) {
  let [text, down] = ["", false];
  for (let at = 0; at < points.length; at += 2) {
    if (Number.isNaN(points[at]) || Number.isNaN(points[at + 1])) {
      down = false;
      continue;
    }
    text += `${down ? "L" : "M"}${short(points[at])} ${short(points[at + 1])}`;
    down = true;
  }
  return text;
}

// Also drops what XML 1.0 forbids, which a tag may hold.
export function escapeXml(text) {
  const clean = String(text).replace(
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    "\ufffd",
  );
  return clean.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
