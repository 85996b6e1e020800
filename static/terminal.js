// @ts-check
// Terminals of one session: a tab each, over a WebSocket beside this page. Binary frames are
// bytes, text frames are JSON. A broken line is taken up again, waiting longer each time;
// the agent then sends what was missed. So is one that is only silent: the agent says every
// 20 s that it is alive.

import { Terminal } from "./vendor/xterm.mjs";
import { FitAddon } from "./vendor/addon-fit.mjs";
import { $, ask, backOff, element, seen } from "./dom.js";

const DARK = {
  background: "#11151b",
  foreground: "#d7dde6",
  cursor: "#93a5ff",
  cursorAccent: "#11151b",
  selectionBackground: "#3b4a86",
  black: "#2a313c",
  red: "#ff8f86",
  green: "#5fd3a6",
  yellow: "#f0b657",
  blue: "#93a5ff",
  magenta: "#e08ad0",
  cyan: "#6cc3f0",
  white: "#d7dde6",
  brightBlack: "#7f8a99",
  brightRed: "#ffb3ad",
  brightGreen: "#8ee6c3",
  brightYellow: "#ffd28a",
  brightBlue: "#b8c3ff",
  brightMagenta: "#f0b5e4",
  brightCyan: "#a0dbfa",
  brightWhite: "#ffffff",
};
const LIGHT = {
  background: "#ffffff",
  foreground: "#1b2028",
  cursor: "#3651d4",
  cursorAccent: "#ffffff",
  selectionBackground: "#cdd6fb",
  black: "#1b2028",
  red: "#b3261e",
  green: "#116a50",
  yellow: "#855300",
  blue: "#3651d4",
  magenta: "#96327f",
  cyan: "#09618f",
  white: "#566070",
  brightBlack: "#6b7585",
  brightRed: "#c8382f",
  brightGreen: "#13795b",
  brightYellow: "#8f5a00",
  brightBlue: "#4a63dd",
  brightMagenta: "#a13b8f",
  brightCyan: "#0b6a9c",
  brightWhite: "#1b2028",
};
const light = matchMedia("(prefers-color-scheme: light)");
const theme = () =>
  ({ light: LIGHT, dark: DARK })[document.documentElement.dataset.theme] ?? (light.matches ? LIGHT : DARK);
light.addEventListener("change", () => {
  for (const tab of open.values()) tab.terminal.options.theme = theme();
});

// The close code of a terminal whose shell is gone; any other is a broken line.
const ENDED = 1000;
const SILENCE = 50_000;
// As many as the agent opens.
const MOST = 8;
const tabs = $("#tabs"),
  screens = $("#screens"),
  link = $("#link");
const open = new Map();
let current = null;

class Tab {
  constructor(number) {
    this.number = number;
    this.pause = backOff(500, 15_000);
    this.closed = false;
    this.screen = element("div", {
      class: "screen",
      id: `screen-${number}`,
      role: "tabpanel",
      "aria-labelledby": `tab-${number}`,
    });
    this.button = element(
      "button",
      { type: "button", role: "tab", id: `tab-${number}`, "aria-controls": `screen-${number}` },
      `Terminal ${number}`,
    );
    this.button.addEventListener("click", () => show(number));
    tabs.append(this.button);
    screens.append(this.screen);
    this.terminal = new Terminal({
      theme: theme(),
      fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", monospace',
      fontSize: 14,
      lineHeight: 1.2,
      scrollback: 10_000,
      cursorBlink: !matchMedia("(prefers-reduced-motion: reduce)").matches,
      screenReaderMode: false,
    });
    this.fit = new FitAddon();
    this.terminal.loadAddon(this.fit);
    this.terminal.open(this.screen);
    this.terminal.textarea?.setAttribute("aria-label", `Terminal ${number}`);
    const bytes = new TextEncoder();
    this.terminal.onData((text) => this.send(bytes.encode(text)));
    this.terminal.onBinary((text) => this.send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
    this.terminal.onResize(() => this.sendSize());
    this.terminal.onTitleChange((title) => {
      this.button.textContent = title.slice(0, 24) || `Terminal ${number}`;
    });
    this.connect();
  }

  connect() {
    const address = new URL(`./pty?terminal=${this.number}`, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    let wasOpen = false;
    const socket = (this.socket = new WebSocket(address));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      wasOpen = true;
      this.pause.reset();
      // The agent replays its scrollback on every connection, so what is shown starts anew.
      this.terminal.reset();
      this.fit.fit();
      this.sendSize();
      report();
    };
    let silence = null;
    socket.onmessage = (event) => {
      if (typeof event.data !== "string") return this.terminal.write(new Uint8Array(event.data));
      // An agent of an earlier version says nothing of the kind, and is not waited for.
      clearTimeout(silence);
      silence = setTimeout(lost, SILENCE);
    };
    // A browser waits a minute for the farewell of somebody who says nothing; we do not.
    const lost = () => {
      socket.onclose = null;
      socket.close();
      over({});
    };
    const over = async (event) => {
      clearTimeout(silence);
      report();
      if (this.closed) return;
      if (event.code === ENDED && wasOpen) return this.end(event.reason || "the terminal has ended");
      await this.pause.wait();
      await seen();
      if (!this.closed && (await alive())) this.connect();
    };
    socket.onclose = over;
  }

  send(bytes) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(bytes);
  }

  sendSize() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ resize: { cols: this.terminal.cols, rows: this.terminal.rows } }));
  }

  end(words) {
    if (this.closed) return;
    this.closed = true;
    this.socket?.close();
    const again = element(
      "button",
      { type: "button", class: "btn small" },
      open.size === 1 ? "New terminal" : "Close tab",
    );
    again.addEventListener("click", () => this.remove());
    this.screen.append(element("div", { class: "ended-line", role: "status" }, words, again));
    report();
    // A shell often ends because its session does, and then this page says why that was.
    for (const seconds of [1, 3, 8]) setTimeout(() => open.has(this.number) && alive(), seconds * 1000);
  }

  // Ends its shell, after asking when that may still be doing something.
  async close() {
    const running = !this.closed;
    if (running && !(await ask(`Close terminal ${this.number}? Programs running in it are ended.`, "Yes, close it")))
      return;
    this.closed = true;
    if (running) await fetch(`./ptys/${this.number}`, { method: "DELETE" }).catch(() => {});
    this.socket?.close();
    this.remove();
  }

  remove() {
    this.terminal.dispose();
    this.screen.remove();
    this.button.remove();
    open.delete(this.number);
    if (open.size === 0) add();
    else show([...open.keys()].at(-1));
  }
}

// Whether the session still answers; once it does not, this page says why.
async function alive() {
  try {
    const answer = await fetch("./ptys", {
      headers: { Accept: "application/json" },
      cache: "no-store",
      redirect: "manual",
    });
    if (answer.type === "opaqueredirect" || [401, 404, 410].includes(answer.status)) {
      location.reload();
      return false;
    }
  } catch {
    /* the portal itself is away: try again */
  }
  return true;
}

function report() {
  const tab = open.get(current);
  const connected = tab?.socket?.readyState === WebSocket.OPEN;
  const lost = tab && !tab.closed && !connected;
  link.classList.toggle("lost", Boolean(lost));
  link.textContent = lost ? "Connecting…" : "";
}

function show(number) {
  current = number;
  for (const tab of open.values()) {
    const is = tab.number === number;
    tab.button.setAttribute("aria-selected", String(is));
    tab.button.tabIndex = is ? 0 : -1;
    tab.screen.hidden = !is;
  }
  const tab = open.get(number);
  tab.fit.fit();
  tab.terminal.focus();
  $("#new-tab").disabled = MOST <= open.size;
  report();
}

function add(number) {
  if (number == null) {
    number = 1;
    while (open.has(number)) number++;
  }
  open.set(number, new Tab(number));
  show(number);
}

tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const numbers = [...open.keys()];
  const next = numbers[(numbers.indexOf(current) + step + numbers.length) % numbers.length];
  show(next);
  open.get(next).button.focus();
});
$("#new-tab").addEventListener("click", () => add());
$("#close-tab").addEventListener("click", () => open.get(current)?.close());
new ResizeObserver(() => {
  for (const tab of open.values()) if (!tab.screen.hidden) tab.fit.fit();
}).observe(screens);

let numbers = [];
try {
  const answer = await fetch("./ptys", { headers: { Accept: "application/json" } });
  if (answer.ok) numbers = (await answer.json()).items.map((row) => row.terminal);
} catch {
  /* none known: start with the first */
}
for (const number of numbers.length ? numbers : [1]) add(number);
show([...open.keys()][0]);
