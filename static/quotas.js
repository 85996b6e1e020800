// @ts-check
// The table of quotas: choose everybody on the page at once, and say how many are chosen.
// Without it each box is ticked by itself.

import { $, $$ } from "./dom.js";

const form = $("#selection"),
  all = $("#select-all"),
  said = $("#chosen");
const boxes = () => $$("input[name=user]", form);

function tell() {
  const chosen = boxes().filter((box) => box.checked).length;
  if (said) said.textContent = chosen === 0 ? "" : chosen === 1 ? "1 user selected" : `${chosen} users selected`;
  if (!all) return;
  all.checked = 0 < chosen && chosen === boxes().length;
  all.indeterminate = 0 < chosen && !all.checked;
}

all?.addEventListener("change", () => {
  for (const box of boxes()) box.checked = all.checked;
  tell();
});
form?.addEventListener("change", tell);
addEventListener("pageshow", tell);
