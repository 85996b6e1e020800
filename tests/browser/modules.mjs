// Lets Node import the browser's own modules: what lies in static/ is an ES module there,
// whatever its name ends in. Import this first, then the module with `await import(…)`.

import { register } from "node:module";

const hooks = `
export async function load(url, context, next) {
  return next(url, url.includes("/static/") && url.endsWith(".js") ? { ...context, format: "module" } : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);

/** A module of static/curves by its name. */
export const curves = (name) => import(new URL(`../../static/curves/${name}.js`, import.meta.url));
