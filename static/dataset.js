// @ts-check
// A dataset's page: the gallery goes on while one scrolls, and a build tells how far it is.

import { $ } from "./dom.js";

const gallery = $("#gallery");

async function more(link) {
  const answer = await fetch(link.href);
  if (!answer.ok) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const item of next.querySelectorAll("#gallery > li")) gallery.append(document.adoptNode(item));
  const further = next.querySelector("#more-pictures");
  if (further) link.href = further.getAttribute("href");
  else {
    seen.disconnect();
    link.remove();
  }
}

let busy = false;
const seen = new IntersectionObserver(
  async ([edge]) => {
    if (!edge.isIntersecting || busy) return;
    busy = true;
    try {
      await more(edge.target);
    } finally {
      busy = false;
    }
    // What came may not have filled the window yet.
    if (edge.target.isConnected) {
      seen.unobserve(edge.target);
      seen.observe(edge.target);
    }
  },
  { rootMargin: "600px" },
);
const link = $("#more-pictures");
if (link) seen.observe(link);

const building = $("#building");

async function follow() {
  const answer = await fetch(`/api/v1/datasets/${building.dataset.dataset}`);
  if (answer.ok) {
    const dataset = await answer.json();
    if (dataset.state !== "building") return location.reload();
    const told = dataset.progress;
    if (told) {
      const bar = $("progress", building);
      bar.max = told.total || 1;
      bar.value = told.done;
      const left =
        told.eta_seconds == null || told.done >= told.total
          ? ""
          : `, ${Math.floor(told.eta_seconds / 60)}:${String(told.eta_seconds % 60).padStart(2, "0")} min left`;
      $("#progress-words").textContent =
        `${told.phase}: ${told.done} of ${told.total}${told.broken ? `, ${told.broken} broken` : ""}${left}`;
    }
  }
  setTimeout(follow, document.hidden ? 10000 : 2000);
}
if (building) follow();
