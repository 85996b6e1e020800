// @ts-check
// A dialog that chooses a folder for a text field: `<button data-choose-folder="FIELD">`. The
// folders come from the API, a level at a time; everything is a button or a link, so that the
// keyboard reaches it. What is typed into the field by hand counts as before.

import { $, $$, announce, element } from "./dom.js";

const proof = $("input[name=csrf_token]")?.value ?? "";

async function api(address, options = {}) {
  const answer = await fetch(`/api/v1/files${address}`, {
    ...options,
    headers: { "X-CSRF-Token": proof, "Content-Type": "application/json" },
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.detail ?? said.title ?? `Status ${answer.status}`);
  return said;
}

function icon(name) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg"),
    use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  made.setAttribute("class", "icon");
  made.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `/static/icons.svg#${name}`);
  made.append(use);
  return made;
}

async function choose(field) {
  const trail = element("ol"),
    list = element("ul", { class: "folders", "aria-label": "Folders here" });
  const words = element("p", { class: "muted", role: "status" });
  const name = element("input", {
    class: "input",
    "aria-label": "Name of a new folder",
    placeholder: "New folder",
    maxlength: "255",
    autocomplete: "off",
    spellcheck: "false",
  });
  const make = element("button", { class: "btn", type: "button" }, "Create");
  const take = element("button", { class: "btn primary", type: "button" }, "Choose this folder");
  const close = element("button", { class: "btn", type: "button" }, "Cancel");
  const dialog = element(
    "dialog",
    { class: "chooser", "aria-labelledby": "chooser-title" },
    element("h2", { id: "chooser-title" }, "Choose a folder"),
    element("nav", { class: "trail", "aria-label": "Folders above" }, trail),
    list,
    words,
    element("div", { class: "inline" }, name, make),
    element("div", { class: "inline end" }, close, take),
  );
  let here = null,
    roots = [];

  function button(label, work, drawing) {
    const made = element(
      "button",
      { class: "link", type: "button" },
      drawing && icon(drawing),
      element("bdi", {}, label),
    );
    made.addEventListener("click", work);
    return made;
  }

  async function open(path, cursor = null) {
    words.textContent = "Loading…";
    let folder;
    try {
      folder = await api(`?folders=true&limit=200&path=${path}${cursor ? `&cursor=${cursor}` : ""}`);
    } catch (error) {
      words.textContent = error.message;
      if (!here) {
        take.disabled = make.disabled = true;
      }
      return;
    }
    take.disabled = make.disabled = false;
    here = folder;
    make.disabled = name.disabled = !folder.writable;
    const root = roots
      .filter((one) => `${folder.encoded_path}/`.startsWith(`${one.encoded_path}/`))
      .sort((a, b) => b.encoded_path.length - a.encoded_path.length)[0];
    const crumbs = [...roots.filter((one) => one !== root), ...(root ? [root] : [])].map((one) => [
      one.name,
      one.encoded_path,
    ]);
    let above = root?.encoded_path ?? "";
    for (const part of folder.encoded_path.slice(above.length).split("/").filter(Boolean)) {
      above += `/${part}`;
      crumbs.push([readable(part), above]);
    }
    trail.replaceChildren(
      ...crumbs.map(([label, address], index) => {
        const made = button(label, () => open(address));
        if (index === crumbs.length - 1) made.setAttribute("aria-current", "page");
        return element("li", {}, made);
      }),
    );
    const rows = folder.items.map((item) =>
      element(
        "li",
        {},
        button(item.name, () => open(item.encoded_path), "folder"),
      ),
    );
    if (folder.next_cursor)
      rows.push(
        element(
          "li",
          {},
          button("Show more", () => open(folder.encoded_path, folder.next_cursor)),
        ),
      );
    list.replaceChildren(...rows);
    words.textContent = folder.items.length ? "" : "No folders here.";
    announce(`${folder.path}: ${folder.total} ${folder.total === 1 ? "folder" : "folders"}`);
    (list.querySelector("button") ?? take).focus();
  }

  make.addEventListener("click", async () => {
    if (!name.value.trim() || !here) return name.focus();
    try {
      const made = await api("/folders", {
        method: "POST",
        body: JSON.stringify({ path: `${here.path}/${name.value.trim()}` }),
      });
      name.value = "";
      await open(made.encoded_path);
    } catch (error) {
      words.textContent = error.message;
    }
  });
  name.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      make.click();
    }
  });
  take.addEventListener("click", () => {
    field.value = here.path;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    dialog.close();
  });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    field.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  words.textContent = "Loading…";
  try {
    roots = (await api("/roots")).items;
  } catch (error) {
    words.textContent = error.message;
    take.disabled = make.disabled = true;
    return;
  }
  // Where the field stands already, else the home.
  const typed = field.value.trim();
  if (typed) await open(encodeURIComponent(typed));
  if (!here) {
    const wrong = typed ? words.textContent : "";
    await open(roots[0].encoded_path);
    if (wrong && here) words.textContent = wrong;
  }
}

function readable(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

for (const opener of $$("[data-choose-folder]")) {
  opener.addEventListener("click", () => choose($(`#${opener.dataset.chooseFolder}`)));
}
