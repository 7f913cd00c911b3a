// What each model thinks each action pays: one dot per model and action, the averages, and what both policies do.

import { colour, sharp } from "./look.js";
import { hashed } from "../core/random.js";

const BOTTOM = 44;
const LEFT = 34;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{labels: string[], rewards: Float64Array, heard?: Float64Array, means?: Float64Array, mixture?: Float64Array,
 *   ordinary?: ArrayLike<number>, policy?: ArrayLike<number>, range?: [number, number]}} shown rewards [A, M]
 */
export function drawDots(canvas, shown) {
  const { context: c, width, height } = sharp(canvas);
  if (!width) return;
  const { labels, rewards, heard, means, mixture, ordinary, policy } = shown;
  const numActions = labels.length;
  const numModels = rewards.length / numActions;
  let [low, high] = shown.range ?? [-0.25, 1.2];
  for (const reward of rewards) {
    low = Math.min(low, reward);
    high = Math.max(high, reward);
  }
  const top = 8;
  const floor = height - BOTTOM;
  const y = (reward) => floor - ((reward - low) / (high - low)) * (floor - top);
  const column = (width - LEFT - 4) / numActions;
  const font = getComputedStyle(document.body).fontFamily;
  c.font = `11px ${font}`;
  c.textAlign = "right";
  c.textBaseline = "middle";
  const step = niceStep(high - low);
  for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9; tick += step) {
    c.fillStyle = colour("line");
    c.fillRect(LEFT, y(tick), width - LEFT, 1);
    c.fillStyle = colour("soft");
    c.fillText(String(Math.round(tick * 100) / 100), LEFT - 7, y(tick));
  }
  const amber = colour("cautious-fill");
  const blue = colour("ordinary");
  const grey = colour("dot");
  for (let a = 0; a < numActions; a++) {
    const middle = LEFT + column * (a + 0.5);
    const spread = Math.min(column * 0.62, 46);
    if (policy && policy[a] > 0.005) {
      c.fillStyle = colour("cautious-wash");
      c.globalAlpha = 0.35 + 0.65 * policy[a];
      c.fillRect(middle - column / 2 + 2, top - 4, column - 4, floor - top + 8);
      c.globalAlpha = 1;
    }
    const ranked = Array.from({ length: numModels }, (_, m) => m).sort((m, l) => (heard ? heard[m] - heard[l] : 0));
    for (const m of ranked) {
      const x = middle + (hashed(m, a, 5) - 0.5) * spread;
      const strength = heard ? Math.min(Math.max((heard[m] * numModels - 0.9) / 2.5, 0), 1) : 0;
      circle(c, x, y(rewards[a * numModels + m]), 2.1, grey, 0.8);
      if (strength > 0.03) circle(c, x, y(rewards[a * numModels + m]), 2.1 + 1.5 * strength, amber, 0.25 + 0.75 * strength);
    }
    if (means) bar(c, middle, y(means[a]), spread + 8, blue);
    if (mixture) bar(c, middle, y(mixture[a]), spread + 8, amber);
    label(c, labels[a], middle, floor + 15, column, font);
    probability(c, middle, floor + 27, column, ordinary?.[a] ?? 0, blue);
    probability(c, middle, floor + 35, column, policy?.[a] ?? 0, amber);
  }
}

/** No rewards, no dots. */
export function clearDots(canvas) {
  sharp(canvas);
}

function niceStep(range) {
  const rough = range / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  return unit * [1, 2, 5, 10].find((factor) => factor * unit >= rough);
}

function circle(c, x, y, radius, fill, alpha) {
  c.globalAlpha = alpha;
  c.fillStyle = fill;
  c.beginPath();
  c.arc(x, y, radius, 0, 2 * Math.PI);
  c.fill();
  c.globalAlpha = 1;
}

function bar(c, middle, y, width, fill) {
  c.fillStyle = colour("card");
  c.fillRect(middle - width / 2 - 1, y - 2.5, width + 2, 5);
  c.fillStyle = fill;
  c.fillRect(middle - width / 2, y - 1.5, width, 3);
}

function label(c, text, x, y, column, font) {
  c.fillStyle = colour("ink");
  c.textAlign = "center";
  c.font = `600 ${column < 52 && text.length > 3 ? 10.5 : 13}px ${font}`;
  c.fillText(text, x, y, column - 4);
}

function probability(c, middle, y, column, share, fill) {
  const width = column - 10;
  c.fillStyle = colour("sunk");
  c.fillRect(middle - width / 2, y, width, 5);
  c.fillStyle = fill;
  c.fillRect(middle - width / 2, y, width * share, 5);
}
