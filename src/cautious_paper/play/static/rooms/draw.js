// Draw: a glyph, what sixty models think each answer pays, and what an ordinary and a cautious policy do with it.

import { Client, manifestOf, newestOnly } from "../parts/client.js";
import { addressOf, fine, readAddress, strokesFromText, strokesToText } from "../parts/address.js";
import { level, levelName, setLevel, showRing } from "../parts/dial.js";
import { clearDots, drawDots } from "../parts/dots.js";
import { cautionWords, colour } from "../parts/look.js";
import { announce, say } from "../parts/notice.js";
import { download, pictureOf } from "../parts/share.js";
import { SHAPES, SIDE, rasterised } from "./glyphs.js";

const HELP = 10;
const LABELS = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "help"];
const NOTHING = "·";
const CLOSE = 0.006; // points closer than this to the last one say nothing new
const SWEEP_MILLISECONDS = 160;
const RING_AFTER = 120; // milliseconds without another stroke
const REST = 8; // steps of the sweep that it stays at ordinary
const $ = (id) => document.getElementById(id);

export function openDraw() {
  const client = new Client();
  const pad = $("pad");
  const state = { strokes: [], version: 0, ring: null, image: null, sample: null, decision: null, trained: 0.25, ready: false, cursor: null, samples: [] };

  const failed = (error) => say("draw", error.message);
  const empty = () => !state.sample && state.strokes.length === 0;

  const decideNow = newestOnly(async () => {
    if (!state.looked || empty()) return;
    const help = Number($("help-reward").value) - state.trained;
    state.decision = await client.ask("images:decide", { k: level.k, n: level.n, help });
    if (empty()) showNothing();
    else show(state.decision);
    ringSoon();
  }, failed);
  const lookAround = newestOnly(async () => {
    const asked = ringName();
    if ($("room-draw").hidden || empty() || state.ring?.name === asked) return;
    const { cautions, answers } = await client.ask("images:ring", { n: level.n, help: Number($("help-reward").value) - state.trained });
    if (asked !== ringName() || $("room-draw").hidden || empty()) return;
    state.ring = { name: asked, cautions, words: flipWords(answers) };
    showRing(state.ring);
  }, failed);
  /** What the ring's colours depend on. */
  const ringName = () => `${state.version} ${level.n} ${$("help-reward").value}`;
  let ringing = 0;
  const ringSoon = () => {
    clearTimeout(ringing);
    ringing = setTimeout(lookAround, RING_AFTER);
  };
  const look = newestOnly(async (asked) => {
    if (!state.ready || empty()) return;
    await client.ask("images:look", { image: state.image });
    state.looked = true;
    await decideNow();
    $("room-draw").dataset.milliseconds = (performance.now() - asked).toFixed(1); // from stroke to answer
  }, failed);
  const changed = () => {
    state.image = state.sample ? state.sample.image : rasterised(state.strokes);
    state.version += 1;
    $("called-row").hidden = state.strokes.length === 0;
    document.dispatchEvent(new Event("address"));
    drawPad();
    if (empty()) showNothing();
    else look(performance.now());
  };

  function drawPad() {
    const c = pad.getContext("2d");
    const size = pad.width;
    c.clearRect(0, 0, size, size);
    c.strokeStyle = colour("line");
    c.lineWidth = 1;
    for (let i = 1; i < 4; i++) {
      c.strokeRect((i * size) / 4, -2, 0, size + 4);
      c.strokeRect(-2, (i * size) / 4, size + 4, 0);
    }
    const ink = colour("ink");
    if (state.sample) c.drawImage(picture(state.sample.image, ink), 0, 0, size, size);
    c.strokeStyle = ink;
    c.lineWidth = size * 0.075;
    c.lineCap = c.lineJoin = "round";
    for (const stroke of state.strokes) {
      c.beginPath();
      stroke.forEach(([x, y], i) => (i ? c.lineTo(x * size, y * size) : c.moveTo(x * size, y * size)));
      if (stroke.length === 1) c.lineTo(stroke[0][0] * size + 0.1, stroke[0][1] * size);
      c.stroke();
    }
    if (state.cursor && document.activeElement === pad) {
      c.strokeStyle = colour("cautious-fill");
      c.lineWidth = 4;
      c.beginPath();
      c.arc(state.cursor.x * size, state.cursor.y * size, state.cursor.down ? 14 : 22, 0, 2 * Math.PI);
      c.stroke();
    }
    const seen = $("seen").getContext("2d");
    seen.clearRect(0, 0, SIDE, SIDE);
    if (state.image) seen.drawImage(picture(state.image, ink), 0, 0);
    $("pad-hint").hidden = Boolean(state.sample || state.strokes.length);
    pad.setAttribute("aria-label", state.sample ? `Drawing area, showing a ${state.sample.name}` : `Drawing area, ${state.strokes.length} ${state.strokes.length === 1 ? "stroke" : "strokes"}`);
  }

  function show(decision) {
    drawDots($("draw-chart"), { labels: LABELS, ...decision });
    const usual = best(decision.ordinary);
    const careful = best(decision.policy);
    showAnswer("ordinary", usual, 1);
    showAnswer("cautious", careful, decision.policy[careful]);
    $("ordinary-why").textContent = usual === HELP ? "asking pays most on average" : `${percent(agreeing(decision, usual))} of the models would say so`;
    $("cautious-why").textContent = mix(decision.policy);
    const { caution } = decision;
    $("caution-number").textContent = caution.toFixed(2);
    $("caution-bar").style.width = `${100 * caution}%`;
    $("caution-bar").style.background = colour("cautious-fill");
    $("caution-words").textContent = cautionWords(caution);
    const words = `Ordinary: ${answer(usual)}. Cautious, ${levelName()}: ${mix(decision.policy)}. Caution ${caution.toFixed(2)}.`;
    $("draw-chart").setAttribute("aria-label", `What ${decision.heard.length} models think each answer pays. ${words}`);
    announce(words);
    $("room-draw").dataset.answered = `${level.k}-of-${level.n}`;
  }

  /** An empty pad is nothing to decide about. */
  function showNothing() {
    state.decision = state.ring = null;
    showRing(null);
    clearDots($("draw-chart"));
    $("draw-chart").setAttribute("aria-label", "No rewards: nothing is drawn");
    for (const who of ["ordinary", "cautious"]) {
      $(`${who}-answer`).textContent = NOTHING;
      $(`${who}-answer`).style.opacity = 1;
      $(`${who}-why`).textContent = "nothing is drawn yet";
    }
    $("caution-number").textContent = NOTHING;
    $("caution-bar").style.width = 0;
    $("caution-words").textContent = "";
    announce("Nothing is drawn.");
  }

  function showAnswer(who, action, share) {
    const place = $(`${who}-answer`);
    place.textContent = named(action);
    place.classList.toggle("mixed", action === HELP);
    place.style.opacity = 0.55 + 0.45 * share;
  }

  // Drawing
  const at = (event) => {
    const box = pad.getBoundingClientRect();
    return [fine((event.clientX - box.left) / box.width), fine((event.clientY - box.top) / box.height)];
  };
  const dropSample = () => {
    state.sample = null;
    for (const button of document.querySelectorAll("#samples button")) button.setAttribute("aria-pressed", "false");
  };
  pad.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    pad.setPointerCapture(event.pointerId);
    dropSample();
    state.cursor = null;
    state.strokes.push([at(event)]);
    changed();
    event.preventDefault();
  });
  pad.addEventListener("pointermove", (event) => {
    if (!pad.hasPointerCapture(event.pointerId)) return;
    for (const each of event.getCoalescedEvents?.() ?? [event]) {
      const point = at(each);
      const last = state.strokes.at(-1)?.at(-1);
      if (last && Math.hypot(point[0] - last[0], point[1] - last[1]) > CLOSE) state.strokes.at(-1).push(point);
    }
    changed();
  });
  pad.addEventListener("focus", () => {
    state.cursor ??= { x: 0.5, y: 0.5, down: false };
    drawPad();
  });
  pad.addEventListener("blur", drawPad);
  pad.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step && event.key !== " ") return;
    event.preventDefault();
    const cursor = (state.cursor ??= { x: 0.5, y: 0.5, down: false });
    if (event.key === " ") {
      cursor.down = !cursor.down;
      if (cursor.down) {
        dropSample();
        state.strokes.push([[fine(cursor.x), fine(cursor.y)]]);
      }
    } else {
      cursor.x = Math.min(Math.max(cursor.x + 0.04 * step[0], 0.04), 0.96);
      cursor.y = Math.min(Math.max(cursor.y + 0.04 * step[1], 0.04), 0.96);
      if (cursor.down) state.strokes.at(-1)?.push([fine(cursor.x), fine(cursor.y)]);
    }
    changed();
  });
  $("clear").addEventListener("click", () => {
    dropSample();
    state.strokes = [];
    changed();
    pad.scrollIntoView({ block: "nearest" }); // on a phone its top may lie under the answers
  });
  $("undo").addEventListener("click", () => {
    dropSample();
    state.strokes.pop();
    changed();
  });
  $("help-reward").addEventListener("input", (event) => {
    $("help-value").textContent = Number(event.target.value).toFixed(2);
    document.dispatchEvent(new Event("address"));
    decideNow();
  });

  // Links and pictures
  const address = () => ({
    sample: state.sample?.name,
    ink: strokesToText(state.strokes),
    name: state.strokes.length ? $("called").value : "",
    help: Number($("help-reward").value) === state.trained ? "" : $("help-reward").value,
  });
  /** Show what an address names; false where it names nothing. */
  function visit({ sample, ink, name, help }) {
    const pays = Number(help);
    $("help-reward").value = help && pays >= 0 && pays <= 1 ? pays : state.trained;
    $("help-value").textContent = Number($("help-reward").value).toFixed(2);
    const strokes = strokesFromText(ink);
    const known = sampleNamed(sample);
    if (known) choose(known);
    else if (strokes.length) {
      dropSample();
      state.strokes = strokes;
      $("called").value = (name ?? "").slice(0, 24);
      changed();
    }
    return Boolean(known || strokes.length);
  }
  const shareWords = (words) => ($("share-words").textContent = words);
  $("called").addEventListener("input", () => document.dispatchEvent(new Event("address")));
  $("copy-link").addEventListener("click", async () => {
    const link = new URL(addressOf("draw", { level: `${level.k}-of-${level.n}`, ...address() }), location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      shareWords("The link is copied. It opens this picture at this level.");
    } catch {
      history.replaceState(null, "", link);
      shareWords("The browser does not let a page copy. The address above is the link.");
    }
  });
  $("save-picture").addEventListener("click", async () => {
    if (empty() || !state.decision) return shareWords("Draw something first.");
    if (state.ring?.name !== ringName()) await lookAround();
    const [usual, careful] = [best(state.decision.ordinary), best(state.decision.policy)];
    const sentence = sentenceOf(thing(), state.decision.heard.length, usual, careful);
    const ring = state.ring?.cautions ?? [0, state.decision.caution];
    const canvas = pictureOf({ picture: picture(state.image, colour("ink")), sentence, answers: [usual, careful].map(named), ring, place: level.n - level.k });
    download(canvas, "cautious.png");
    shareWords(sentence);
  });
  const thing = () => (state.sample ? (state.sample.kind === "clothes" && state.sample.name === "trousers" ? "these trousers" : `this ${state.sample.name}`) : $("called").value.trim() || "my drawing");

  // Samples
  function choose(sample) {
    dropSample();
    state.sample = sample;
    state.strokes = [];
    sample.button.setAttribute("aria-pressed", "true");
    changed();
  }
  function offer(kind, title, samples) {
    const row = document.createElement("div");
    row.className = "sample-row";
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", title);
    const heading = document.createElement("h3");
    heading.textContent = title;
    row.append(heading);
    for (const sample of samples) {
      const button = document.createElement("button");
      button.type = "button";
      button.title = sample.name;
      button.setAttribute("aria-label", sample.name);
      button.setAttribute("aria-pressed", "false");
      const canvas = document.createElement("canvas");
      canvas.width = canvas.height = SIDE;
      button.append(canvas);
      button.addEventListener("click", () => choose(sample));
      Object.assign(sample, { kind, canvas, button });
      state.samples.push(sample);
      row.append(button);
    }
    $("samples").append(row);
  }
  const drawSamples = () => {
    for (const { canvas, image } of state.samples) {
      const c = canvas.getContext("2d");
      c.clearRect(0, 0, SIDE, SIDE);
      c.drawImage(picture(image, colour("ink")), 0, 0);
    }
  };
  const sampleNamed = (name) => state.samples.find((sample) => sample.name === name);

  // Try this
  const TRIED = { digit: "digit 3", shirt: "T-shirt" };
  for (const button of document.querySelectorAll("#room-draw [data-try]")) {
    button.addEventListener("click", () => {
      button.classList.add("done");
      const sample = sampleNamed(TRIED[button.dataset.try]);
      if (sample) choose(sample);
      setLevel(1);
      if (button.dataset.try === "dial") sweep();
    });
  }
  let sweeping = 0;
  const stopSweep = () => {
    clearInterval(sweeping);
    sweeping = 0;
  };
  /** A tour that somebody leaves is over, and leaves the dial where it began: cautious. */
  const endSweep = () => {
    if (!sweeping) return;
    stopSweep();
    setLevel(1);
  };
  /** From most cautious to ordinary, where it rests a moment, and back: so the next tab begins cautious, too. */
  function sweep() {
    if (!state.sample || state.sample.kind === "digit") choose(sampleNamed(TRIED.shirt) ?? state.samples[0]);
    stopSweep();
    let step = 0;
    sweeping = setInterval(() => {
      const there = level.n - 1;
      step += 1;
      setLevel(step <= there + REST ? 1 + step : level.n - (step - there - REST));
      if (step === 2 * there + REST) stopSweep();
    }, SWEEP_MILLISECONDS);
  }
  for (const kind of ["pointerdown", "keydown"]) {
    // A hand on the dial takes it over; a hand on anything else ends the tour.
    document.addEventListener(kind, (event) => (event.target.closest?.(".console") ? stopSweep() : endSweep()), true);
  }
  document.addEventListener("visibilitychange", () => document.hidden && endSweep());

  level.addEventListener("change", () => $("room-draw").hidden || decideNow());
  const redraw = () => {
    drawPad();
    drawSamples();
    if (state.decision) show(state.decision);
  };
  document.addEventListener("look", () => $("room-draw").hidden || redraw());

  (async () => {
    offer("shape", "Shapes", SHAPES.map(({ name, strokes }) => ({ name, image: rasterised(strokes) })));
    drawPad();
    drawSamples();
    const manifest = await manifestOf();
    state.trained = manifest.images.help_reward;
    const loading = loadPictures(manifest);
    await client.ask("images:load", { manifest: manifest.images });
    state.ready = true;
    const pictures = await loading;
    if (pictures.length === 0) say("draw", "The sample pictures cannot be loaded: weights/samples.bin is not there or not whole. Drawing works; for the pictures, reload the page, or install the package again.");
    const kinds = { clothes: "Clothes", digit: "Digits" };
    for (const [kind, title] of Object.entries(kinds)) {
      const own = pictures.filter((sample) => sample.kind === kind);
      if (own.length === 0) continue;
      offer(kind, title, own);
      $("samples").prepend($("samples").lastElementChild);
    }
    for (const button of document.querySelectorAll("#room-draw [data-try]")) button.disabled = button.dataset.try in TRIED && pictures.length === 0;
    drawSamples();
    const asked = readAddress();
    if (!empty()) changed();
    else if (asked.room !== "draw" || !visit(asked)) choose(sampleNamed(TRIED.shirt) ?? state.samples[0]);
  })().catch(failed);

  const leave = () => {
    endSweep();
    state.ring = null;
    showRing(null);
  };
  return { enter: () => { redraw(); decideNow(); }, leave, address, visit };
}

/** The sample pictures; none where they cannot be loaded: one can still draw. */
async function loadPictures(manifest) {
  let bytes = new Uint8Array();
  try {
    const response = await fetch("weights/samples.bin");
    if (response.ok) bytes = new Uint8Array(await response.arrayBuffer());
  } catch {
    // then there are none
  }
  const size = SIDE * SIDE;
  if (bytes.length !== manifest.samples.length * size) return [];
  return manifest.samples.map((sample, i) => ({ ...sample, image: bytes.slice(i * size, (i + 1) * size) }));
}

/** 784 bytes as a picture with ink of one colour. */
function picture(image, ink) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const c = canvas.getContext("2d");
  c.fillStyle = ink;
  c.fillRect(0, 0, SIDE, SIDE);
  const pixels = c.getImageData(0, 0, SIDE, SIDE);
  image.forEach((value, i) => (pixels.data[4 * i + 3] = value));
  c.putImageData(pixels, 0, 0);
  return canvas;
}

const best = (policy) => policy.reduce((top, share, a) => (share > policy[top] ? a : top), 0);
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
const named = (action) => (action === HELP ? "asks for help" : `${action === 8 ? "an" : "a"} ${action}`);
const answer = (action) => (action === HELP ? "asks for help" : `says ${action}`);

/** The share of models for which an action pays most. */
function agreeing({ rewards, heard }, action) {
  const numModels = heard.length;
  let count = 0;
  for (let m = 0; m < numModels; m++) {
    if (LABELS.every((_, a) => rewards[action * numModels + m] >= rewards[a * numModels + m])) count += 1;
  }
  return count / numModels;
}

/** Where on the dial the answer changes, in a sentence; `answers` from N of N to 1 of N. */
function flipWords(answers) {
  const flip = answers.findIndex((action) => action !== answers[0]);
  if (flip < 0) return "Here every level gives the same answer.";
  const where = `${answers.length - flip} of ${answers.length}`;
  if (!answers.slice(flip).every((action) => action === answers[flip])) return `Here the answer first changes at ${where}.`;
  return `Here it ${answer(answers[flip])} from ${where} on.`;
}

/** What happened, in a sentence that needs no page around it. */
function sentenceOf(thing, numModels, usual, careful) {
  const who = `the cautious policy (${levelName()})`;
  if (usual === HELP) return `${numModels} networks do not know what ${thing} is: on average they ask for help${careful === HELP ? `, and so does ${who}` : `; ${who} ${answer(careful)}`}.`;
  return `${numModels} networks call ${thing} ${named(usual)}; ${usual === careful ? `so does ${who}` : `${who} ${answer(careful)}`}.`;
}

function mix(policy) {
  const shares = [...policy].map((share, action) => ({ share, action })).filter(({ share }) => share > 0.005);
  shares.sort((a, b) => b.share - a.share);
  if (shares.length === 1) return `always ${answer(shares[0].action)}`;
  return shares.slice(0, 3).map(({ share, action }) => `${action === HELP ? "help" : `“${action}”`} ${percent(share)}`).join(" · ");
}
