// Table: points of three classes on a plane, a belief that trains in the page, and what it does everywhere.

import { normal, uniformStream } from "../core/random.js";
import { Client, newestOnly } from "../parts/client.js";
import { level, levelName } from "../parts/dial.js";
import { clearDots, drawDots } from "../parts/dots.js";
import { cautionWords, colour, radios, rgb, sharp } from "../parts/look.js";
import { announce, say } from "../parts/notice.js";
import { SPECIES, birds } from "./penguins.js";
import { MOST_ROWS, pointsOf, readCsv, thinned, usualColumns } from "./csv.js";

const $ = (id) => document.getElementById(id);
const PLAIN_NAMES = ["A", "B", "C"];
const ASK = 3;
const ASK_PAYS = 0.4;
const FEWEST = 6;
const COARSE = 24;
const FINE = 56;
const PLAIN = [-1, 1, -1, 1];
const NO_POINT = "Point at a plane.";
const COLUMNS = ["across", "up", "kind"]; // of a file, as they are chosen

export function openTable() {
  const client = new Client();
  const state = { names: PLAIN_NAMES, hidden: [], revealed: false, points: [], kind: 0, bounds: PLAIN, grid: null, trained: false, pointer: null, note: "", here: false, run: 0 };
  const labels = () => [...state.names, "ask"];
  const status = (text, wrong = false) => {
    $("table-status").textContent = text;
    $("table-status").classList.toggle("wrong", wrong);
  };
  const failed = (error) => {
    say("table", error.message);
    status("");
    forget();
  };
  /** No verdict: there is no belief, or none for these points. */
  const forget = () => {
    state.trained = false;
    state.grid = null;
    $("training").value = 0;
    $("point-words").textContent = NO_POINT;
    $("table-chart").setAttribute("aria-label", "No rewards yet");
    clearDots($("table-chart"));
    draw();
  };

  // Training, and what comes of it
  const train = async () => {
    const run = (state.run += 1);
    state.trained = false;
    state.grid = null;
    const kinds = new Set(state.points.map(({ kind }) => kind));
    say("table", "");
    if (state.points.length < FEWEST || kinds.size < 2) {
      status(`${state.note} Add points of at least two classes, ${FEWEST} in all.`.trim(), state.wrong);
      forget();
      return;
    }
    const begun = performance.now();
    const rows = state.points.map(inUnits);
    const rewards = state.points.map(({ kind }) => labels().map((_, a) => (a === ASK ? ASK_PAYS : Number(a === kind))));
    status(`${state.note} Thirty networks are learning ${state.points.length} points …`.trim());
    const answer = await client.ask("table:train", { rows, rewards }, ({ done }) => ($("training").value = done));
    if (answer.stopped || run !== state.run) return; // there are newer points
    state.trained = true;
    status(`${state.note} Thirty networks learned ${rows.length} points in ${((performance.now() - begun) / 1000).toFixed(1)} s.`.trim());
    await paint();
    $("room-table").dataset.trained = String(rows.length);
  };
  let soon = 0;
  const changed = () => {
    draw();
    clearTimeout(soon);
    soon = setTimeout(() => train().catch(failed), 250);
  };
  const paint = newestOnly(async () => {
    if (!state.trained) return;
    const asked = { k: level.k, n: level.n, bounds: PLAIN };
    for (const size of [COARSE, FINE]) {
      if (asked.k !== level.k || asked.n !== level.n || !state.trained) return; // the dial has moved on
      state.grid = await client.ask("table:grid", { ...asked, size });
      if (!state.trained) state.grid = null;
      draw();
      tellHidden();
      if (size === COARSE) point();
    }
    $("room-table").dataset.answered = `${asked.k}-of-${asked.n}`;
  }, failed);
  const point = newestOnly(async () => {
    if (!state.trained || !state.pointer) return;
    const { x, y } = state.pointer;
    const decision = await client.ask("table:point", { k: level.k, n: level.n, row: inUnits(state.pointer) });
    if (!decision || !state.trained) return;
    drawDots($("table-chart"), { labels: labels(), ...decision });
    const act = (policy) => labels()[policy.reduce((top, share, a) => (share > policy[top] ? a : top), 0)];
    const same = level.k === level.n ? " Ordinary and cautious are the same here: turn the dial." : "";
    const words = `Ordinary: ${act(decision.ordinary)}. Cautious (${levelName()}): ${act(decision.policy)}. Caution ${decision.caution.toFixed(2)}, ${cautionWords(decision.caution)}.${same}`;
    if ($("point-words").textContent !== words) announce(words);
    $("point-words").textContent = words;
    $("table-chart").setAttribute("aria-label", `What ${decision.rewards.length / labels().length} models think each action pays at ${short(x)}, ${short(y)}. ${words}`);
  }, failed);

  // The planes
  function draw() {
    if (!state.here) return;
    const fills = ["class-0", "class-1", "class-2", "ask"].map((name) => rgb(colour(name)));
    const wash = document.documentElement.dataset.theme === "dark" ? 0.45 : 0.36;
    const card = rgb(colour("card"));
    const soft = (fill, share) => fill.map((value, i) => value * share + card[i] * (1 - share));
    for (const [who, view] of [["ordinary", "ordinary"], ["cautious", "action"]]) {
      plane($(`plane-${who}`), state.grid && ((cell) => [...soft(fills[state.grid[view][cell]], wash), 255]), fills, who === "cautious");
      $(`plane-${who}`).setAttribute("aria-label", `Plane with ${state.points.length} points, coloured by the ${who} action`);
    }
  }

  /** A value [r, g, b, opacity] for each cell of the grid, as a picture. */
  function picture(cellColour) {
    const { size } = state.grid;
    const small = document.createElement("canvas");
    small.width = small.height = size;
    const pixels = new ImageData(size, size);
    for (let cell = 0; cell < size * size; cell++) pixels.data.set(cellColour(cell), 4 * cell);
    small.getContext("2d").putImageData(pixels, 0, 0);
    return small;
  }

  /** Stripes, the stronger the more the cautious policy differs from the ordinary one. */
  function shading(width, height) {
    const layer = document.createElement("canvas");
    const ratio = window.devicePixelRatio || 1;
    Object.assign(layer, { width: width * ratio, height: height * ratio });
    const c = layer.getContext("2d");
    c.scale(ratio, ratio);
    c.strokeStyle = colour("cautious-fill");
    c.lineWidth = 2;
    c.beginPath();
    for (let x = -height; x < width; x += 9) {
      c.moveTo(x, height);
      c.lineTo(x + height, 0);
    }
    c.stroke();
    c.globalCompositeOperation = "destination-in";
    c.drawImage(picture((cell) => [0, 0, 0, 255 * state.grid.caution[cell]]), 0, 0, width, height);
    return layer;
  }

  function plane(canvas, cellColour, fills, shaded) {
    const { context: c, width, height } = sharp(canvas);
    if (cellColour) {
      c.imageSmoothingQuality = "high";
      c.drawImage(picture(cellColour), 0, 0, width, height);
      if (shaded && width > 0) c.drawImage(shading(width, height), 0, 0, width, height);
    }
    const [left, right, bottom, top] = state.bounds;
    const place = ({ x, y }) => [((x - left) / (right - left)) * width, ((top - y) / (top - bottom)) * height];
    for (const one of state.points) {
      const [x, y] = place(one);
      mark(c, x, y, one.kind, `rgb(${fills[one.kind]})`);
    }
    c.globalAlpha = 0.75;
    for (const one of state.revealed ? state.hidden : []) {
      const [x, y] = place(one);
      mark(c, x, y, one.kind, `rgb(${fills[one.kind]})`);
    }
    c.globalAlpha = 1;
    if (state.pointer) {
      const [x, y] = place(state.pointer);
      c.strokeStyle = colour("ink");
      c.lineWidth = 1.5;
      c.beginPath();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        c.moveTo(x + 4 * dx, y + 4 * dy);
        c.lineTo(x + 13 * dx, y + 13 * dy);
      }
      c.stroke();
    }
  }

  /** A circle, a square or a triangle: classes differ by more than colour. */
  function mark(c, x, y, kind, fill) {
    c.beginPath();
    if (kind === 0) c.arc(x, y, 4.5, 0, 7);
    else if (kind === 1) c.rect(x - 4, y - 4, 8, 8);
    else {
      c.moveTo(x, y - 5.5);
      c.lineTo(x + 5, y + 4);
      c.lineTo(x - 5, y + 4);
      c.closePath();
    }
    c.fillStyle = fill;
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = colour("card");
    c.stroke();
  }

  // Points
  /** A place of the plane as the models see it: both axes from -1 to 1, in steps so coarse that equal values stay equal. */
  const inUnits = ({ x, y }) => {
    const [left, right, bottom, top] = state.bounds;
    return [(x - left) / (right - left), (y - bottom) / (top - bottom)].map((share) => Math.round((2 * share - 1) * 2 ** 30) / 2 ** 30);
  };
  const place = (event, canvas) => {
    const box = canvas.getBoundingClientRect();
    const [left, right, bottom, top] = state.bounds;
    return { x: left + ((event.clientX - box.left) / box.width) * (right - left), y: top - ((event.clientY - box.top) / box.height) * (top - bottom) };
  };
  const add = (where, kind) => {
    if (state.points.length >= MOST_ROWS) {
      status(`The plane is full: ${MOST_ROWS} points train here within seconds. For more, use fit_ensemble in Python.`);
      return;
    }
    state.points.push({ ...where, kind });
    announce(`Point of class ${labels()[kind]} added, ${state.points.length} in all.`);
    changed();
  };
  for (const canvas of [$("plane-ordinary"), $("plane-cautious")]) {
    canvas.addEventListener("pointermove", (event) => {
      state.pointer = place(event, canvas);
      draw();
      point();
    });
    canvas.addEventListener("click", (event) => {
      state.pointer = place(event, canvas);
      add(state.pointer, state.kind);
    });
  }
  $("plane-cautious").addEventListener("keydown", (event) => {
    const [left, right, bottom, top] = state.bounds;
    state.pointer ??= { x: (left + right) / 2, y: (bottom + top) / 2 };
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const kind = { 1: 0, 2: 1, 3: 2, Enter: state.kind, " ": state.kind }[event.key];
    if (!step && kind === undefined) return;
    event.preventDefault();
    if (step) {
      state.pointer.x = Math.min(Math.max(state.pointer.x + 0.025 * step[0] * (right - left), left), right);
      state.pointer.y = Math.min(Math.max(state.pointer.y + 0.025 * step[1] * (top - bottom), bottom), top);
      draw();
      point();
    } else add({ ...state.pointer }, kind);
  });

  /** What both policies do about the birds that no model has seen. */
  function tellHidden() {
    const words = $("hidden-words");
    words.hidden = !state.revealed || !state.grid;
    if (words.hidden) return;
    const { size } = state.grid;
    const cells = state.hidden.map((bird) => {
      const [x, y] = inUnits(bird).map((unit) => Math.min(size - 1, Math.floor(((unit + 1) / 2) * size)));
      return (size - 1 - y) * size + x;
    });
    const asked = (view) => cells.filter((cell) => state.grid[view][cell] === ASK).length;
    words.textContent = `${cells.length} Gentoos, which no model has seen: the ordinary policy asks about ${asked("ordinary")}, the cautious one (${levelName()}) about ${asked("action")}.`;
  }

  const take = (points, bounds, note, { names = PLAIN_NAMES, hidden = [], wrong = false, file = null } = {}) => {
    Object.assign(state, { names, hidden, wrong, file, revealed: false });
    $("columns").hidden = !file || file.columns.length < 3;
    $("reveal").hidden = hidden.length === 0;
    $("reveal").textContent = "Reveal Gentoo";
    document.querySelectorAll(".palette [data-class]").forEach((button, i) => (button.lastChild.textContent = names[i]));
    tellHidden();
    legend();
    const [left, right, bottom, top] = bounds;
    const corner = { x: left + 0.78 * (right - left), y: bottom + 0.8 * (top - bottom) }; // somewhere to begin with
    Object.assign(state, { points, bounds, note, pointer: corner });
    changed();
  };
  $("table-clear").addEventListener("click", () => take([], PLAIN, ""));
  $("table-undo").addEventListener("click", () => {
    state.points.pop();
    changed();
  });
  for (const button of document.querySelectorAll("[data-preset]")) {
    button.addEventListener("click", () => take(PRESETS[button.dataset.preset](), PLAIN, ""));
  }
  $("penguins").addEventListener("click", () => {
    const [known, hidden] = [[...birds("Adelie"), ...birds("Chinstrap")], birds("Gentoo")];
    take(known, boundsOf([...known, ...hidden]), "Across: flipper in mm, up: bill depth in mm. Gentoos are hidden.", { names: SPECIES, hidden });
  });
  $("reveal").addEventListener("click", () => {
    state.revealed = !state.revealed;
    $("reveal").textContent = state.revealed ? "Hide Gentoo" : "Reveal Gentoo";
    tellHidden();
    draw();
  });
  async function open(chosen) {
    if (!chosen) return;
    try {
      const file = readCsv(await chosen.text(), chosen.name);
      const usual = usualColumns(file);
      for (const [which, column] of Object.entries(usual)) {
        const none = which === "kind" ? [new Option("no class", "-1")] : [];
        $(`column-${which}`).replaceChildren(...file.columns.map((name, i) => new Option(name, String(i))), ...none);
        $(`column-${which}`).value = String(column);
      }
      show(file);
    } catch (error) {
      refuse(error);
    }
  }
  /** The chosen columns of a file. */
  function show(file) {
    const chosen = Object.fromEntries(COLUMNS.map((which) => [which, Number($(`column-${which}`).value)]));
    try {
      const { points, names, note } = pointsOf(file, chosen);
      take(points, boundsOf(points), note, { names, file });
    } catch (error) {
      refuse(error, file);
    }
  }
  /** No verdicts about data that were there before. */
  function refuse(error, file = null) {
    take([], PLAIN, error.message, { wrong: true, file });
    status(error.message, true);
  }
  for (const which of COLUMNS) $(`column-${which}`).addEventListener("change", () => state.file && show(state.file));
  $("csv").addEventListener("change", (event) => {
    open(event.target.files[0]);
    event.target.value = "";
  });
  const zone = $("dropzone");
  const drop = (kind, act) =>
    document.addEventListener(kind, (event) => {
      if (!state.here || ![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
      event.preventDefault(); // wherever it falls: the browser would leave the page and open the file
      act(event);
    });
  drop("dragover", () => zone.classList.add("over"));
  drop("dragleave", (event) => event.relatedTarget || zone.classList.remove("over"));
  drop("drop", (event) => {
    zone.classList.remove("over");
    open(event.dataTransfer.files[0]);
  });
  radios(document.querySelector(".palette .segmented"), (button) => (state.kind = Number(button.dataset.class)));
  const legend = () => {
    $("plane-legend").replaceChildren(
      ...labels().map((name, a) => {
        const key = document.createElement("i");
        key.className = "key";
        key.style.background = colour(a === ASK ? "ask" : `class-${a}`);
        const entry = document.createElement("span");
        entry.append(key, a === ASK ? "asks" : `says ${name}`);
        return entry;
      }),
    );
  };
  level.addEventListener("change", () => {
    if (!state.here) return;
    paint();
    point();
  });
  document.addEventListener("look", () => {
    legend();
    draw();
    point();
  });
  legend();
  take(PRESETS.clusters(), PLAIN, "");

  return {
    enter() {
      state.here = true;
      draw();
      paint();
    },
    leave() {
      state.here = false;
    },
  };
}

/** The data's range with a margin, so that one sees what happens beyond it. */
function boundsOf(points) {
  const range = (values) => {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const size = Math.max(Math.abs(low), Math.abs(high));
    const margin = 0.45 * (high - low > 1e-12 * size ? high - low : size || 1); // one value only: a plane as large as it
    return [low - margin, high + margin];
  };
  return [...range(points.map(({ x }) => x)), ...range(points.map(({ y }) => y))];
}

const short = (value) => String(Number(value.toPrecision(4)));

function scattered(count, make, seed) {
  const uniform = uniformStream(seed);
  const noise = () => normal(uniform);
  return thinned(Array.from({ length: count }, (_, i) => make(i, uniform, noise))).points;
}

const PRESETS = {
  clusters: () =>
    scattered(72, (i, _, noise) => {
      const [x, y] = [[-0.45, -0.3], [0.42, -0.4], [0.05, 0.45]][i % 3];
      return { x: x + 0.09 * noise(), y: y + 0.09 * noise(), kind: i % 3 };
    }, 3),
  moons: () =>
    scattered(100, (i, uniform, noise) => {
      const angle = Math.PI * uniform();
      const flip = i % 2 ? -1 : 1;
      return { x: (flip * 0.5 * Math.cos(angle)) + flip * -0.18 + 0.035 * noise(), y: flip * (0.5 * Math.sin(angle) - 0.14) + 0.035 * noise(), kind: i % 2 };
    }, 4),
  ring: () =>
    scattered(110, (i, uniform, noise) => {
      const angle = 2 * Math.PI * uniform();
      const radius = (i % 3 ? 0.62 : 0.13) + 0.035 * noise();
      return { x: radius * Math.cos(angle), y: radius * Math.sin(angle), kind: i % 3 ? (Math.cos(angle) > 0 ? 1 : 2) : 0 };
    }, 5),
};
