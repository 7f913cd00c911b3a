// From strokes to the 28x28 bytes that the models see, prepared as the digits of their training were: fitted into the middle,
// with a pen of one width.

export const SIDE = 28;
const BOX = 18;
const PEN = 1.75;

/** @param {number[][][]} strokes lists of points [x, y] in [0, 1] @returns {Uint8Array} 784 bytes */
export function rasterised(strokes) {
  const points = strokes.flat();
  if (points.length === 0) return new Uint8Array(SIDE * SIDE);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = BOX / Math.max(right - left, bottom - top, 0.35); // a dot stays a dot
  const place = (dx, dy) => strokes.map((stroke) => stroke.map(([x, y]) => [(x - (left + right) / 2) * scale + dx, (y - (top + bottom) / 2) * scale + dy]));
  const first = inked(place(SIDE / 2, SIDE / 2));
  let mass = 0;
  let cx = 0;
  let cy = 0;
  first.forEach((ink, pixel) => {
    mass += ink;
    cx += ink * ((pixel % SIDE) + 0.5);
    cy += ink * (Math.floor(pixel / SIDE) + 0.5);
  });
  return mass ? inked(place(SIDE - cx / mass, SIDE - cy / mass)) : first;
}

function inked(strokes) {
  const image = new Uint8Array(SIDE * SIDE);
  for (const stroke of strokes) {
    for (let i = 0; i < Math.max(1, stroke.length - 1); i++) ink(image, stroke[i], stroke[i + 1] ?? stroke[i]);
  }
  return image;
}

/** One straight piece of a stroke. */
function ink(image, [x0, y0], [x1, y1]) {
  const reach = PEN + 0.5;
  const length = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  for (let py = Math.max(0, Math.floor(Math.min(y0, y1) - reach)); py < Math.min(SIDE, Math.ceil(Math.max(y0, y1) + reach)); py++) {
    for (let px = Math.max(0, Math.floor(Math.min(x0, x1) - reach)); px < Math.min(SIDE, Math.ceil(Math.max(x0, x1) + reach)); px++) {
      const share = length ? Math.min(Math.max(((px + 0.5 - x0) * (x1 - x0) + (py + 0.5 - y0) * (y1 - y0)) / length, 0), 1) : 0;
      const distance = Math.hypot(px + 0.5 - x0 - share * (x1 - x0), py + 0.5 - y0 - share * (y1 - y0));
      const value = Math.round(255 * Math.min(Math.max(PEN + 0.1 - distance, 0), 1));
      const pixel = py * SIDE + px;
      if (value > image[pixel]) image[pixel] = value;
    }
  }
}

const turn = (cx, cy, rx, ry, from, to, steps = 24) =>
  Array.from({ length: steps + 1 }, (_, i) => {
    const angle = ((from + ((to - from) * i) / steps) * Math.PI) / 180;
    return [cx + rx * Math.cos(angle), cy + ry * Math.sin(angle)];
  });

/** Shapes like letters and signs, as strokes. */
export const SHAPES = [
  { name: "letter A", strokes: [[[0.2, 0.85], [0.5, 0.15], [0.8, 0.85]], [[0.32, 0.6], [0.68, 0.6]]] },
  { name: "letter K", strokes: [[[0.28, 0.15], [0.28, 0.85]], [[0.74, 0.15], [0.28, 0.55]], [[0.42, 0.44], [0.76, 0.85]]] },
  { name: "star", strokes: [[0, 2, 4, 1, 3, 0].map((i) => [0.5 + 0.38 * Math.sin((i * 4 * Math.PI) / 10), 0.5 - 0.38 * Math.cos((i * 4 * Math.PI) / 10)])] },
  { name: "spiral", strokes: [Array.from({ length: 60 }, (_, i) => [0.5 + 0.0063 * i * Math.cos(i / 4), 0.5 + 0.0063 * i * Math.sin(i / 4)])] },
  { name: "house", strokes: [[[0.2, 0.85], [0.2, 0.45], [0.5, 0.15], [0.8, 0.45], [0.8, 0.85], [0.2, 0.85]]] },
  { name: "omega", strokes: [[[0.18, 0.85], [0.38, 0.85], ...turn(0.5, 0.45, 0.3, 0.32, 120, 420), [0.62, 0.85], [0.82, 0.85]]] },
  { name: "face", strokes: [turn(0.5, 0.5, 0.38, 0.38, 0, 360), turn(0.5, 0.52, 0.2, 0.18, 20, 160), [[0.37, 0.38], [0.37, 0.42]], [[0.63, 0.38], [0.63, 0.42]]] },
  { name: "arrow", strokes: [[[0.15, 0.5], [0.85, 0.5]], [[0.58, 0.25], [0.85, 0.5], [0.58, 0.75]]] },
  { name: "grid", strokes: [[[0.35, 0.15], [0.35, 0.85]], [[0.65, 0.15], [0.65, 0.85]], [[0.15, 0.35], [0.85, 0.35]], [[0.15, 0.65], [0.85, 0.65]]] },
  { name: "wave", strokes: [Array.from({ length: 40 }, (_, i) => [0.1 + 0.02 * i, 0.5 + 0.2 * Math.sin(i / 4)])] },
];
