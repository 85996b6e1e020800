// @ts-check
// Fields for a day and a time: the portal reads and writes them in UTC, people type them in
// their own zone. Without this they are UTC, as their labels say.

import { $$, element } from "./dom.js";

const two = (number) => String(number).padStart(2, "0");

// `2030-01-31T18:00` here, of a moment.
function local(at) {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

for (const field of $$("input[data-utc]")) {
  const sent = element("input", { type: "hidden", name: field.name, value: field.value });
  field.removeAttribute("name");
  field.after(sent);
  if (field.value) field.value = local(new Date(`${field.value}Z`));
  field.addEventListener("input", () => {
    const at = new Date(field.value);
    sent.value = Number.isNaN(at.getTime()) ? field.value : at.toISOString().slice(0, 16);
  });
  const zone = field.closest(".field").querySelector(".zone");
  if (zone) zone.textContent = "your time";
}
