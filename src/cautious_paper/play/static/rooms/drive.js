// Drive: an ordinary and a cautious car on the same road, and what the models think of each action.

import { ACTIONS, NUM_ACTIONS, stateIndex } from "../core/driving.js";
import { Client, manifestOf, newestOnly } from "../parts/client.js";
import { readAddress } from "../parts/address.js";
import { level, levelName, setLevel } from "../parts/dial.js";
import { drawDots } from "../parts/dots.js";
import { sharp } from "../parts/look.js";
import { announce, say } from "../parts/notice.js";
import { Car, chosen } from "./road.js";

const $ = (id) => document.getElementById(id);
const LABELS = ["faster", "brake", "left", "right", "cruise"];
const DOES = ["goes faster", "brakes", "moves left", "moves right", "cruises"];
const WOULD = ["go faster", "brake", "move left", "move right", "cruise"];
const TRAIL = 48; // steps in the strip
const KEYS = { ArrowUp: 0, ArrowDown: 1, ArrowLeft: 2, ArrowRight: 3, " ": 4 };

export function openDrive() {
  const client = new Client();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const drive = { seed: 1, cars: null, ordinary: null, policy: null, rewards: null, playing: !calm, wheel: false, share: 1, mark: "", last: 0, here: false, tick: 0 };

  const failed = (error) => {
    $("drive-status").textContent = "";
    say("drive", error.message);
  };

  const restart = () => {
    drive.cars = [new Car(drive.seed), new Car(drive.seed)];
    drive.tick = 0;
    drive.share = 1;
    $("drive-trail").replaceChildren();
    showAll();
  };

  const solve = newestOnly(async () => {
    if (!drive.ordinary) return;
    $("drive-status").textContent = `Finding the best policy for ${levelName()} …`;
    const begun = performance.now();
    const asked = { k: level.k, n: level.n };
    const { policy, long } = await client.ask("driving:solve", asked);
    drive.policy = policy;
    showLong(drive.long, long);
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    $("drive-status").textContent = asked.k === asked.n
      ? `At ${asked.k} of ${asked.n} the cautious policy is the ordinary one, and both cars drive alike: turn the dial.`
      : `The policy for ${asked.k} of ${asked.n} took ${seconds} s. Both cars meet the same road; one that is faster sees more of it.`;
    $("room-drive").dataset.answered = `${asked.k}-of-${asked.n}`;
    showThoughts();
  }, failed);
  const world = newestOnly(async () => {
    if (!drive.loaded) return;
    const probability = Number($("probability").value);
    const { ordinary, rewards, long } = await client.ask("driving:world", { probability });
    Object.assign(drive, { ordinary, rewards, probability, long });
    restart();
    await solve();
  }, failed);

  /** What both meet over thousands of steps, as bars: the few that one watches are luck. */
  function showLong(usual, careful) {
    const most = Math.max(usual.hits, careful.hits, 0.1);
    for (const [who, { hits, hitSpeed }] of [["ordinary", usual], ["cautious", careful]]) {
      $(`long-${who}`).style.width = `${(100 * hits) / most}%`;
      $(`long-${who}-number`).textContent = `${hits.toFixed(2)}${hitSpeed === null ? "" : ` at speed ${hitSpeed.toFixed(1)}`}`;
    }
    $("drive-long").hidden = false;
  }

  /** Whether the cautious car does here what the ordinary one would do, in words. */
  function showMoment() {
    if (!drive.policy || !drive.ordinary) return;
    const row = stateIndex(drive.cars[1].state) * NUM_ACTIONS;
    const [usual, careful] = [drive.ordinary, drive.policy].map((policy) => {
      const shares = policy.subarray(row, row + NUM_ACTIONS);
      return shares.indexOf(Math.max(...shares));
    });
    drive.mark = usual === careful ? "" : `here it ${DOES[careful]}`;
    $("drive-moment").classList.toggle("differs", usual !== careful);
    $("drive-moment").textContent = usual === careful ? `Here both would act alike: ${WOULD[usual]}.` : `Here the cautious car ${DOES[careful]}; the ordinary one would ${WOULD[usual]}.`;
  }

  function step(own = null) {
    if (!drive.policy) return;
    const [left, right] = drive.cars;
    const lefts = own ?? chosen(drive.ordinary, left.state, drive.seed, drive.tick);
    left.step(lefts, drive.probability);
    const differed = drive.mark !== "";
    const hits = right.step(chosen(drive.policy, right.state, drive.seed, drive.tick), drive.probability);
    leaveTrail(differed, hits > 0);
    drive.tick += 1;
    drive.share = 0;
    showNumbers();
    if (drive.wheel || !drive.playing) {
      const { state, sums } = drive.wheel ? left : right;
      announce(`${drive.wheel ? `You: ${ACTIONS[lefts]}` : "Cautious car"}, speed ${state.speed}, ${sums.hits} ${sums.hits === 1 ? "hit" : "hits"}.`);
    }
  }

  /** One more step of the cautious car in the strip below it: orange where it differed from the ordinary one, red where it hit. */
  function leaveTrail(differed, hit) {
    const trail = $("drive-trail");
    if (trail.children.length >= TRAIL) trail.firstChild.remove();
    const step = document.createElement("i");
    step.className = hit ? "hit" : differed ? "differs" : "";
    trail.append(step);
    const marks = (name) => trail.getElementsByClassName(name).length;
    trail.setAttribute("aria-label", `Of the last ${trail.children.length} steps, the cautious car chose otherwise in ${marks("differs")} and hit something in ${marks("hit")}`);
  }

  function frame(now) {
    if (!drive.here) return;
    const seconds = Math.min((now - drive.last) / 1000, 0.2);
    drive.last = now;
    const tempo = Number($("tempo").value);
    if (drive.cars && drive.policy) {
      const moving = drive.share < 1;
      drive.share = Math.min(1, drive.share + seconds * Math.max(tempo, drive.wheel ? 5 : 0));
      if (drive.share >= 1 && drive.playing && !drive.wheel) step();
      const flashing = drive.cars.some((car) => car.flash > 0.02);
      for (const car of drive.cars) car.flash *= Math.exp(-3 * seconds);
      if (moving || drive.playing || flashing) showRoads();
    }
    requestAnimationFrame(frame);
  }

  function showRoads() {
    if (!drive.cars) return;
    const share = calm ? 1 : drive.share;
    drive.cars[0].draw(sharp($("road-left")), share, drive.wheel ? "you" : "ordinary");
    drive.cars[1].draw(sharp($("road-right")), share, "cautious", drive.mark);
  }

  function showNumbers() {
    drive.cars.forEach((car, number) => {
      const { speed, hits, hitSpeed } = car.statistics();
      const rows = { "hits per 100 rows": hits, "speed at hits": hitSpeed, speed };
      const list = $(number ? "stats-right" : "stats-left");
      if (!list.children.length) list.innerHTML = Object.keys(rows).map((name) => `<div><dt>${name}</dt><dd></dd></div>`).join("");
      Object.values(rows).forEach((value, i) => (list.children[i].lastChild.textContent = value));
      $(number ? "road-right" : "road-left").setAttribute("aria-label", `${number ? "The cautious car" : drive.wheel ? "Your car" : "The ordinary car"}: average speed ${speed}, ${hits} hits per hundred rows, speed at hits ${hitSpeed}`);
    });
    showThoughts();
  }

  function showThoughts() {
    if (!drive.rewards || !drive.cars) return;
    showMoment();
    const car = drive.cars[drive.wheel ? 0 : 1];
    const row = stateIndex(car.state) * NUM_ACTIONS;
    const numModels = drive.rewards.length;
    const rewards = new Float64Array(NUM_ACTIONS * numModels);
    const means = new Float64Array(NUM_ACTIONS);
    for (let a = 0; a < NUM_ACTIONS; a++) {
      for (let m = 0; m < numModels; m++) {
        rewards[a * numModels + m] = drive.rewards[m][row + a];
        means[a] += drive.rewards[m][row + a] / numModels;
      }
    }
    const shares = (policy) => policy?.subarray(row, row + NUM_ACTIONS);
    drawDots($("drive-chart"), { labels: LABELS, rewards, means, ordinary: shares(drive.ordinary), policy: shares(drive.policy), range: [-6, 4] });
    let spread = 0;
    for (let a = 0; a < NUM_ACTIONS; a++) {
      for (let m = 0; m < numModels; m++) spread += (rewards[a * numModels + m] - means[a]) ** 2 / numModels / NUM_ACTIONS;
    }
    const apart = Math.sqrt(spread);
    const words = apart < 0.15 ? "The models agree: they know this." : apart < 0.8 ? "The models differ a little." : "The models disagree: nobody taught them this.";
    $("drive-words").textContent = `${words} (They differ by ${apart.toFixed(2)} on average.)`;
    $("drive-chart").setAttribute("aria-label", `What ${numModels} models think the next step pays. ${words}`);
  }

  function showAll() {
    if (!drive.cars) return;
    showRoads();
    showNumbers();
  }

  function setPlaying(playing) {
    drive.playing = playing;
    $("drive-play").textContent = playing ? "Pause" : "Play";
    $("drive-play").setAttribute("aria-pressed", String(playing));
  }

  function setWheel(wheel) {
    drive.wheel = wheel;
    $("drive-wheel").setAttribute("aria-pressed", String(wheel));
    $("drive-wheel").textContent = wheel ? "Let it drive" : "Take the wheel";
    $("drive-keys").hidden = !wheel;
    $("left-title").textContent = wheel ? "You (arrow keys)" : "Ordinary";
    $("whose").textContent = wheel ? "where you are now" : "for the cautious car now";
    $("left-title").parentElement.classList.toggle("you", wheel);
    for (const id of ["drive-play", "drive-step"]) $(id).disabled = wheel;
    if (drive.cars) restart();
    if (wheel) holdWheel();
  }
  /** Keys go to the road, not to the button that was pressed last. */
  const holdWheel = () => {
    $("road-left").focus({ preventScroll: true });
    $("drive-keys").scrollIntoView({ block: "nearest" });
  };

  $("drive-play").addEventListener("click", () => setPlaying(!drive.playing));
  $("drive-step").addEventListener("click", () => {
    setPlaying(false);
    step();
    showAll();
  });
  $("drive-restart").addEventListener("click", () => {
    drive.seed += 1;
    restart();
    if (drive.wheel) holdWheel();
  });
  $("drive-wheel").addEventListener("click", () => setWheel(!drive.wheel));
  for (const button of $("drive-keys").querySelectorAll("button")) button.addEventListener("click", () => step(Number(button.dataset.action)));
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.target.closest?.("input, select, [role=slider], [role=tab], [role=radio]");
    if (!drive.here || elsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = event.target.closest?.("button");
    if (drive.wheel && event.key in KEYS && !(onButton && event.key === " ")) {
      event.preventDefault();
      step(KEYS[event.key]);
    }
  });
  $("probability").addEventListener("input", (event) => {
    $("probability-value").textContent = event.target.value;
    world();
  });
  $("tempo").addEventListener("input", (event) => ($("tempo-value").textContent = `${event.target.value} steps/s`));
  level.addEventListener("change", () => drive.here && solve());
  document.addEventListener("look", () => drive.here && showAll());
  for (const button of document.querySelectorAll("#room-drive [data-try]")) {
    button.addEventListener("click", () => {
      button.classList.add("done");
      setWheel(button.dataset.try === "wheel");
      if (button.dataset.try === "watch") setLevel(1, 20);
      if (button.dataset.try === "middle") setLevel(10, 20);
      if (button.dataset.try !== "wheel") setPlaying(true);
    });
  }
  setPlaying(drive.playing);
  if (!readAddress().level) setLevel(1, 20); // whatever another tab left, the first look shows two cars that differ

  (async () => {
    $("drive-status").textContent = "Loading sixty models …";
    const manifest = await manifestOf();
    await client.ask("driving:load", { manifest: manifest.driving });
    drive.loaded = true;
    await world();
  })().catch(failed);

  return {
    enter() {
      drive.here = true;
      drive.last = performance.now();
      requestAnimationFrame(frame);
      showAll();
      solve();
    },
    leave() {
      drive.here = false;
    },
  };
}
