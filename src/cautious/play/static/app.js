// The page: rooms, dial, theme and links. Each room starts when it is first opened.

import { makeDial, level, levelName, levelTitle, levelWords, setLevel } from "./parts/dial.js";
import { say } from "./parts/client.js";
import { openDraw } from "./rooms/draw.js";
import { openDrive } from "./rooms/drive.js";
import { openTable } from "./rooms/table.js";

const root = document.documentElement;
const rooms = { draw: openDraw, drive: openDrive, table: openTable, about: () => ({}) };
const opened = {};

function remembered(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // storage may be switched off
  }
}

function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // then it is not remembered
  }
}

function setTheme(theme) {
  root.dataset.theme = theme;
  document.dispatchEvent(new Event("look"));
}

setTheme(remembered("cautious-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  remember("cautious-theme", root.dataset.theme);
});
let resized = 0;
window.addEventListener("resize", () => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(() => document.dispatchEvent(new Event("look")));
});

// Dial
makeDial(document.getElementById("dial"));
const showLevel = () => {
  for (const place of document.querySelectorAll("[data-level]")) place.textContent = levelName();
  document.getElementById("dial-title").textContent = levelTitle();
  document.getElementById("dial-words").textContent = levelWords();
};
level.addEventListener("change", showLevel);
showLevel();
document.getElementById("dial-less").addEventListener("click", () => setLevel(level.k + 1));
document.getElementById("dial-more").addEventListener("click", () => setLevel(level.k - 1));
document.getElementById("draws").addEventListener("change", (event) => {
  const n = Number(event.target.value);
  setLevel(Math.max(1, Math.round((level.k * n) / level.n)), n);
});

// Links into the documentation, where the page is part of it; otherwise to the short text in the page itself.
const docs = document.body.dataset.docs;
for (const link of document.querySelectorAll("[data-doc]")) {
  if (docs) link.href = docs + link.dataset.doc;
  else if (link.closest("#room-about")) link.remove();
  else link.href = "#about";
}

// Rooms
const tabs = [...document.querySelectorAll("[role=tab]")];

function show(name, focus = false) {
  for (const tab of tabs) {
    const own = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(own));
    tab.tabIndex = own ? 0 : -1;
    document.getElementById(`room-${tab.id.slice(4)}`).hidden = !own;
    if (own && focus) tab.focus();
  }
  for (const [other, room] of Object.entries(opened)) if (other !== name) room.leave?.();
  if (!opened[name]) {
    try {
      opened[name] = rooms[name]();
    } catch (error) {
      say(`This room could not open: ${error.message}`);
    }
  }
  opened[name]?.enter?.();
}

const named = () => {
  const name = location.hash.slice(1);
  return name in rooms ? name : "draw";
};
tabs.forEach((tab, number) => {
  tab.addEventListener("click", () => {
    history.replaceState(null, "", `#${tab.id.slice(4)}`);
    show(tab.id.slice(4));
  });
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(number + step + tabs.length) % tabs.length].id.slice(4);
    history.replaceState(null, "", `#${next}`);
    show(next, true);
  });
});
window.addEventListener("hashchange", () => show(named()));
window.playgroundStarted();
show(named());
