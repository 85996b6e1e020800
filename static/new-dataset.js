// @ts-check
// The form of a new dataset: the four ways to resize, tried on the first picture of one's own;
// a name made of the folder's; and an archive that is uploaded in pieces, as on the files page.

import { $, $$ } from "./dom.js";

const form = $("#new-dataset");
const value = (name) => $(`[name="${name}"]`, form)?.value.trim() ?? "";
const source = () => $('[name="source"]:checked', form)?.value;
const hint = $("#example-hint");

function show() {
  for (const field of $$(".source-field", form)) field.hidden = !field.dataset.sources.split(" ").includes(source());
  for (const field of $$(".split-field", form)) field.hidden = value("splits") !== "folders";
}

const state = (field) => (field.type === "checkbox" ? field.checked : field.value);
const assign = (field, value) => (field.type === "checkbox" ? (field.checked = value) : (field.value = value));
// What stood in the fields that a standard set has filled in, and what it put there.
const filled = new Map();

// A standard set is built as published, unless somebody changes what this fills in. Another source gets back what
// stood there.
function fill() {
  if (source() !== "standard") {
    for (const [field, [before, put]] of filled) if (state(field) === put) assign(field, before);
    filled.clear();
    return;
  }
  const set = $("#set", form).selectedOptions[0];
  if (!set) return;
  const put = (field, wanted) => {
    filled.set(field, [filled.has(field) ? filled.get(field)[0] : state(field), wanted]);
    assign(field, wanted);
  };
  for (const name of ["width", "height"]) put($(`#${name}`, form), set.dataset.side);
  put($("#channels", form), set.dataset.channels);
  put($("#validation_percent", form), "10");
  put($('[name="keep_duplicates"]', form), true);
  const titles = [...$("#set", form).options].map((option) => option.textContent);
  if (!value("name") || titles.includes(value("name"))) put($("#name", form), set.textContent);
}

let timer = null;
function draw() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const places = $$(".example", form);
    const path =
      source() === "folder"
        ? value("path")
        : ["coco", "yolo", "voc", "cvat", "labelstudio", "kitti", "masks"].includes(source())
          ? value("path")
          : "";
    hint.textContent = "";
    for (const place of places) {
      place.hidden = true;
      if (!path) continue;
      const image = new Image();
      image.alt = `First image with ${place.dataset.resize}`;
      image.onload = () => {
        place.replaceChildren(image);
        place.hidden = false;
      };
      image.onerror = () => {
        hint.textContent = "No image found for a preview.";
      };
      const asked = new URLSearchParams({
        path,
        resize: place.dataset.resize,
        width: value("width"),
        height: value("height"),
        channels: value("channels"),
      });
      image.src = `/api/v1/dataset-example?${asked}`;
    }
  }, 400);
}

form.addEventListener("input", (event) => {
  if (["source", "splits"].includes(event.target.name)) show();
  if (["source", "set"].includes(event.target.name)) fill();
  if (["source", "path", "width", "height", "channels"].includes(event.target.name)) draw();
});
$("#path", form)?.addEventListener("change", () => {
  const last = value("path").split("/").filter(Boolean).pop();
  if (last && !value("name")) $("#name", form).value = last.replace(/\.zip$/i, "").slice(0, 64);
});
show();
draw();

const PIECE = 8 * 1024 * 1024;
const upload = $("#upload", form);

async function ask(method, path, body, headers = {}) {
  const answer = await fetch(`/api/v1/files${path}`, {
    method,
    body,
    headers: { "X-CSRF-Token": upload.dataset.csrf, ...headers },
  });
  const said = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(said.detail ?? "The upload failed.");
  return said;
}

async function send(file) {
  const json = { "Content-Type": "application/json" };
  await ask("POST", "/folders", JSON.stringify({ path: "~/uploads" }), json).catch(() => {});
  // The same file once more is the same upload, which goes on where it was.
  const key = `dataset-${file.name}-${file.size}-${file.lastModified}`.replace(/[^\x21-\x7e]/g, "_").slice(0, 255);
  let at = await ask("POST", "/uploads", JSON.stringify({ path: `~/uploads/${file.name}`, size_bytes: file.size }), {
    ...json,
    "Idempotency-Key": key,
  });
  const bar = $("#upload-progress");
  bar.hidden = false;
  while (at.offset_bytes < file.size) {
    const piece = file.slice(at.offset_bytes, at.offset_bytes + PIECE);
    at = await ask("PATCH", `/uploads/${at.id}`, piece, {
      "Content-Type": "application/octet-stream",
      "Upload-Offset": String(at.offset_bytes),
    });
    bar.value = at.offset_bytes / file.size;
  }
  return ask("POST", `/uploads/${at.id}/finish`);
}

upload?.addEventListener("change", async () => {
  const [file] = upload.files;
  if (!file) return;
  const says = $("#upload-hint");
  says.textContent = "Uploading…";
  try {
    const done = await send(file);
    const path = $("#path", form);
    path.value = done.path;
    path.dispatchEvent(new Event("change"));
    says.textContent = "Uploaded";
  } catch (error) {
    says.textContent = error.message;
  }
});
