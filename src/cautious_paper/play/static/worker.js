// All computation of the playground, off the page's own thread. Each tab starts a worker of its own.

import { decide } from "./core/game.js";
import { fromHalf } from "./core/half.js";
import { ImageModels } from "./core/image.js";
import { rankWeights } from "./core/risk.js";
import { DRIVING_PARAMETERS, DrivingModels, DrivingWorld, cautiousDriving, ordinaryDriving } from "./core/driving.js";
import { longRun } from "./rooms/road.js";
import { TableModels } from "./core/vector.js";

const NUM_DRIVING_ITERATIONS = 100;
const HELP = 10;
const LONG = 10_000; // steps

/** A mistake that the page shows as it is. */
class Sentence extends Error {}

async function weightsOf(name, manifest) {
  let buffer = null;
  try {
    const response = await fetch(`weights/${name}.bin`);
    if (response.ok) buffer = await response.arrayBuffer();
  } catch {
    // said below
  }
  const expected = manifest && 2 * manifest.models * manifest.parameters;
  if (!buffer || buffer.byteLength !== expected) {
    const what = buffer ? `has ${buffer.byteLength} bytes instead of ${expected}` : "is not there";
    throw new Sentence(`The models cannot be loaded: weights/${name}.bin ${what}. Reload the page, or install the package again.`);
  }
  return fromHalf(buffer);
}

const images = { models: null, rewards: null };

const driving = { models: null, probability: null, world: null, rewards: null, ordinary: null, solved: new Map() };

const table = { models: null, grids: new Map(), run: 0 };

const handlers = {
  async "images:load"({ manifest }) {
    images.models = new ImageModels(await weightsOf("images", manifest), 11);
    return { models: images.models.numModels };
  },

  "images:look"({ image }) {
    images.rewards = images.models.rewards(image);
    return { rewards: images.rewards };
  },

  "images:decide"({ k, n, help }) {
    const { models, rewards } = images;
    const moved = rewards.slice();
    for (let m = 0; m < models.numModels; m++) moved[HELP * models.numModels + m] += help;
    return { ...decide(moved, models.numActions, rankWeights(k, n, models.numModels), k === n), rewards: moved };
  },

  /** How far the answer at each level, from N of N to 1 of N, is from the ordinary one, and what it is. */
  "images:ring"({ n, help }) {
    const { models, rewards } = images;
    const moved = rewards.slice();
    for (let m = 0; m < models.numModels; m++) moved[HELP * models.numModels + m] += help;
    const decisions = Array.from({ length: n }, (_, i) => decide(moved, models.numActions, rankWeights(n - i, n, models.numModels), i === 0));
    return { cautions: decisions.map(({ caution }) => caution), answers: decisions.map(({ policy }) => mostLikely(policy)) };
  },

  async "driving:load"({ manifest }) {
    const weights = await weightsOf("driving", manifest);
    if (weights.length % DRIVING_PARAMETERS) throw new Sentence("weights/driving.bin holds models of another kind.");
    driving.models = new DrivingModels(weights);
    return { models: driving.models.numModels };
  },

  "driving:world"({ probability }) {
    driving.world = new DrivingWorld(probability);
    driving.probability = probability;
    driving.rewards = driving.models.rewards(driving.world);
    driving.ordinary = ordinaryDriving(driving.world, driving.rewards);
    driving.solved.clear();
    driving.solved.set("ordinary", { policy: driving.ordinary, long: longRun(driving.ordinary, probability, LONG) });
    return { ...driving.solved.get("ordinary"), ordinary: driving.ordinary, rewards: driving.rewards.map((own) => Float32Array.from(own)) };
  },

  "driving:solve"({ k, n }) {
    const name = k === n ? "ordinary" : `${k}-of-${n}`;
    if (!driving.solved.has(name)) {
      const policy = k === n ? driving.ordinary : cautiousDriving(driving.world, driving.rewards, k, n, NUM_DRIVING_ITERATIONS).policy;
      driving.solved.set(name, { policy, long: longRun(policy, driving.probability, LONG) });
    }
    return driving.solved.get(name);
  },

  async "table:train"({ rows, rewards }, report) {
    const run = ++table.run;
    const models = new TableModels(rows, rewards);
    for (let done = 0; done < 1; ) {
      done = models.train(10);
      report({ done });
      await new Promise((resolve) => setTimeout(resolve)); // newer points may have come
      if (run !== table.run) return { stopped: true };
    }
    table.models = models;
    table.grids.clear();
    return { models: models.numModels };
  },

  "table:grid"({ k, n, size, bounds }) {
    const { models } = table;
    if (!models) return null;
    if (!table.grids.has(size)) table.grids.set(size, gridRewards(models, size, bounds));
    const weights = rankWeights(k, n, models.numModels);
    const cells = size * size;
    const grid = { size, action: new Uint8Array(cells), ordinary: new Uint8Array(cells), caution: new Float32Array(cells) };
    table.grids.get(size).forEach((rewards, cell) => {
      const decision = decide(rewards, models.numActions, weights, k === n);
      grid.action[cell] = mostLikely(decision.policy);
      grid.ordinary[cell] = mostLikely(decision.ordinary);
      grid.caution[cell] = decision.caution;
    });
    return grid;
  },

  "table:point"({ k, n, row }) {
    const { models } = table;
    if (!models) return null;
    const rewards = known(models.rewards(row));
    return { ...decide(rewards, models.numActions, rankWeights(k, n, models.numModels), k === n), rewards };
  },
};

function gridRewards(models, size, [left, right, bottom, top]) {
  return Array.from({ length: size * size }, (_, cell) => {
    const x = left + ((right - left) * ((cell % size) + 0.5)) / size;
    const y = top - ((top - bottom) * (Math.floor(cell / size) + 0.5)) / size;
    return known(models.rewards([x, y]));
  });
}

/** A belief's rewards, if they are numbers: nothing is decided from others. */
function known(rewards) {
  if (!rewards.every(Number.isFinite)) throw new Sentence("These numbers are too far apart to learn from. Scale the columns, for example to values between 0 and 1.");
  return rewards;
}

function mostLikely(policy) {
  let best = 0;
  for (let a = 1; a < policy.length; a++) if (policy[a] > policy[best]) best = a;
  return best;
}

self.onmessage = async ({ data: { id, kind, ...request } }) => {
  try {
    const answer = await handlers[kind](request, (progress) => self.postMessage({ id, progress }));
    self.postMessage({ id, answer });
  } catch (error) {
    self.postMessage({ id, error: error instanceof Sentence ? error.message : `Something went wrong: ${error.message}` });
  }
};
