// The page: tabs, dial, theme and links. Each tab starts when it is first opened.

import { addressOf, levelFrom, readAddress } from "./parts/address.js";
import { makeDial, level, levelName, levelTitle, levelWords, setLevel } from "./parts/dial.js";
import { say, showNotice } from "./parts/notice.js";
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
  for (const place of document.querySelectorAll("[data-level]")) place.textContent = level.k === level.n ? "the same" : levelName();
  document.getElementById("dial-title").textContent = levelTitle();
  document.getElementById("dial-words").textContent = levelWords();
};
for (const kind of ["change", "ring"]) level.addEventListener(kind, showLevel);
level.addEventListener("change", () => {
  document.getElementById("draws").value = level.n;
  document.dispatchEvent(new Event("address"));
});
showLevel();
document.getElementById("dial-less").addEventListener("click", () => setLevel(level.k + 1));
document.getElementById("dial-more").addEventListener("click", () => setLevel(level.k - 1));
document.getElementById("draws").addEventListener("change", (event) => {
  const n = Number(event.target.value);
  setLevel(Math.max(1, Math.round((level.k * n) / level.n)), n);
});

// Links into the documentation, where the page is part of it. The package comes without it: then the tabs' links lead to the
// last tab, which names the pages.
const docs = document.body.dataset.docs;
for (const link of document.querySelectorAll("[data-doc]")) {
  if (docs) link.href = docs + link.dataset.doc;
  else if (!link.closest("#room-about")) link.href = "#about";
  else if (link.closest(".pages")) link.replaceWith(Object.assign(document.createElement("code"), { textContent: `docs/${link.dataset.doc.replace(".html", ".md")}` }));
  else link.remove();
}
document.getElementById("pages-where").hidden = Boolean(docs);
const source = document.getElementById("source");
if (document.body.dataset.source) source.href = document.body.dataset.source;
else source.remove();
if (window.top !== window) for (const link of document.querySelectorAll("[data-doc], #source")) link.target = "_top";

// Tabs
const tabs = [...document.querySelectorAll("[role=tab]")];
let shown = "draw";

function show(name) {
  shown = name;
  for (const tab of tabs) {
    const own = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(own));
    tab.tabIndex = own ? 0 : -1;
    document.getElementById(`room-${tab.id.slice(4)}`).hidden = !own;
  }
  for (const [other, room] of Object.entries(opened)) if (other !== name) room.leave?.();
  if (!opened[name]) {
    try {
      opened[name] = rooms[name]();
    } catch (error) {
      say(name, `This tab could not open: ${error.message}`);
    }
  }
  showNotice(name);
  opened[name]?.enter?.();
}

const focusHeading = () => document.querySelector(`#room-${shown} h1`).focus();

function open(name) {
  history.replaceState(null, "", `#${name}`);
  show(name);
  writeSoon();
}

// The address follows what is shown, once nothing has changed for a moment: browsers allow few changes in a row.
let writing = 0;
const writeSoon = () => {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const { k, n } = level;
    const parts = { level: k === 1 && n === 20 ? "" : `${k}-of-${n}`, ...opened[shown]?.address?.() };
    history.replaceState(null, "", addressOf(shown, parts));
  }, 400);
};

/** The tab of the address, or the one that is shown where the address names none. */
const named = () => tabs.map((tab) => tab.id.slice(4)).find((name) => name === readAddress().room) ?? shown;

/** Take the level from the address, if it names a tab. */
function takeLevel() {
  const { room, level: text } = readAddress();
  const asked = levelFrom(text);
  if (asked && room in rooms) setLevel(...asked);
}

tabs.forEach((tab, number) => {
  tab.addEventListener("click", () => open(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const next = { ArrowRight: number + 1, ArrowLeft: number - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const other = tabs[(next + tabs.length) % tabs.length];
    open(other.id.slice(4));
    other.focus();
  });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  focusHeading();
});
window.addEventListener("hashchange", () => {
  const name = named();
  takeLevel();
  if (name === readAddress().room) opened[name]?.visit?.(readAddress());
  if (name === shown) return;
  show(name);
  focusHeading(); // a link led here
});
window.playgroundStarted();
takeLevel();
show(named());
document.addEventListener("address", writeSoon); // from now on: what was asked for has been read
