// @ts-check
// The OpenAPI document as a page: one line a route, opened for its parameters, bodies and
// answers. Everything is made as text nodes; nothing of the document is taken as markup.

import { $, $$, element } from "./dom.js";

const place = $("#api");
const VERBS = ["get", "post", "put", "patch", "delete"];

try {
  const answer = await fetch(place.dataset.document, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  draw(await answer.json());
} catch (error) {
  $("#api-status").textContent = `The OpenAPI document could not be loaded (${error.message}).`;
}
place.removeAttribute("aria-busy");

function draw(api) {
  const groups = new Map();
  for (const [route, item] of Object.entries(api.paths ?? {})) {
    for (const verb of VERBS) {
      const operation = item[verb];
      if (!operation) continue;
      const group =
        operation.tags?.[0] ??
        route
          .split("/")
          .filter(Boolean)
          .find((part) => part !== "api" && !/^v\d+$/.test(part)) ??
        "other";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(drawOperation(api, verb, route, operation, item.parameters ?? []));
    }
  }
  const filter = element("input", {
    class: "input",
    type: "search",
    placeholder: "Filter routes",
    "aria-label": "Filter routes",
  });
  filter.addEventListener("input", () => sieve(filter.value.trim().toLowerCase()));
  const sections = [...groups].map(([name, operations]) =>
    element(
      "section",
      { "aria-label": name },
      element("h2", {}, name, " ", element("small", {}, `${operations.length}`)),
      ...operations,
    ),
  );
  place.replaceChildren(element("div", { class: "api" }, element("div", { class: "api-tools" }, filter), ...sections));
  if (location.hash) openNamed();
}

function sieve(words) {
  for (const section of $$(".api section")) {
    let any = false;
    for (const operation of $$("details", section)) {
      operation.hidden = !operation.dataset.words.includes(words);
      any ||= !operation.hidden;
    }
    section.hidden = !any;
  }
}

function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView();
  }
}
addEventListener("hashchange", openNamed);

function drawOperation(api, verb, route, operation, shared) {
  const summary = operation.summary ?? "";
  const body = element("div", { class: "body" });
  const details = element(
    "details",
    {
      class: "panel",
      id: `${verb}:${route}`,
      "data-words": `${verb} ${route} ${summary} ${operation.operationId ?? ""}`.toLowerCase(),
    },
    element(
      "summary",
      {},
      element("span", { class: `verb ${verb}` }, verb.toUpperCase()),
      element("span", { class: "route" }, route),
      element("span", { class: "sum" }, summary),
    ),
    body,
  );
  // Filled when it is opened first: a long document is drawn at once.
  details.addEventListener("toggle", () => {
    if (details.open && !body.firstChild) fill(api, body, verb, route, operation, shared);
  });
  return details;
}

function fill(api, body, verb, route, operation, shared) {
  if (operation.description) body.append(element("p", {}, operation.description));
  const parameters = [...shared, ...(operation.parameters ?? [])].map((parameter) => resolve(api, parameter));
  if (parameters.length) {
    body.append(
      element("h3", {}, "Parameters"),
      table(
        ["Name", "In", "Type", ""],
        parameters.map((parameter) => [
          code(parameter.name + (parameter.required ? "" : "?")),
          parameter.in,
          typeName(api, parameter.schema),
          parameter.description ?? "",
        ]),
      ),
    );
  }
  const input = mediaSchema(resolve(api, operation.requestBody ?? {}));
  if (input) body.append(element("h3", {}, "Body"), fields(api, input), example(curl(verb, route, sample(api, input))));
  else body.append(example(curl(verb, route)));
  const answers = Object.entries(operation.responses ?? {}).map(([status, response]) => {
    const answer = resolve(api, response),
      schema = mediaSchema(answer);
    return [code(status), schema ? typeName(api, schema) : "", answer.description ?? ""];
  });
  if (answers.length) body.append(element("h3", {}, "Responses"), table(["Status", "Type", ""], answers));
  const [status, good] = Object.entries(operation.responses ?? {}).find(([code]) => code.startsWith("2")) ?? [];
  const output = good && mediaSchema(resolve(api, good));
  if (output)
    body.append(element("h3", {}, `Example of ${status}`), example(JSON.stringify(sample(api, output), null, 2)));
}

const code = (text) => element("code", {}, text);
const example = (text) => element("pre", { tabindex: "0" }, text);

function table(heads, rows) {
  const head = element(
    "tr",
    {},
    ...heads.map((text) =>
      element("th", { scope: "col" }, text || element("span", { class: "visually-hidden" }, "Meaning")),
    ),
  );
  const body = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
  return element(
    "div",
    { class: "scroll" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

function resolve(api, thing) {
  for (let hops = 0; thing?.$ref && hops < 20; hops++) {
    thing = thing.$ref
      .replace(/^#\//, "")
      .split("/")
      .reduce((at, key) => at?.[key.replaceAll("~1", "/").replaceAll("~0", "~")], api);
  }
  return thing ?? {};
}

function mediaSchema(thing) {
  const media = Object.values(thing.content ?? {})[0];
  return media?.schema;
}

function typeName(api, schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (options)
    return options
      .map((option) => typeName(api, option))
      .filter((name) => name && name !== "null")
      .join(" or ");
  if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  if (schema.type === "null") return "null";
  const type = [schema.type]
    .flat()
    .filter((name) => name && name !== "null")
    .join(" or ");
  if (type === "array") return `${typeName(api, schema.items) || "any"}[]`;
  return schema.format ? `${type} (${schema.format})` : type || "any";
}

function fields(api, schema) {
  const whole = resolve(api, schema);
  const properties = Object.entries(whole.properties ?? {});
  if (!properties.length) return element("p", {}, typeName(api, schema));
  return table(
    ["Field", "Type", ""],
    properties.map(([name, property]) => [
      code(name + (whole.required?.includes(name) ? "" : "?")),
      typeName(api, property),
      property.description ?? resolve(api, property).description ?? "",
    ]),
  );
}

// An example made from a schema: its own examples and defaults first.
function sample(api, schema, depth = 0) {
  const whole = resolve(api, schema);
  if (whole.example !== undefined) return whole.example;
  if (whole.examples?.length) return whole.examples[0];
  if (whole.default !== undefined && whole.default !== null) return whole.default;
  if (whole.enum) return whole.enum[0];
  const options = whole.oneOf ?? whole.anyOf;
  if (options) return sample(api, options.find((option) => option.type !== "null") ?? options[0], depth);
  if (whole.allOf) return Object.assign({}, ...whole.allOf.map((part) => sample(api, part, depth)));
  const type = [whole.type].flat().find((name) => name !== "null");
  if (type === "array") return depth < 4 && whole.items ? [sample(api, whole.items, depth + 1)] : [];
  if (type === "object" || whole.properties) {
    if (4 <= depth) return {};
    return Object.fromEntries(
      Object.entries(whole.properties ?? {}).map(([name, property]) => [name, sample(api, property, depth + 1)]),
    );
  }
  if (type === "integer" || type === "number") return 0;
  if (type === "boolean") return false;
  if (whole.format === "date-time") return "2026-01-31T12:00:00Z";
  return "string";
}

function curl(verb, route, body) {
  const lines = [
    `curl${verb === "get" ? "" : ` -X ${verb.toUpperCase()}`} ${place.dataset.base}${route}`,
    `-H "Authorization: Bearer $LYCEUM_TOKEN"`,
  ];
  if (body !== undefined)
    lines.push(`-H 'Content-Type: application/json'`, `-d '${JSON.stringify(body, null, 2).replaceAll("'", `'\\''`)}'`);
  return lines.join(" \\\n  ");
}
