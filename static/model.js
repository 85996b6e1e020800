// @ts-check
// A model's page follows its training to the end, draws what a threshold on its confidence would
// come to, and sends pictures that it is asked about; the page of an answer comes again when there
// is more of it. Wherever boxes are drawn, a slider hides those with a low score.

import { $, $$ } from "./dom.js";

const wait = () => new Promise((done) => setTimeout(done, document.hidden ? 15000 : 2500));

/** Asks again and again what the portal knows, and draws the page anew once that is another thing than it shows. */
async function follow(api, is_news) {
  for (;;) {
    await wait();
    const answer = await fetch(api).catch(() => null);
    if (answer?.ok && is_news(await answer.json())) return location.reload();
  }
}
const done = ({ progress }) => String(progress?.done ?? "");

const state = $("#model-state")?.dataset;
if (state?.state === "training") {
  follow(`/api/v1/models/${state.model}`, (model) => {
    if (model.progress) progressed(model.progress);
    return model.state !== state.state;
  });
}

/** Shows how far a training is, in the words in which the portal writes it. */
function progressed({ epoch, epochs, step, steps, seconds_left }) {
  const bar = $("#training progress");
  if (!bar) return;
  [bar.max, bar.value] = [steps, step];
  const seconds = Math.round(seconds_left),
    hours = Math.floor(seconds / 3600),
    minutes = Math.floor(seconds / 60) % 60;
  const left = hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
  $("#training-words").textContent = `Epoch ${epoch} of ${epochs}, step ${step} of ${steps}, about ${left} left`;
}

// The drawings come after the answer.
const answer = $("#answer-state")?.dataset;
if (answer && (answer.state === "waiting" || (answer.live === "true" && !$(".drawings")))) {
  follow(
    answer.api,
    (test) =>
      test.state !== answer.state || done(test) !== answer.done || (answer.state === "answered" && test.inspection),
  );
}

// What is looked at before a training: pictures first, layers afterwards.
const preview = $("#preview-state")?.dataset;
if (preview?.state === "waiting") {
  follow(preview.api, ({ state, samples }) => state !== preview.state || samples.length !== Number(preview.samples));
}

// A model in fewer bits: each precision as it is measured.
const precisions = $("#precisions")?.dataset;
if (precisions?.state === "waiting")
  follow(precisions.api, (found) => found.state !== precisions.state || done(found) !== precisions.done);

const form = $("#ask");

/** Asks the portal; a refusal is an error in its words. */
async function ask(method, path, body, headers = {}) {
  const json = typeof body === "object" && !(body instanceof Blob) ? { "Content-Type": "application/json" } : {};
  const answer = await fetch(`/api/v1${path}`, {
    method,
    headers: { "X-CSRF-Token": form.dataset.csrf, ...json, ...headers },
    body: body instanceof Blob ? body : body && JSON.stringify(body),
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok)
    throw new Error(
      said.errors?.map((fault) => fault.message).join(" ") ||
        said.detail ||
        `The portal returned status ${answer.status}.`,
    );
  return said;
}

// Several pictures go into a folder of their own, which is then asked about as a whole.
async function lay(files, says) {
  const now = new Date().toISOString().slice(0, 19).replace(/[-:]/g, "").replace("T", "-");
  const folder = `~/uploads/images-${now}-${crypto.getRandomValues(new Uint16Array(1))[0]}`;
  const make = (path) => ask("POST", "/files/folders", { path });
  // Only the first time is there no place for it.
  await make(folder).catch(() => make("~/uploads").then(() => make(folder)));
  for (const [at, file] of files.entries()) {
    says.textContent = `${at} of ${files.length} uploaded…`;
    const { id } = await ask("POST", "/files/uploads", { path: `${folder}/${file.name}`, size_bytes: file.size });
    const kind = { "Content-Type": "application/octet-stream", "Upload-Offset": "0" };
    if (file.size > 0) await ask("PATCH", `/files/uploads/${id}`, file, kind);
    await ask("POST", `/files/uploads/${id}/finish`);
  }
  return folder;
}

form?.addEventListener("submit", async (event) => {
  const files = [...$("#upload", form).files];
  if (files.length === 0) return;
  event.preventDefault();
  const says = $("#upload-hint", form),
    button = $("button[type=submit]", form);
  says.textContent = "Uploading…";
  button.disabled = true;
  const infer = `/models/${form.dataset.model}/infer`;
  const asked = { snapshot: form.elements.snapshot.value, top: form.elements.top.value || 5 };
  const [file] = files;
  try {
    const said =
      files.length === 1
        ? // Some systems do not know what a file of theirs is.
          await ask("POST", `${infer}?${new URLSearchParams({ ...asked, name: file.name })}`, file, {
            "Content-Type": file.type.startsWith("image/") ? file.type : "image/unknown",
          })
        : await ask("POST", `${infer}?${new URLSearchParams(asked)}`, { path: await lay(files, says) });
    location.assign(`/models/${form.dataset.model}/tests/${said.id}`);
  } catch (error) {
    says.textContent = error.message;
    button.disabled = false;
  }
});

// What a classifier would answer, and how much of that rightly, from a confidence on.
async function threshold(panel) {
  const answer = await fetch(panel.dataset.api).catch(() => null);
  if (!answer?.ok) return;
  const { pictures, answered, right } = await answer.json();
  if (!pictures) return;
  const slider = $("input", panel),
    mark = $(".cut", panel),
    says = $(".says", panel);
  const line = (shares) =>
    shares.map((share, at) => (share == null ? "" : `${at * 6} ${(114 - share * 108).toFixed(1)}`)).filter(Boolean);
  const path = (points) => points.map((point, at) => `${at ? "L" : "M"}${point}`).join("");
  $(".answered.line", panel).setAttribute("d", path(line(answered.map((count) => count / pictures))));
  $(".right.line", panel).setAttribute(
    "d",
    path(line(answered.map((count, at) => (count ? right[at] / count : null)))),
  );
  const percent = (share) => `${(share * 100).toFixed(1)} %`;
  const show = () => {
    const at = Number(slider.value),
      count = answered[at],
      wrong = count - right[at];
    mark.setAttribute("x", at * 6 - 1);
    slider.setAttribute("aria-valuetext", `${at} %`);
    says.textContent = count
      ? `At ${at} %: ${count} of ${pictures} images (${percent(count / pictures)}) reach the threshold; ${percent(right[at] / count)} of these are correct, ${wrong} are wrong.`
      : `At ${at} %: none of ${pictures} images reach the threshold.`;
  };
  slider.addEventListener("input", show);
  show();
  panel.hidden = false;
}
for (const panel of $$(".threshold")) threshold(panel);

// Boxes with a lower score are hidden, in the pictures and in the list beside them.
for (const slider of $$(".score-slider input")) {
  const says = $("output", slider.parentElement);
  const scored = () => $$(`${slider.dataset.target} [data-score], .bars-table [data-score]`);
  const show = () => {
    const least = Number(slider.value) / 100;
    says.textContent = least.toFixed(2);
    let shown = 0;
    for (const one of scored()) {
      const is_below = Number(one.dataset.score) < least;
      one.classList.toggle("too-low", is_below);
      if (!is_below) shown += 1;
    }
    const nothing = $("#nothing-above");
    if (nothing) nothing.hidden = shown > 0;
  };
  slider.addEventListener("input", show);
}
