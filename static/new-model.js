// @ts-check
// The form of a training: the networks of the chosen task, the fields of the chosen policy, the
// learning rate drawn as the portal computes it, and a program's text in which a tab indents.

import { $, $$ } from "./dom.js";

const form = $("#new-model");
const rate = $("#rate");
const value = (name) => form.elements.namedItem(name)?.value.trim() ?? "";
const FIELDS = ["base", "gamma", "step", "steps", "power", "start", "peak", "end", "warm_up"];

function show() {
  const policy = value("learning_rate.policy");
  for (const field of $$(".policy-field", form)) {
    const policies = field.dataset.policies.split(" ").filter(Boolean);
    field.hidden = policies.length > 0 && !policies.includes(policy);
  }
}

/** The networks of the task, and its example where nobody has changed another one. */
function choose() {
  const task = value("task");
  const network = form.elements.namedItem("network.name");
  for (const option of network.options)
    option.hidden = option.disabled = !option.dataset.tasks.split(" ").includes(task);
  if (network.selectedOptions[0]?.disabled)
    network.value = [...network.options].find((option) => !option.disabled).value;
  const text = (template) => template.content.textContent;
  const examples = $$("template[data-task]", form);
  const program = $("#program", form);
  if (!examples.some((one) => text(one).trim() === program.value.trim())) return;
  program.value = text(examples.find((one) => one.dataset.task === task));
}

/** What is typed, as the API takes it; a field that is hidden says nothing. */
function typed() {
  const asked = { policy: value("learning_rate.policy") };
  for (const name of FIELDS) {
    const field = form.elements.namedItem(`learning_rate.${name}`);
    const text = field?.value.trim();
    if (!text || field.closest("[hidden]")) continue;
    asked[name] =
      name === "steps"
        ? text
            .split(/[\s,]+/)
            .filter(Boolean)
            .map(Number)
        : Number(text);
  }
  return asked;
}

let latest = 0;
async function draw() {
  const mine = ++latest;
  const says = $("#rate-says");
  const answer = await fetch("/api/v1/models/learning-rate", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": rate.dataset.csrf },
    body: JSON.stringify(typed()),
  }).catch(() => null);
  const said = await answer?.json().catch(() => null);
  if (mine !== latest) return;
  if (!said) {
    says.textContent = "The portal is not reachable. The curve is drawn once it responds.";
    return;
  }
  const line = $("path", rate);
  if (!answer.ok) {
    line.setAttribute("d", "");
    says.textContent = said.errors?.map((fault) => `${fault.field}: ${fault.message}`).join(" ") ?? said.detail;
    return;
  }
  const most = Math.max(...said.rate);
  const point = (at) => `${(said.percent[at] * 6).toFixed(1)} ${(114 - (said.rate[at] / most) * 108).toFixed(1)}`;
  line.setAttribute("d", said.rate.map((_, at) => `${at ? "L" : "M"}${point(at)}`).join(""));
  const number = (number) => Number(number.toPrecision(3)).toString();
  says.textContent = `start ${number(said.rate[0])}, maximum ${number(most)}, end ${number(said.rate.at(-1))}`;
}

let timer = null;
form.addEventListener("input", (event) => {
  if (event.target.name === "task") choose();
  if (!event.target.name?.startsWith("learning_rate.")) return;
  if (event.target.name === "learning_rate.policy") show();
  clearTimeout(timer);
  timer = setTimeout(draw, 250);
});
// A tab indents, as in an editor; after Escape it leaves, as the keyboard needs it.
const program = $("#program", form);
let leaves = false;
program?.addEventListener("focus", () => (leaves = false));
program?.addEventListener("keydown", (event) => {
  if (event.key === "Escape") leaves = true;
  if (event.key !== "Tab" || event.shiftKey || leaves) return;
  event.preventDefault();
  program.setRangeText("    ", program.selectionStart, program.selectionEnd, "end");
});
show();
choose();
draw();
