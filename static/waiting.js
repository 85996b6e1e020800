// @ts-check
// Where an app will be: asks this same address again until something else answers, then
// goes there. 503, or this page once more, means that it is not ready yet.

import { $, learnClock, refreshTimes, seen } from "./dom.js";

let delay = 700;

async function ready() {
  const answer = await fetch(location.href, {
    headers: { Accept: "text/html" },
    redirect: "manual",
    cache: "no-store",
  });
  if (answer.type === "opaqueredirect") return true;
  learnClock(answer);
  if (answer.status === 503) {
    delay = Math.max(delay, 1000 * (Number(answer.headers.get("Retry-After")) || 1));
    return false;
  }
  if (!answer.ok) return answer.status !== 429 && answer.status !== 502;
  if (!(answer.headers.get("Content-Type") ?? "").startsWith("text/html")) return true;
  const made = $("[data-waiting]", new DOMParser().parseFromString(await answer.text(), "text/html"));
  if (!made) return true;
  const old = $("[data-waiting]");
  if (!old.contains(document.activeElement)) {
    document.adoptNode(made);
    refreshTimes(made);
    old.replaceWith(made);
  }
  return false;
}

while (true) {
  await new Promise((resolve) => setTimeout(resolve, delay));
  await seen();
  try {
    if (await ready()) {
      location.reload();
      break;
    }
    delay = Math.min(delay * 1.15, 4000);
  } catch {
    delay = Math.min(delay * 2, 10_000);
  }
}
