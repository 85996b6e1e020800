// @ts-check
// The list of jobs keeps itself fresh and keeps what was chosen: `live.js` draws the table anew,
// and the boxes that were ticked are ticked again.

import { $$, targetOf } from "./dom.js";

const chosen = new Set();
const boxes = () => $$('#selection [name="job"]');

document.addEventListener("change", (event) => {
  const box = targetOf(event);
  if (box.name !== "job") return;
  if (box.checked) chosen.add(box.value);
  else chosen.delete(box.value);
});

new MutationObserver(() => {
  for (const box of boxes()) if (chosen.has(box.value) && !box.checked) box.checked = true;
}).observe(document.querySelector("#selection"), { childList: true, subtree: true });
