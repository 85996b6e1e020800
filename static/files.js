// @ts-check
// Uploads on the page of files: by button, by dropping, one after the other in pieces, with
// progress. A piece that is lost is sent again from where the portal says it stands; what was
// interrupted by a reload is remembered in this browser until the file is chosen again.

import { $, announce, ask, backOff, element, humanDuration, humanSize, seen } from "./dom.js";

const PIECE = 8 * 2 ** 20;
const place = $("#uploads"),
  input = $("#files"),
  drop = $("#drop");
const folder = place.dataset.folder,
  path = decodeURIComponent(folder),
  most = Number(place.dataset.most);
const memory = "lyceum-uploads";
const queue = [];
let busy = null;

const proof = { "X-CSRF-Token": place.dataset.csrf };
async function api(method, address, body) {
  const headers = body ? { ...proof, "Content-Type": "application/json" } : proof;
  const answer = await fetch(`/api/v1/files${address}`, { method, headers, body: body && JSON.stringify(body) });
  const said = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok)
    throw Object.assign(new Error(said.detail ?? said.title ?? `Status ${answer.status}`), { status: answer.status });
  return said;
}

// What is under way, kept over reloads: { id, folder, name, size, changed }.
const recall = () => {
  try {
    return JSON.parse(localStorage.getItem(memory)) ?? [];
  } catch {
    return [];
  }
};
const keep = (list) => {
  try {
    localStorage.setItem(memory, JSON.stringify(list));
  } catch {
    /* then a reload forgets it */
  }
};
const remember = (one) => keep([...recall().filter((other) => other.id !== one.id), one]);
const forget = (id) => keep(recall().filter((one) => one.id !== id));

// One line of the list: what it says, how far it is, and its buttons.
function line(name) {
  const words = element("span", { class: "muted", role: "status" }),
    bar = element("progress", { max: "1", value: "0", "aria-label": `Progress of ${name}` });
  const buttons = element("span", { class: "inline" });
  const row = element(
    "div",
    { class: "upload" },
    element("p", {}, element("b", {}, element("bdi", {}, name)), " ", words),
    buttons,
    bar,
  );
  place.append(row);
  place.hidden = false;
  return {
    row,
    say: (text, bad = false) => {
      words.textContent = text;
      row.classList.toggle("failed", bad);
    },
    progress: (share) => {
      bar.hidden = share == null;
      if (share != null) bar.value = share;
    },
    offer: (...offered) =>
      buttons.replaceChildren(
        ...offered.map(([label, work]) => {
          const button = element(
            "button",
            { class: "btn small", type: "button", "aria-label": `${label}: ${name}` },
            label,
          );
          button.addEventListener("click", work);
          return button;
        }),
      ),
    remove: () => {
      row.remove();
      place.hidden = !place.children.length;
    },
  };
}

function add(file, earlier = null) {
  const upload = {
    file,
    id: earlier?.id ?? null,
    offset: 0,
    paused: false,
    gone: false,
    request: null,
    shown: earlier?.shown ?? line(file.name),
  };
  upload.shown.say("queued");
  upload.shown.progress(0);
  upload.shown.offer(["Cancel", () => cancel(upload)]);
  queue.push(upload);
  next();
}

async function next() {
  if (busy || !queue.length) return;
  busy = queue.shift();
  await run(busy).catch((error) => fail(busy, error));
  const done = busy.done;
  busy = null;
  if (queue.length) next();
  else if (done && !place.querySelector(".failed, .waiting")) location.reload();
}

function fail(upload, error) {
  if (upload.gone) return;
  upload.shown.say(error.message, true);
  upload.shown.progress(null);
  upload.shown.offer(["Try again", () => add(upload.file, upload)], ["Dismiss", () => cancel(upload)]);
  announce(`${upload.file.name}: ${error.message}`);
}

async function run(upload) {
  const { file, shown } = upload;
  if (most < file.size) throw new Error(`The file is larger than ${humanSize(most)}, the limit for uploads.`);
  if (upload.gone) return;
  if (!upload.id) await begin(upload);
  if (upload.gone || !upload.id) return;
  remember({ id: upload.id, folder, name: file.name, size: file.size, changed: file.lastModified });
  const buttons = () => shown.offer(["Pause", () => pause(upload)], ["Cancel", () => cancel(upload)]);
  buttons();
  const patience = backOff(500, 15_000);
  let fresh = Boolean(upload.offset);
  while (!upload.gone) {
    if (upload.paused) {
      await new Promise((resume) => {
        upload.resume = resume;
      });
      buttons();
      fresh = false;
      continue;
    }
    try {
      if (!fresh) {
        upload.offset = (await api("GET", `/uploads/${upload.id}`)).offset_bytes;
        fresh = true;
        // The user may have paused or cancelled it during that request.
        if (upload.paused || upload.gone) continue;
      }
      if (upload.offset === file.size) break;
      upload.offset = await send(upload);
      patience.reset();
    } catch (error) {
      if (upload.gone || upload.paused) continue;
      if (error.status === 404) {
        forget(upload.id);
        upload.id = null;
        throw error;
      }
      // What the portal refuses for good is told; what is lost on the way is tried again.
      if (error.status && error.status !== 409 && error.status < 500 && error.status !== 429 && error.status !== 400)
        throw error;
      if (error.status === 409 && error.offset == null) throw error;
      fresh = false;
      shown.say("connection lost; retrying…");
      await patience.wait();
      await seen();
    }
  }
  if (upload.gone) return;
  shown.say("finishing…");
  shown.offer();
  try {
    await api("POST", `/uploads/${upload.id}/finish`);
  } catch (error) {
    if (error.status !== 404) throw error;
    // The answer to an earlier try may have been lost.
    const there = await api("GET", `/info?path=${folder}/${encodeURIComponent(file.name)}`);
    if (there.size_bytes !== file.size) throw error;
  }
  forget(upload.id);
  upload.done = true;
  shown.say(`${humanSize(file.size)}, done`);
  shown.progress(1);
  shown.offer();
  announce(`${file.name} is uploaded`);
}

async function begin(upload) {
  const { file } = upload;
  const asked = { path: `${path}/${file.name}`, size_bytes: file.size };
  try {
    upload.id = (await api("POST", "/uploads", asked)).id;
  } catch (error) {
    const there =
      error.status === 409 &&
      (await api("GET", `/info?path=${folder}/${encodeURIComponent(file.name)}`).catch(() => null));
    if (!there || there.kind !== "file") throw error;
    if (!(await ask(`${file.name} already exists. Replace it?`, "Yes, replace it"))) return cancel(upload);
    upload.id = (await api("POST", "/uploads", { ...asked, replace: true })).id;
  }
}

// Sends one piece; answers the new offset. XMLHttpRequest tells how far it is, fetch does not.
function send(upload) {
  const { file, shown, offset } = upload,
    from = performance.now();
  const piece = file.slice(offset, offset + PIECE);
  return new Promise((done, failed) => {
    const request = (upload.request = new XMLHttpRequest());
    request.open("PATCH", `/api/v1/files/uploads/${upload.id}`);
    request.timeout = 300_000;
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.setRequestHeader("X-CSRF-Token", proof["X-CSRF-Token"]);
    request.setRequestHeader("Upload-Offset", String(offset));
    request.upload.onprogress = (event) => {
      const sent = offset + event.loaded,
        speed = (event.loaded / Math.max(1, performance.now() - from)) * 1000;
      shown.progress(sent / file.size);
      shown.say(
        `${humanSize(sent)} of ${humanSize(file.size)}${speed ? `, ${humanDuration((file.size - sent) / speed)} left` : ""}`,
      );
    };
    const lost = () => failed(new Error("The connection was lost."));
    request.onerror = request.ontimeout = request.onabort = lost;
    request.onload = () => {
      const said = (() => {
        try {
          return JSON.parse(request.responseText);
        } catch {
          return {};
        }
      })();
      if (request.status === 200) return done(said.offset_bytes);
      const right = request.getResponseHeader("Upload-Offset");
      failed(
        Object.assign(new Error(said.detail ?? `Status ${request.status}`), {
          status: request.status,
          offset: right == null ? null : Number(right),
        }),
      );
    };
    request.send(piece);
  });
}

function pause(upload) {
  upload.paused = true;
  upload.request?.abort();
  upload.shown.say(`paused at ${humanSize(upload.offset)}`);
  upload.shown.offer(
    [
      "Resume",
      () => {
        upload.paused = false;
        upload.resume?.();
      },
    ],
    ["Cancel", () => cancel(upload)],
  );
}

async function cancel(upload) {
  upload.gone = true;
  upload.request?.abort();
  upload.resume?.();
  const at = queue.indexOf(upload);
  if (0 <= at) queue.splice(at, 1);
  upload.shown.remove();
  if (!upload.id) return;
  forget(upload.id);
  await api("DELETE", `/uploads/${upload.id}`).catch(() => {});
}

// What an earlier visit left unfinished in this folder waits for its file.
for (const left of recall().filter((one) => one.folder === folder)) {
  const shown = line(left.name);
  shown.row.classList.add("waiting");
  shown.say(`was interrupted; choose the file again to resume (${humanSize(left.size)})`);
  api("GET", `/uploads/${left.id}`).then(
    (stands) => shown.progress(left.size ? stands.offset_bytes / left.size : 1),
    (error) => {
      if (error.status === 404) {
        forget(left.id);
        shown.remove();
      }
    },
  );
  shown.offer(["Choose file", () => input?.click()], ["Cancel", () => cancel({ id: left.id, shown })]);
  left.shown = shown;
  (place.left ??= []).push(left);
}

function take(files) {
  for (const file of files) {
    const left = (place.left ?? []).find(
      (one) => one.name === file.name && one.size === file.size && one.changed === file.lastModified,
    );
    if (left) {
      place.left.splice(place.left.indexOf(left), 1);
      left.shown.row.classList.remove("waiting");
    }
    add(file, left);
  }
}

$("#choose-files")?.addEventListener("click", () => input.click());
const takeChosen = () => {
  take([...input.files]);
  input.value = "";
};
input?.addEventListener("change", takeChosen);
// Files can be chosen before this script has run; no event tells of them then.
if (input?.files.length) takeChosen();

if (drop && "writable" in drop.dataset) {
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (holdsFiles(event)) {
      event.preventDefault();
      drop.classList.add("over");
    }
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) drop.classList.remove("over");
  });
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    drop.classList.remove("over");
    const items = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.());
    const folders = items.filter((item) => item?.isDirectory).map((item) => item.name);
    const files = [...event.dataTransfer.files].filter((file) => !folders.includes(file.name));
    if (folders.length) {
      const shown = line(folders.join(", "));
      shown.progress(null);
      shown.say(
        "Folders cannot be uploaded. Pack the folder into an archive, or create the folder and drop its files.",
        true,
      );
      shown.offer(["Dismiss", shown.remove]);
    }
    take(files);
  });
}

// Leaving while something is sent is asked about; nothing is lost either way.
addEventListener("beforeunload", (event) => {
  if (busy && !busy.done && !busy.paused) event.preventDefault();
});
