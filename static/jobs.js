// The list of jobs keeps itself fresh and keeps what was chosen: `live.js` draws the table anew,
// and the boxes that were ticked are ticked again.

import { $$ } from "./dom.js";

const chosen = new Set();
const boxes = () => $$('#selection [name="job"]');

document.addEventListener("change", (event) => {
  if (event.target.name !== "job") return;
  if (event.target.checked) chosen.add(event.target.value);
  else chosen.delete(event.target.value);
});

new MutationObserver(() => {
  for (const box of boxes()) if (chosen.has(box.value) && !box.checked) box.checked = true;
}).observe(document.querySelector("#selection"), { childList: true, subtree: true });
