// Datasets in the browser: shapes drawn for a try with the build before one's eyes, pictures of
// a folder with what is wrong among them, and an archive that is uploaded.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import * as browser from "./browser.mjs";
import { addUser, ask, startPortal } from "./portal.mjs";

let chromium, portal, person, name, home, drawer;

before(async () => {
  drawer = mkdtempSync(join(tmpdir(), "ly-datasets-"));
  chromium = await browser.openBrowser();
  portal = await startPortal({ environment: "none" });
  const ida = addUser(portal, `ida${process.pid}`);
  name = ida.name;
  home = (await ask(portal, name, "/files/roots")).items[0].path;
  person = await browser.visit(chromium, portal);
  await browser.signIn(person, ida);
  await browser.isSignedIn(person);
});

after(async () => {
  await chromium?.close();
  await portal?.stop();
  if (drawer) rmSync(drawer, { recursive: true, force: true });
});

/** Pictures of two classes, in a folder each: plain Python writes the PNG files. */
const PICTURES = `
import os, struct, sys, zlib
def png(path, width, height, pixel):
    rows = b"".join(b"\\0" + bytes(v for x in range(width) for v in pixel(x, y)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
for name, turn in (("sunrise", 0), ("nightfall", 1)):
    os.makedirs(f"pictures/{name}", exist_ok=True)
    for n in range(24):
        def pixel(x, y):
            high = y * 3 + n * 2
            return (30 + n, 20, min(255, 40 + high)) if turn else (min(255, 120 + high), min(255, 60 + x + n), 90)
        png(f"pictures/{name}/{n:03d}.png", 48 + 16 * (n % 3), 40, pixel)
`;

/** Runs Python in the home, as its owner. */
function inHome(code) {
  const { uid, gid } = statSync(home);
  execFileSync("/usr/bin/python3", ["-c", code], { cwd: home, uid, gid });
}

const check = (picture) => browser.examine(person, picture);

async function newDataset(source) {
  const { page } = person;
  await page.goto(`${portal.url}/datasets/new`);
  await page.getByRole("radio", { name: new RegExp(`^${source}`) }).check({ force: true });
}

async function newShapes(kind, count, called) {
  const { page } = person;
  await newDataset("Shapes");
  await page.getByLabel("Task").selectOption(kind);
  await page.getByLabel("Number of images").fill(String(count));
  await page.getByLabel("Name", { exact: true }).fill(called);
}

async function make() {
  const { page } = person;
  await page.getByRole("button", { name: "Create dataset" }).click();
  await page.waitForURL(/\/datasets\/[0-9a-f-]{36}$/);
}

const isReady = () =>
  browser.appears(person.page, person.page.locator(".page .state", { hasText: "ready" }), 120, "that it is ready");

test("the first visit says what to do", async () => {
  const { page } = person;
  await page.getByLabel("Main").getByRole("link", { name: "Datasets" }).click();
  await page.getByText("No datasets yet.").waitFor();
  await check("datasets-none");
  await page.getByRole("main").getByRole("link", { name: "New dataset" }).first().click();
  await page.getByRole("heading", { name: "New dataset" }).waitFor();
});

test("shapes are drawn, with the build before one's eyes", async () => {
  const { page } = person;
  await newShapes("detection", 3000, "Shapes with boxes");
  await check("dataset-new-shapes");
  await make();
  await browser.appears(page, page.getByText(/^\w[\w ]*: \d+ of 3000/), 60, "how far it is");
  await check("dataset-in-the-making");
  await isReady();
  assert.equal(await page.getByRole("row", { name: /circle|square|triangle/ }).count(), 3);
  assert.ok((await page.locator("#gallery rect.box").count()) >= 60, "boxes are drawn");
  await check("dataset-shapes");
});

test("the gallery goes on, is filtered and searched", async () => {
  const { page } = person;
  const cards = page.locator("#gallery > li");
  assert.equal(await cards.count(), 60);
  await cards.last().scrollIntoViewIfNeeded();
  await browser.appears(page, cards.nth(60), 30, "further pictures");
  await page.getByLabel("Split", { exact: true }).selectOption("val");
  await page.getByLabel("Part of a path").fill("0001");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.waitForURL(/split=val/);
  for (const caption of await cards.allTextContents()) assert.match(caption, /0001[\s\S]*val/);
  await page.goto(page.url().replace(/\?.*/, ""));
});

test("masks lie over the pictures that they are of", async () => {
  const { page } = person;
  await newShapes("segmentation", 60, "Shapes with masks");
  await make();
  await isReady();
  // The ground has one colour, give or take twelve of noise; what lies on it has another.
  const spreads = await page.locator("#gallery a.thumb").evaluateAll((links) =>
    Promise.all(
      links.slice(0, 12).map(async (link) => {
        const pixels = async (address) => {
          const picture = await createImageBitmap(await (await fetch(address)).blob());
          const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
          canvas.drawImage(picture, 0, 0);
          const { data } = canvas.getImageData(0, 0, picture.width, picture.height);
          return Array.from({ length: data.length / 4 }, (_, at) => [...data.slice(at * 4, at * 4 + 3)]);
        };
        const picture = await pixels(link.href);
        const mask = (await pixels(link.querySelectorAll("image")[1].href.baseVal)).map(String);
        const many = (key) => mask.filter((other) => other === key).length;
        const ground = [...new Set(mask)].sort((a, b) => many(b) - many(a))[0];
        const red = (wanted) => picture.filter((_, at) => (mask[at] === ground) === wanted).map(([value]) => value);
        const spread = (values) => Math.max(...values) - Math.min(...values);
        return {
          sizes: [picture.length, mask.length],
          ground: spread(red(true)),
          all: spread(picture.map(([value]) => value)),
        };
      }),
    ),
  );
  assert.equal(spreads.length, 12);
  for (const { sizes, ground } of spreads) assert.ok(sizes[0] === sizes[1] && ground <= 24, JSON.stringify(spreads));
  assert.ok(
    spreads.some(({ all }) => all > 48),
    JSON.stringify(spreads),
  );
  await check("dataset-masks");
});

test("a folder of pictures, with what is wrong among them", async () => {
  inHome(PICTURES);
  inHome(`
import shutil
shutil.copy("pictures/sunrise/003.png", "pictures/sunrise/copy.png")
open("pictures/nightfall/page.png", "w").write("<!doctype html><title>Not found</title>")
data = open("pictures/nightfall/004.png", "rb").read()
open("pictures/nightfall/cut.png", "wb").write(data[: len(data) // 2])
`);
  const { page } = person;
  await newDataset("Folder");
  await page.getByLabel("Folder or file").fill("~/pictures");
  await page.getByLabel("Folder or file").blur();
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "pictures", "a name is proposed");
  await browser.appears(page, page.getByAltText("First image with crop"), 30, "what crop makes of the first picture");
  await page.getByLabel("Width").fill("32");
  await page.getByLabel("Height").fill("32");
  await browser.appears(page, page.getByAltText("First image with half-crop"), 30, "the same again");
  await check("dataset-new-folder");
  await make();
  await isReady();
  const facts = await page.locator(".facts-list").innerText();
  assert.match(facts, /3: 2 broken, 1 duplicate/);
  await check("dataset-folder");
  await page.locator(".facts-list").getByRole("link", { name: /^3:/ }).click();
  await page.waitForURL(/split=none/);
  const broken = (await page.locator("#gallery > li").allTextContents()).join("\n");
  for (const name of ["page.png", "cut.png", "copy.png"]) assert.ok(broken.includes(name), `${name}: ${broken}`);
  await check("dataset-broken");
});

test("an archive is uploaded and read in place", async () => {
  const archive = join(drawer, "packed pictures.zip");
  const code = `
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as archive:
    for path in sorted(pathlib.Path("pictures").rglob("0*.png")):
        archive.write(path)
    archive.writestr("../../outside.png", b"no")
`;
  execFileSync("/usr/bin/python3", ["-c", code, archive], { cwd: home });
  const { page } = person;
  await newDataset("Zip");
  await page.getByLabel("Or upload an archive").setInputFiles(archive);
  await browser.appears(page, page.getByText("Uploaded", { exact: true }), 60, "that it is uploaded");
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "packed pictures");
  await check("dataset-new-zip");
  await make();
  await isReady();
  const facts = await page.locator(".facts-list").innerText();
  assert.match(facts, /1 broken/, "the name that leads out of it is listed and leads nowhere");
  const { items } = await ask(portal, name, "/datasets");
  const expected = [
    ["packed pictures", 48],
    ["pictures", 48],
    ["Shapes with masks", 60],
    ["Shapes with boxes", 3000],
  ];
  assert.deepEqual(
    items.map((one) => [one.name, one.pictures]),
    expected,
  );
});

test("what cannot be is said beside its field, and nothing is made", async () => {
  const { page } = person;
  await newDataset("Folder");
  await page.getByLabel("Folder or file").fill("~/nowhere");
  await page.getByLabel("Width").fill("0");
  await page.getByRole("button", { name: "Create dataset" }).click();
  await page.getByText("The dataset was not created.").waitFor();
  await page.getByText("File or folder not found.").first().waitFor();
  await check("dataset-new-wrong");
  assert.equal((await ask(portal, name, "/datasets")).items.length, 4);
});

test("one is renamed, shown to others and removed with its directory", async () => {
  const { page } = person;
  await page.goto(`${portal.url}/datasets`);
  await check("datasets-list");
  await page.getByRole("link", { name: "packed pictures" }).click();
  await page.getByText("Name, notes, visibility").click();
  await page.getByLabel("Name", { exact: true }).fill("Skies");
  await page.getByLabel("Visibility").selectOption("everybody");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "Skies" }).waitFor();
  await page.getByText("Name, notes, visibility").click();
  await page.getByLabel(/Also delete its directory/).check();
  await page.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: /^Yes/ }).click();
  await page.getByText("The dataset was removed.").waitFor();
  assert.equal((await ask(portal, name, "/datasets")).items.length, 3);
  browser.assertNoFaults(person, [/status of 422/]);
});
