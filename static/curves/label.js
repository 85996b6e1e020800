// @ts-check
// What the lines of a chart are called and how they look. Of one run, a line is a part of it
// (train, validation); in a comparison a line is a run, and one run has one look everywhere.

import { look, MANY, partLook } from "./colours.js";
import { baseRun, partOf } from "./tags.js";

// Names come from outside and may be as long as a page: their ends tell most.
export const shorten = (text, most = 72) =>
  text.length > most ? `${text.slice(0, most / 2)}…${text.slice(-most / 2 + 1)}` : text;

// Gives each part of a chart `key`, `label`, `color` and `dash`.
export function labelled(about, { comparing, sources }) {
  const { parts } = about;
  about.title = shorten(about.name);
  if (comparing) {
    const several = new Map();
    for (const part of parts) several.set(part.source, (several.get(part.source) ?? 0) + 1);
    for (const part of parts) {
      const { role } = partOf(part.run, "");
      const mine = look(sources.indexOf(part.source), parts.length);
      Object.assign(part, mine, {
        key: part.source.id,
        label: several.get(part.source) > 1 ? `${part.source.name} ${part.run}` : part.source.name,
      });
      if (role === "validation" && several.get(part.source) > 1 && parts.length <= MANY) part.dash = [6, 3];
    }
    return;
  }
  const bases = [...new Set(parts.map((part) => baseRun(part.run)))];
  // `loss` beside `val_loss` is the training's.
  const roles = new Set(parts.map((part) => part.role));
  if (roles.has("validation") && !roles.has("train")) for (const part of parts) part.role ??= "train";
  for (const [at, part] of parts.entries()) {
    const base = baseRun(part.run);
    const words = [bases.length > 1 ? base || part.run : "", part.role ?? ""].filter(Boolean);
    part.key = `${part.run}:${part.tag}`;
    part.label = shorten(words.join(" ") || (parts.length > 1 ? part.tag : about.name));
    const mine =
      bases.length > 1
        ? { color: look(bases.indexOf(base)).color, dash: partLook(part.role, at).dash }
        : partLook(part.role, at);
    Object.assign(part, mine, parts.length > MANY ? { dash: [] } : {});
  }
}
