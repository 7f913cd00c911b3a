// Each model's fixed random prior for rows of two numbers, as beliefs/prior.py has it: nothing near familiar rows, and growing
// with the distance from them,
//
//   p_i(x, a) = h_ia · g(z(x)),   h_ia = width · w_a · c_ia,   c_ia ~ N(0, 1)
//   g(z) = z (1 + z) / 2,         z(x) = f · max(0, d(x) / q(x) - 1)
//
// d is the mean distance to the three nearest familiar rows, q what is usual there, f how steep. Every row here says what every
// action pays, so d, q and f are the same for all actions.

import { normal, uniformStream } from "./random.js";

export const WIDTH = 0.75;
const NEIGHBOURS = 3;
const FAMILIAR = 0.75;
const NEARLY_ALL = 0.98;
const SHRINKAGE = 0.02;
const RIDGE = 1e-3;
const SMALLEST_REACH = 0.1 * Math.SQRT2;
const FEW = 0.1;
const MOST_STEEPNESS = 10;
const FOLDS = 5;
const GOLDEN = 0.6180339887498949; // row i is in the part in which the fraction of i times this falls
const ENOUGH = 20;
const MOST_GROWTH = 100;
const MAHALANOBIS_WEIGHT = 0.5;

export class Prior {
  /**
   * @param {number[][]} rows familiar rows, [n][2]
   * @param {number[][]} rewards what each action pays in each, [n][A]
   * @param {number} numModels
   * @param {number} seed of the heights
   */
  constructor(rows, rewards, numModels, seed) {
    this.whiten = whitening(rows, rewards, scaleOf(rows));
    this.rows = rows.map(this.whiten);
    const { reach, steepness } = reaches(rows, rewards);
    this.reach = reach;
    this.steepness = steepness;
    const far = this.rows.filter((row) => steepness * (this.#ratio(row) - 1) > 1).length;
    const doubt = doubts(rewards, far / rows.length);
    const uniform = uniformStream(seed);
    const numActions = rewards[0].length;
    this.heights = new Float64Array(numModels * numActions);
    for (let m = 0; m < numModels; m++) {
      for (let a = 0; a < numActions; a++) {
        // models come in pairs with opposite heights, so that their mean has no prior
        const twin = m % 2 ? this.heights[(m - 1) * numActions + a] : null;
        this.heights[m * numActions + a] = twin === null ? WIDTH * doubt[a] * normal(uniform) : -twin;
      }
    }
  }

  /** What the heights are multiplied by at a row, g(z): 0 where it is familiar. */
  growth(row) {
    const unusual = this.steepness * Math.max(0, this.#ratio(this.whiten(row)) - 1);
    return Math.min((unusual * (1 + unusual)) / 2, MOST_GROWTH);
  }

  #ratio(whitened) {
    const { mean, numbers } = nearest(whitened, this.rows);
    const reach = Array.from({ length: NEIGHBOURS }, (_, i) => this.reach[numbers[i % numbers.length]]);
    return mean / reach.sort((a, b) => a - b)[1];
  }
}

/**
 * A map after which distances between rows are as the prior compares them: by the residual of each feature given the other, and
 * at half weight by Mahalanobis's distance, for the covariance of what the rewards do not explain.
 */
function whitening(rows, rewards, scale) {
  const centre = columnMeans(rows);
  const unit = rows.map((row) => row.map((value, f) => (value - centre[f]) / scale[f]));
  const rest = unexplained(unit, rewards);
  const covariance = (f, g) => {
    let sum = 0;
    for (const row of rest) sum += row[f] * row[g];
    return ((1 - SHRINKAGE) * sum) / rows.length + (f === g ? SHRINKAGE : 0);
  };
  const [u, v, w] = [covariance(0, 0), covariance(0, 1), covariance(1, 1)];
  const determinant = u * w - v * v;
  const [p, q, r] = [w / determinant, -v / determinant, u / determinant]; // the inverse [[p, q], [q, r]]
  // metric = P diag(P)^(-1) P + weight² P
  const extra = MAHALANOBIS_WEIGHT ** 2;
  const metric = [p + (q * q) / r + extra * p, 2 * q + extra * q, (q * q) / p + r + extra * r];
  // Cholesky of the metric: distances do not care how the rows are turned
  const a = Math.sqrt(metric[0]);
  const b = metric[1] / a;
  const c = Math.sqrt(metric[2] - b * b);
  return (row) => {
    const [first, second] = [(row[0] - centre[0]) / scale[0], (row[1] - centre[1]) / scale[1]];
    return [a * first + b * second, c * second];
  };
}

/** The deviation of each feature; what is constant has no unit of its own. */
function scaleOf(rows) {
  const means = columnMeans(rows);
  return deviationsOf(rows).map((deviation, f) => (deviation > 1e-7 * Math.abs(means[f]) ? deviation : 1));
}

/** What is left of centred rows after a linear fit on the rewards. */
function unexplained(rows, rewards) {
  const means = columnMeans(rewards);
  const deviations = deviationsOf(rewards);
  const units = rewards.map((paid) => paid.map((value, a) => (deviations[a] > 0 ? (value - means[a]) / deviations[a] : 0)));
  const size = means.length;
  const matrix = Array.from({ length: size }, (_, i) =>
    Array.from({ length: size }, (_, j) => units.reduce((sum, unit) => sum + unit[i] * unit[j], i === j ? RIDGE * rows.length : 0)),
  );
  const right = Array.from({ length: size }, (_, i) => [0, 1].map((f) => units.reduce((sum, unit, r) => sum + unit[i] * rows[r][f], 0)));
  const fit = solved(matrix, right);
  return rows.map((row, r) => row.map((value, f) => value - units[r].reduce((sum, unit, a) => sum + unit * fit[a][f], 0)));
}

/** Gauss's elimination for a symmetric positive matrix. */
function solved(matrix, right) {
  const size = matrix.length;
  for (let i = 0; i < size; i++) {
    for (let j = i + 1; j < size; j++) {
      const factor = matrix[j][i] / matrix[i][i];
      for (let l = i; l < size; l++) matrix[j][l] -= factor * matrix[i][l];
      right[j] = right[j].map((value, f) => value - factor * right[i][f]);
    }
  }
  for (let i = size - 1; i >= 0; i--) {
    right[i] = right[i].map((value, f) => {
      for (let l = i + 1; l < size; l++) value -= matrix[i][l] * right[l][f];
      return value / matrix[i][i];
    });
  }
  return right;
}

/** Mean distance to the nearest of some rows, and which they are. */
function nearest(row, others) {
  const best = [];
  const numbers = [];
  const count = Math.min(NEIGHBOURS, others.length);
  for (let n = 0; n < others.length; n++) {
    const distance = Math.hypot(row[0] - others[n][0], row[1] - others[n][1]);
    if (best.length === count && distance >= best[count - 1]) continue;
    let place = best.length === count ? count - 1 : best.length;
    while (place > 0 && best[place - 1] > distance) {
      best[place] = best[place - 1];
      numbers[place] = numbers[place - 1];
      place -= 1;
    }
    best[place] = distance;
    numbers[place] = n;
  }
  return { mean: best.reduce((sum, distance) => sum + distance, 0) / count, numbers };
}

/** The usual distance at each row, seen as new by the others; and how steep the prior is beyond it. */
function reaches(rows, rewards) {
  const own = new Array(rows.length).fill(NaN);
  const scale = scaleOf(rows);
  const folds = rows.map((_, n) => Math.floor(FOLDS * ((n * GOLDEN) % 1)));
  for (let fold = 0; fold < FOLDS; fold++) {
    const known = rows.map((_, n) => n).filter((n) => folds[n] !== fold);
    if (known.length === 0 || known.length === rows.length) continue;
    const whiten = whitening(known.map((n) => rows[n]), known.map((n) => rewards[n]), scale);
    const others = known.map((n) => whiten(rows[n]));
    rows.forEach((row, n) => {
      if (folds[n] === fold) own[n] = nearest(whiten(row), others).mean;
    });
  }
  const usual = Math.max(quantile(own, FAMILIAR) ?? 1, SMALLEST_REACH);
  const farthest = usual > SMALLEST_REACH ? (quantile(own, NEARLY_ALL) ?? 2) : 2 * usual;
  const steepness = Math.max(1, usual / Math.max(farthest - usual, usual / MOST_STEEPNESS));
  return { reach: own.map((distance) => (distance > usual ? distance : usual)), steepness };
}

/** How much each action's reward varies; one that always paid the same is not in doubt, unless it was tried in few rows. */
function doubts(rewards, uncovered) {
  const shared = sharedDeviation(rewards);
  const few = rewards.length < ENOUGH ? shared / rewards.length : 0;
  const floor = uncovered > FEW ? uncovered * shared : 0;
  return deviationsOf(rewards).map((deviation) => Math.max(deviation, few, floor));
}

/** The deviation of all rewards together, 1 where all are the same. */
export function sharedDeviation(rewards) {
  return deviationsOf(rewards.flat().map((value) => [value]))[0] || 1;
}

export function columnMeans(rows) {
  return rows[0].map((_, f) => rows.reduce((sum, row) => sum + row[f], 0) / rows.length);
}

export function deviationsOf(rows) {
  const means = columnMeans(rows);
  return means.map((mean, f) => Math.sqrt(rows.reduce((sum, row) => sum + (row[f] - mean) ** 2, 0) / rows.length));
}

function quantile(values, share) {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  if (sorted.length === 0) return undefined;
  const place = share * (sorted.length - 1);
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}
