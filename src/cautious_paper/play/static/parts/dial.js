// The dial: which k of N. To the left k = N, ordinary; to the right k = 1, the most cautious.

const CENTRE = [110, 104];
const RADIUS = 84;
const SWEEP = 270;
const START = -225;

export const level = Object.assign(new EventTarget(), { k: 1, n: 20 });
let ring = null;

/** What is answered at each level, from N of N to 1 of N: { cautions, words }; null where there is nothing to show. */
export function showRing(answers) {
  ring = answers;
  level.dispatchEvent(new Event("ring"));
}

export function levelName() {
  return `${level.k} of ${level.n}`;
}

/** The level in a word or two. */
export function levelTitle() {
  const { k, n } = level;
  if (k === n) return "Ordinary";
  if (k === 1) return "Most cautious";
  return k <= n / 3 ? "Cautious" : k <= (2 * n) / 3 ? "Halfway" : "Near ordinary";
}

/** What the level does, in a sentence. */
export function levelWords() {
  const { k, n } = level;
  const here = ring?.cautions.length === n ? ` ${ring.words}` : "";
  if (k === n) return `All models count equally, so both do the same.${here || " Turn the dial."}`;
  const [worst, they] = k === 1 ? ["worst counts", "the one that likes"] : [`${k} worst count`, "those that like"];
  return `Of every ${n} models drawn, only the ${worst}${here ? `.${here}` : `: ${they} the plan least.`}`;
}

export function setLevel(k, n = level.n) {
  const most = Math.round(n);
  const next = Math.min(Math.max(Math.round(k), 1), most);
  if (next === level.k && most === level.n) return;
  Object.assign(level, { k: next, n: most });
  level.dispatchEvent(new Event("change"));
}

function polar(degrees, radius) {
  const angle = (degrees * Math.PI) / 180;
  return [CENTRE[0] + radius * Math.cos(angle), CENTRE[1] + radius * Math.sin(angle)];
}

function arc(from, to, radius) {
  const [x0, y0] = polar(from, radius);
  const [x1, y1] = polar(to, radius);
  return `M${x0} ${y0}A${radius} ${radius} 0 ${to - from > 180 ? 1 : 0} 1 ${x1} ${y1}`;
}

function element(name, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

export function makeDial(svg) {
  const gradient = element("linearGradient", { id: "dial-gradient", gradientUnits: "userSpaceOnUse", x1: CENTRE[0] - RADIUS, x2: CENTRE[0] + RADIUS, y1: 0, y2: 0 }, element("defs", {}, svg));
  element("stop", { offset: "0.1", class: "from" }, gradient);
  element("stop", { offset: "0.9", class: "to" }, gradient);
  element("path", { class: "track", d: arc(START, START + SWEEP, RADIUS) }, svg);
  const fill = element("path", { class: "fill" }, svg);
  const answers = element("g", {}, svg);
  const ticks = element("g", {}, svg);
  element("circle", { class: "knob", cx: CENTRE[0], cy: CENTRE[1], r: 60 }, svg);
  const needle = element("line", { class: "needle" }, svg);
  const which = element("text", { class: "of", x: CENTRE[0], y: CENTRE[1] - 20 }, svg);
  const number = element("text", { class: "number", x: CENTRE[0], y: CENTRE[1] + 11 }, svg);
  const of = element("text", { class: "of", x: CENTRE[0], y: CENTRE[1] + 30 }, svg);

  const show = () => {
    const { k, n } = level;
    const share = (n - k) / (n - 1);
    const angle = START + SWEEP * share;
    fill.setAttribute("d", arc(START, Math.max(angle, START + 0.01), RADIUS));
    const coloured = ring?.cautions.length === n;
    fill.style.display = coloured ? "none" : "";
    answers.replaceChildren();
    for (let i = 0; coloured && i < n; i++) {
      const [from, to] = [i - 0.5, i + 0.5].map((place) => START + (SWEEP * Math.min(Math.max(place, 0), n - 1)) / (n - 1));
      const made = element("path", { class: i === n - k ? "answer-at now" : "answer-at", d: arc(from + (i && 0.6), to - (i < n - 1 && 0.6), RADIUS) }, answers);
      made.style.stroke = `color-mix(in srgb, var(--cautious-fill) ${Math.round(100 * ring.cautions[i])}%, var(--ordinary))`;
    }
    const [x0, y0] = polar(angle, 46);
    const [x1, y1] = polar(angle, 55);
    for (const [name, value] of Object.entries({ x1: x0, y1: y0, x2: x1, y2: y1 })) needle.setAttribute(name, value);
    which.textContent = k === n ? "all" : "worst";
    number.textContent = k;
    of.textContent = `of ${n}`;
    ticks.replaceChildren();
    for (let i = 0; i < n; i++) {
      const [tx, ty] = polar(START + (SWEEP * i) / (n - 1), 66);
      const [ux, uy] = polar(START + (SWEEP * i) / (n - 1), 71);
      element("line", { class: "tick", x1: tx, y1: ty, x2: ux, y2: uy }, ticks);
    }
    svg.setAttribute("aria-valuemax", n - 1);
    svg.setAttribute("aria-valuenow", n - k);
    svg.setAttribute("aria-valuetext", `${levelName()}. ${levelWords()}`);
  };
  for (const kind of ["change", "ring"]) level.addEventListener(kind, show);
  show();

  const turn = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 220 - CENTRE[0];
    const y = ((event.clientY - box.top) / box.height) * 200 - CENTRE[1];
    if (Math.hypot(x, y) < 12) return;
    let angle = (Math.atan2(y, x) * 180) / Math.PI - START;
    angle = ((angle % 360) + 360) % 360;
    const share = angle <= SWEEP ? angle / SWEEP : angle < SWEEP + (360 - SWEEP) / 2 ? 1 : 0;
    setLevel(level.n - share * (level.n - 1));
  };
  svg.addEventListener("pointerdown", (event) => {
    svg.setPointerCapture(event.pointerId);
    svg.focus({ focusVisible: false });
    turn(event);
    event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => svg.hasPointerCapture(event.pointerId) && turn(event));
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: -1, ArrowUp: -1, ArrowLeft: 1, ArrowDown: 1, PageUp: -5, PageDown: 5, Home: level.n, End: -level.n };
    if (!(event.key in steps)) return;
    event.preventDefault();
    setLevel(level.k + steps[event.key]);
  });
}
