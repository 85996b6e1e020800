// @ts-check
// The start form: sliders and numbers move together, the bars show what this would add, the
// line under the button says at once what admission thinks, and the same is shown as curl.

import { $, $$, humanSize, parseSize } from "./dom.js";

const form = $("#new-session");
const verdict = $("#verdict");
const chosen = (name) => $(`[name="${name}"]:checked`, form);
const value = (name) => $(`[name="${name}"]`, form)?.value.trim() ?? "";
const custom = () => chosen("profile")?.value === "custom";

for (const slider of $$("input[type=range]", form)) {
  const field = $(`#${slider.dataset.for}`);
  const bytes = "bytes" in slider.dataset;
  const read = () => {
    const number = bytes ? parseSize(field.value) : Number(field.value);
    if (number != null) slider.value = number;
  };
  slider.addEventListener("input", () => {
    field.value = bytes ? humanSize(Number(slider.value)) : slider.value;
  });
  field.addEventListener("input", read);
  read();
}

// The form of jobs asks for the same and for a program besides.
const isJob = form.dataset.kind === "job";

// Each program brings its own size: light where it has one, else the usual one. A size that somebody chose stays, as
// long as the program can have it.
let isChosen = false;
for (const size of $$('[name="profile"]', form))
  size.addEventListener("change", () => {
    isChosen = true;
  });
for (const app of $$('[name="app"]', form))
  app.addEventListener("change", () => {
    const light = app.dataset.light === "yes",
      isOwn = chosen("profile")?.value === "app";
    if (isChosen && !(isOwn && !light)) return;
    const wanted = $(`[name="profile"][value="${light ? "app" : CSS.escape(form.dataset.size)}"]`, form);
    if (wanted && !wanted.disabled) wanted.checked = true;
  });

function work() {
  const script = chosen("work")?.value === "script" ? $("#script", form).value : value("command");
  const lines = value("variables")
    .split("\n")
    .filter((line) => line.includes("="));
  const variables = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]),
  );
  const asked = { script };
  if (chosen("work")?.value === "script" && $("#sbatch", form)) asked.sbatch = $("#sbatch", form).checked;
  if ($("#login_shell", form)?.checked) asked.login_shell = true;
  const words = chosen("work")?.value === "script" ? value("arguments").match(/"[^"]*"|'[^']*'|\S+/g) : null;
  if (words) asked.arguments = words.map((word) => word.replace(/^(["'])(.*)\1$/, "$2"));
  for (const name of ["retries", "retry_wait_seconds", "nodes", "tasks_per_node"])
    if (value(name)) asked[name] = Number(value(name));
  const after = value("after").split(/[ ,]+/).filter(Boolean);
  if (after.length) asked.after = after.map((job) => ({ job, needs: value("needs") }));
  const tags = value("tags")
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean);
  return {
    ...asked,
    ...(tags.length ? { tags } : {}),
    ...(value("notes") ? { notes: value("notes") } : {}),
    ...(lines.length ? { variables } : {}),
    ...(value("log_directory") ? { log_directory: value("log_directory") } : {}),
  };
}

// Of a form that asks for many jobs: what is wrapped around the one; null for a single job.
function several(job) {
  const sweep = {};
  if (value("array")) sweep.array = value("array");
  const lines = value("parameters")
    .split("\n")
    .filter((line) => line.includes("="));
  if (lines.length)
    sweep.parameters = Object.fromEntries(
      lines.map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]),
    );
  for (const name of ["trials", "repeat", "parallel"]) if (value(name)) sweep[name] = Number(value(name));
  if (!["array", "parameters", "trials", "repeat"].some((name) => name in sweep)) return null;
  if (value("metric"))
    sweep.metric = {
      tag: value("metric"),
      goal: value("goal"),
      ...(value("stop_after_step") ? { stop_after_step: Number(value("stop_after_step")) } : {}),
    };
  return { job, ...sweep };
}

// What is asked for, in the API's words.
function request() {
  const app = chosen("app"),
    size = chosen("profile");
  /** @type {any} */
  const asked = isJob ? work() : { app: app?.value };
  if (custom()) {
    asked.resources = {
      gpus: Number(value("gpus")) || 0,
      cpus: Number(value("cpus")),
      memory_bytes: parseSize(value("memory")) ?? 0,
    };
    if (asked.resources.gpus && value("gpu_model")) asked.resources.gpu_model = value("gpu_model");
  } else if (size && size.value !== "app") asked.profile = size.value;
  if (value("name")) asked.name = value("name");
  const own = value("own_environment");
  if (value("image")) asked.image = value("image");
  if (isJob || app?.dataset.environment === "yes") {
    const environment = own && !/[/~]/.test(own) ? `~/${own}` : own || (asked.image ? "" : value("environment"));
    if (environment) asked.environment = environment;
  }
  if (value("modules"))
    asked.modules = value("modules")
      .split(/[\s,]+/)
      .filter(Boolean);
  if (value("working_directory")) asked.working_directory = value("working_directory");
  if (!isJob && app?.dataset.logs === "yes" && value("log_directory"))
    asked.options = { log_directory: value("log_directory") };
  if (value("group")) asked.group = value("group");
  const slurm = ["partition", "account", "qos", "reservation", "constraint"]
    .filter(value)
    .map((name) => [name, value(name)]);
  if (slurm.length) asked.slurm = Object.fromEntries(slurm);
  if (value("duration")) asked[isJob ? "time_limit_seconds" : "duration_seconds"] = Number(value("duration"));
  return asked;
}

// A script to begin with, or one from this computer; it is read here, and sent with the form.
function fill(text) {
  $("#script", form).value = text;
  $("#script", form).dispatchEvent(new Event("input", { bubbles: true }));
}
// Lines of Slurm's that were not there before count, unless the user unticks the box.
let hadLines = /^#SBATCH\s/m.test($("#script", form)?.value ?? "");
$("#script", form)?.addEventListener("input", (event) => {
  const hasLines = /^#SBATCH\s/m.test(event.target.value);
  if ($("#sbatch", form) && hasLines !== hadLines) $("#sbatch", form).checked = hasLines;
  hadLines = hasLines;
});
$("#template", form)?.addEventListener("change", (event) => {
  const { script } = event.target.selectedOptions[0].dataset;
  if (script) fill(script);
});
$("#choose-script", form)?.addEventListener("click", () => $("#script-file", form).click());
$("#script-file", form)?.addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) fill(await file.slice(0, 1 << 20).text());
});

function drawMeters() {
  const size = chosen("profile")?.dataset,
    sums = request().resources;
  const isLight = chosen("profile")?.value === "app";
  const asks = custom()
    ? { gpus: sums.gpus, cpus: sums.cpus, memory_bytes: sums.memory_bytes }
    : isLight
      ? { gpus: 0, cpus: 0, memory_bytes: Number(chosen("app")?.dataset.memory || 0) }
      : size
        ? { gpus: +size.gpus, cpus: +size.cpus, memory_bytes: +size.memory }
        : {};
  for (const meter of $$("[data-meter][data-limit]")) {
    const limit = Number(meter.dataset.limit),
      bar = $(".asked", meter);
    if (!(meter.dataset.meter in asks) || !bar || !limit) continue;
    const used = Math.min(100, (Number(meter.dataset.used) / limit) * 100);
    bar.setAttribute("x", used);
    bar.setAttribute("width", Math.min(100 - used, (asks[meter.dataset.meter] / limit) * 100));
  }
}

const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function drawCurl() {
  const many = isJob ? several(request()) : null,
    path = many ? "sweeps" : isJob ? "jobs" : "sessions";
  const lines = [
    `curl -X POST ${form.dataset.base}/api/v1/${path}`,
    `-H "Authorization: Bearer $LYCEUM_TOKEN"`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(many ?? request(), null, 2))}`,
  ];
  $("#curl").textContent = lines.join(" \\\n  ");
}

const HEADLINES = { admit: "Starts now", wait: "Will wait", refuse: "Cannot start" };
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

function say(kind, headline, words) {
  verdict.className = `verdict ${kind}`;
  verdict.replaceChildren(Object.assign(document.createElement("b"), { textContent: headline }), ` ${words}`);
}

let asking = null;
async function ask() {
  asking?.abort();
  const mine = (asking = new AbortController());
  verdict.classList.add("busy");
  try {
    // Whether it starts does not depend on the program, which may not be written yet.
    const asked = isJob && !request().sbatch ? { ...request(), script: "true" } : request();
    const many = isJob ? several(asked) : null;
    const answer = await fetch(
      many ? "/api/v1/sweeps/preview" : isJob ? "/api/v1/jobs/admission" : "/api/v1/admission",
      {
        method: "POST",
        signal: mine.signal,
        body: JSON.stringify(many ?? asked),
        headers: { "Content-Type": "application/json", "X-CSRF-Token": value("csrf_token") },
      },
    );
    const said = await answer.json();
    if (answer.ok && many) {
      const hours = (of, left) =>
        `${Number(of.toPrecision(3))}${left == null ? "" : ` of ${Number(left.toPrecision(3))} left`}`;
      const cost = [
        said.gpu_hours ? `${hours(said.gpu_hours, said.gpu_hours_left)} GPU-hours` : "",
        `${hours(said.cpu_hours, said.cpu_hours_left)} core-hours`,
      ]
        .filter(Boolean)
        .join(", ");
      const hints = (said.admission.reasons ?? []).map((reason) => reason.hint).join(" ");
      const kind = said.admission.outcome === "admit" && !said.fits_hours ? "wait" : said.admission.outcome;
      const short = said.fits_hours
        ? ""
        : " Not all tasks fit into your remaining hours: the sweep pauses when they are used up.";
      say(kind, `${said.tasks} tasks, ${said.parallel} at once`, `At most ${cost}.${short} ${hints}`);
    } else if (answer.ok) {
      const hints = (said.reasons ?? []).map((reason) => reason.hint).join(" ");
      const start =
        said.outcome === "wait" && said.estimated_start
          ? ` Estimated start: ${clock.format(new Date(said.estimated_start))} at the latest.`
          : "";
      say(said.outcome, HEADLINES[said.outcome] ?? said.outcome, hints + start);
    } else if (answer.status === 422 || answer.status === 409) {
      const wrong = [
        ...(said.errors ?? []).map((error) => error.message),
        ...(said.reasons ?? []).map((reason) => reason.hint),
      ];
      say("refuse", HEADLINES.refuse, wrong.join(" ") || said.detail || "");
    } else say("", "", said.detail ?? said.title ?? "");
  } catch (error) {
    if (error.name !== "AbortError")
      say("", "", "The portal does not respond at the moment. You can still press Start.");
  }
}

// Of a copy: which fields are no longer as they were.
const original = new Map();
function words(field) {
  if (field.type === "checkbox" || field.type === "radio")
    return chosen(field.name)?.closest("label")?.textContent.trim().replace(/\s+/g, " ") ?? "";
  return field.tagName === "SELECT" ? (field.selectedOptions[0]?.textContent ?? "") : field.value;
}
function fields() {
  const named = $$("input[name], select[name], textarea[name]", form).filter((field) => field.type !== "hidden");
  return new Map(named.map((field) => [field.name, field]));
}
function label(field) {
  const own = field.type === "radio" ? field.closest("fieldset") : null;
  return (own ? $("legend", own) : $(`label[for="${field.id}"]`, form))?.textContent ?? field.name;
}
function drawDifference() {
  const list = $("#changed");
  if (!list) return;
  const changes = [...fields()].filter(([name, field]) => original.get(name) !== words(field));
  const lines = changes.map(([name, field]) => {
    const line = document.createElement("li"),
      before = document.createElement("del"),
      after = document.createElement("ins");
    before.textContent = original.get(name) || "blank";
    after.textContent = words(field) || "blank";
    line.append(`${label(field)}: `, before, " ", after);
    return line;
  });
  if (!lines.length)
    lines.push(
      Object.assign(document.createElement("li"), {
        className: "muted",
        textContent: "No changes: this is an exact copy.",
      }),
    );
  list.replaceChildren(...lines);
}
for (const [name, field] of fields()) original.set(name, words(field));

let timer = null;
function changed(event) {
  drawMeters();
  drawCurl();
  drawDifference();
  clearTimeout(timer);
  timer = setTimeout(ask, event?.type === "input" ? 350 : 0);
}
form.addEventListener("input", changed);
changed();
