// A belief about rows of two numbers that trains in the page: small networks with random priors.

import { Prior, columnMeans, deviationsOf, sharedDeviation } from "./prior.js";
import { uniformStream } from "./random.js";

const HIDDEN = 24;
const BATCH = 48;
const STEPS = 260;
const RATE = 0.01;
export const NUM_MODELS = 30;

/** Two hidden layers with ReLU, trained with Adam on its own batches. */
class Network {
  constructor(numOutputs, seed) {
    this.uniform = uniformStream(seed);
    this.sizes = [2, HIDDEN, HIDDEN, numOutputs];
    const size = this.sizes.slice(1).reduce((sum, outputs, layer) => sum + outputs * (this.sizes[layer] + 1), 0);
    this.weights = new Float64Array(size);
    this.gradient = new Float64Array(size);
    this.mean = new Float64Array(size);
    this.square = new Float64Array(size);
    this.seen = this.sizes.map((width) => new Float64Array(width));
    this.slopes = this.sizes.map((width) => new Float64Array(width));
    this.step = 0;
    let at = 0;
    for (let layer = 0; layer < 3; layer++) {
      const count = this.sizes[layer + 1] * (this.sizes[layer] + 1);
      for (let i = 0; i < count; i++) this.weights[at++] = (2 * this.uniform() - 1) / Math.sqrt(this.sizes[layer]);
    }
  }

  /** Outputs for one row. */
  forward(x, y) {
    const { weights, sizes, seen } = this;
    seen[0][0] = x;
    seen[0][1] = y;
    let at = 0;
    for (let layer = 0; layer < 3; layer++) {
      const inputs = seen[layer];
      const outputs = seen[layer + 1];
      for (let o = 0; o < outputs.length; o++) {
        let sum = weights[at + inputs.length];
        for (let i = 0; i < inputs.length; i++) sum += weights[at + i] * inputs[i];
        outputs[o] = layer < 2 && sum < 0 ? 0 : sum;
        at += sizes[layer] + 1;
      }
    }
    return seen[3];
  }

  #backward(target) {
    const { weights, gradient, seen, slopes } = this;
    for (let o = 0; o < target.length; o++) slopes[3][o] = 2 * (seen[3][o] - target[o]);
    let end = weights.length;
    for (let layer = 2; layer >= 0; layer--) {
      const inputs = seen[layer];
      const width = inputs.length + 1;
      const start = end - slopes[layer + 1].length * width;
      slopes[layer].fill(0);
      for (let o = 0; o < slopes[layer + 1].length; o++) {
        const slope = slopes[layer + 1][o];
        if (slope === 0) continue;
        const at = start + o * width;
        for (let i = 0; i < inputs.length; i++) {
          gradient[at + i] += slope * inputs[i];
          slopes[layer][i] += slope * weights[at + i];
        }
        gradient[at + inputs.length] += slope;
      }
      for (let i = 0; i < inputs.length; i++) if (inputs[i] <= 0) slopes[layer][i] = 0;
      end = start;
    }
  }

  /** One step of Adam on a batch of its own. */
  train(rows, targets) {
    const size = Math.min(BATCH, rows.length);
    this.gradient.fill(0);
    for (let i = 0; i < size; i++) {
      const n = rows.length <= BATCH ? i : Math.floor(this.uniform() * rows.length);
      this.forward(rows[n][0], rows[n][1]);
      this.#backward(targets[n]);
    }
    this.step += 1;
    const rate = (RATE * Math.sqrt(1 - 0.999 ** this.step)) / (1 - 0.9 ** this.step);
    for (let i = 0; i < this.weights.length; i++) {
      const slope = this.gradient[i] / size;
      this.mean[i] = 0.9 * this.mean[i] + 0.1 * slope;
      this.square[i] = 0.999 * this.square[i] + 0.001 * slope * slope;
      this.weights[i] -= (rate * this.mean[i]) / (Math.sqrt(this.square[i]) + 1e-8);
    }
  }
}

export class TableModels {
  /**
   * @param {number[][]} rows [n][2]
   * @param {number[][]} rewards [n][A]
   */
  constructor(rows, rewards, seed = 1) {
    this.numModels = NUM_MODELS;
    this.numActions = rewards[0].length;
    this.shift = columnMeans(rows);
    this.scale = deviationsOf(rows).map((deviation) => deviation || 1);
    this.means = columnMeans(rewards);
    const shared = sharedDeviation(rewards);
    this.units = deviationsOf(rewards).map((deviation) => deviation || shared / rows.length);
    this.rows = rows.map((row) => this.#unit(row));
    this.targets = rewards.map((paid) => paid.map((value, a) => (value - this.means[a]) / this.units[a]));
    this.networks = Array.from({ length: NUM_MODELS }, (_, m) => new Network(this.numActions, 7919 * seed + m));
    this.prior = new Prior(rows, rewards, NUM_MODELS, 104729 * seed);
    this.steps = 0;
  }

  #unit(row) {
    return row.map((value, f) => (value - this.shift[f]) / this.scale[f]);
  }

  /** Train all models for some steps; returns the share that is done. */
  train(steps) {
    const count = Math.min(steps, STEPS - this.steps);
    for (const network of this.networks) for (let step = 0; step < count; step++) network.train(this.rows, this.targets);
    this.steps += count;
    return this.steps / STEPS;
  }

  /** What every model says each action pays at a row: [A, M]. */
  rewards(row) {
    const { numModels, numActions } = this;
    const [x, y] = this.#unit(row);
    const growth = this.prior.growth(row);
    const rewards = new Float64Array(numActions * numModels);
    for (let m = 0; m < numModels; m++) {
      const outputs = this.networks[m].forward(x, y);
      for (let a = 0; a < numActions; a++) {
        rewards[a * numModels + m] = outputs[a] * this.units[a] + this.means[a] + this.prior.heights[m * numActions + a] * growth;
      }
    }
    return rewards;
  }
}
