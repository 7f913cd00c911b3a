// The driving world of the paper, its reward models, and k-of-N policies in it: two lanes between two ditches, obstacles that
// come out of the dark. The rules are those of worlds/driving_rules.py, the models those of beliefs/networks/driving.py.

import { rankWeights } from "./risk.js";

export const ACTIONS = ["accelerate", "brake", "left", "right", "cruise"];
export const NUM_ACTIONS = ACTIONS.length;
export const DISCOUNT = 0.99;
const ROWS = 3;
const COLUMNS = 4;
const CAR_ROW = ROWS - 1;
const MAX_SPEED = ROWS;
const SPEEDS = MAX_SPEED + 1;
const SPAWN = [[0, 1], [2, 3]];
const PLACES = SPAWN.map((columns) => [null, ...[0, 1, 2].flatMap((row) => columns.map((column) => [row, column]))]);
export const NUM_STATES = COLUMNS * SPEEDS * PLACES[0].length * PLACES[1].length;
export const START = { column: 2, speed: 0, left: null, right: null };

const placeOf = (half, obstacle) => (obstacle ? 1 + 2 * obstacle[0] + obstacle[1] - SPAWN[half][0] : 0);

/** Where a state stands among the states. */
export function stateIndex({ column, speed, left, right }) {
  return ((column * SPEEDS + speed) * 7 + placeOf(0, left)) * 7 + placeOf(1, right);
}

/** The state of an index. */
export function stateAt(index) {
  const right = index % 7;
  const left = Math.floor(index / 7) % 7;
  const speed = Math.floor(index / 49) % SPEEDS;
  return { column: Math.floor(index / 196), speed, left: PLACES[0][left], right: PLACES[1][right] };
}

/** Next column, next speed and rows driven; a change of speed acts on the next step, a lane change takes one unit. */
export function carMoves(column, speed, action) {
  const name = ACTIONS[action];
  if (name === "accelerate") return [column, Math.min(speed + 1, MAX_SPEED), speed];
  if (name === "brake") return [column, Math.max(speed - 1, 0), speed];
  const target = column + (name === "right" ? 1 : -1);
  if (name === "cruise" || speed === 0 || target < 0 || target >= COLUMNS) return [column, speed, speed];
  return [target, speed, speed - 1];
}

function obstacleMoves(obstacle, distance, columns, probability) {
  if (obstacle) return [[obstacle[0] + distance < ROWS ? [obstacle[0] + distance, obstacle[1]] : null, 1]];
  const moves = [];
  let missed = 1;
  for (let row = distance - 1; row >= 0; row--) {
    for (const column of columns) moves.push([[row, column], (missed * probability) / columns.length]);
    missed *= 1 - probability;
  }
  moves.push([null, missed]);
  return moves;
}

/** What a step did: rows driven, obstacles hit, whether a ditch was touched. */
export function outcome(state, next) {
  const distance = state.speed - (state.column !== next.column ? 1 : 0);
  const low = Math.min(state.column, next.column);
  const high = Math.max(state.column, next.column);
  let hits = 0;
  for (const [before, after] of [[state.left, next.left], [state.right, next.right]]) {
    if (before) {
      const underCar = before[0] === CAR_ROW && before[1] === state.column;
      if (!underCar && before[0] + distance >= CAR_ROW && low <= before[1] && before[1] <= high) hits += 1;
    } else if (after && after[0] === CAR_ROW && low <= after[1] && after[1] <= high) hits += 1;
  }
  return { distance, hits, offroad: [0, COLUMNS - 1].some((ditch) => ditch === state.column || ditch === next.column) };
}

/** The world's transitions for an appearance probability, row by row (s * A + a). */
export class DrivingWorld {
  constructor(probability) {
    this.probability = probability;
    const starts = [0];
    const next = [];
    const chance = [];
    for (let s = 0; s < NUM_STATES; s++) {
      const state = stateAt(s);
      for (let a = 0; a < NUM_ACTIONS; a++) {
        const [column, speed, distance] = carMoves(state.column, state.speed, a);
        for (const [left, leftChance] of obstacleMoves(state.left, distance, SPAWN[0], probability)) {
          for (const [right, rightChance] of obstacleMoves(state.right, distance, SPAWN[1], probability)) {
            if (leftChance * rightChance === 0) continue;
            next.push(stateIndex({ column, speed, left, right }));
            chance.push(leftChance * rightChance);
          }
        }
        starts.push(next.length);
      }
    }
    this.starts = Int32Array.from(starts);
    this.next = Int32Array.from(next);
    this.chance = Float64Array.from(chance);
  }
}

const CHANNELS = 4;
const POSITIONS = 6;
const FEATURES = CHANNELS * POSITIONS;
const HIDDEN = 32;
const CONVOLUTION = 17 * 2 * CHANNELS;
const HIDDEN_ROWS = 2 * FEATURES + SPEEDS + 1;
const HIDDEN_SIZE = HIDDEN_ROWS * SPEEDS * HIDDEN;
export const DRIVING_PARAMETERS = CONVOLUTION + HIDDEN_SIZE + SPEEDS * (HIDDEN + 1);

function patchesOf(state) {
  const image = new Float64Array(4 * ROWS * COLUMNS);
  const set = (channel, row, column) => (image[(channel * ROWS + row) * COLUMNS + column] = 1);
  for (let row = 0; row < ROWS; row++) for (const ditch of [0, COLUMNS - 1]) set(1, row, ditch);
  set(2, CAR_ROW, state.column);
  for (const obstacle of [state.left, state.right]) if (obstacle) set(3, obstacle[0], obstacle[1]);
  for (let cell = 0; cell < ROWS * COLUMNS; cell++) {
    image[cell] = 1 - Math.max(image[12 + cell], image[24 + cell], image[36 + cell]);
  }
  const patches = []; // six positions, 16 taps each: channel, then row, then column
  for (let y = 0; y < ROWS - 1; y++) {
    for (let x = 0; x < COLUMNS - 1; x++) {
      const patch = [];
      for (let channel = 0; channel < 4; channel++) {
        for (let tap = 0; tap < 4; tap++) patch.push(image[(channel * ROWS + y + (tap >> 1)) * COLUMNS + x + (tap & 1)]);
      }
      patches.push(patch);
    }
  }
  return patches;
}

export class DrivingModels {
  /** @param {Float32Array} weights of all models, [M, P] */
  constructor(weights) {
    this.numModels = weights.length / DRIVING_PARAMETERS;
    this.weights = weights;
    this.states = Array.from({ length: NUM_STATES }, (_, index) => stateAt(index));
    this.patches = this.states.map(patchesOf);
    this.#findPairs();
    this.pairRewards = Array.from({ length: this.numModels }, (_, model) => this.#pairRewards(model));
  }

  /** Every (state, next state) that can happen at some probability, and where each entry of the world's rows finds its own. */
  #findPairs() {
    const world = new DrivingWorld(0.5);
    const numbers = new Map();
    this.pairs = [];
    for (let row = 0; row < NUM_STATES * NUM_ACTIONS; row++) {
      const s = Math.floor(row / NUM_ACTIONS);
      for (let entry = world.starts[row]; entry < world.starts[row + 1]; entry++) {
        const key = s * NUM_STATES + world.next[entry];
        if (!numbers.has(key)) {
          numbers.set(key, this.pairs.length);
          this.pairs.push([s, world.next[entry]]);
        }
      }
    }
    this.pairNumber = numbers;
  }

  #pairRewards(model) {
    const part = Float64Array.from(this.weights.subarray(model * DRIVING_PARAMETERS, (model + 1) * DRIVING_PARAMETERS));
    const hidden = part.subarray(CONVOLUTION, CONVOLUTION + HIDDEN_SIZE);
    const output = part.subarray(CONVOLUTION + HIDDEN_SIZE);
    const width = SPEEDS * HIDDEN;
    const own = new Float64Array(NUM_STATES * HIDDEN); // from s, for the head of its own speed
    const following = new Float64Array(NUM_STATES * width); // from s', for every head
    for (let s = 0; s < NUM_STATES; s++) {
      const features = this.#features(part, s);
      const head = this.states[s].speed * HIDDEN;
      for (let f = 0; f < FEATURES; f++) {
        if (features[f] !== 0) for (let h = 0; h < HIDDEN; h++) own[s * HIDDEN + h] += features[f] * hidden[f * width + head + h];
        const value = features[FEATURES + f];
        if (value !== 0) for (let h = 0; h < width; h++) following[s * width + h] += value * hidden[(FEATURES + f) * width + h];
      }
      const speedRow = (2 * FEATURES + this.states[s].speed) * width;
      const biasRow = (2 * FEATURES + SPEEDS) * width;
      for (let h = 0; h < width; h++) following[s * width + h] += hidden[speedRow + h] + hidden[biasRow + h];
    }
    const rewards = new Float64Array(this.pairs.length);
    for (let pair = 0; pair < rewards.length; pair++) {
      const [s, next] = this.pairs[pair];
      const head = this.states[s].speed;
      let sum = output[head * (HIDDEN + 1) + HIDDEN];
      for (let h = 0; h < HIDDEN; h++) {
        const value = own[s * HIDDEN + h] + following[next * width + head * HIDDEN + h];
        if (value > 0) sum += value * output[head * (HIDDEN + 1) + h];
      }
      rewards[pair] = sum;
    }
    return rewards;
  }

  /** After the convolution: 24 features as s, 24 as s'. */
  #features(part, s) {
    const features = new Float64Array(2 * FEATURES);
    for (let position = 0; position < POSITIONS; position++) {
      const patch = this.patches[s][position];
      for (let channel = 0; channel < 2 * CHANNELS; channel++) {
        let sum = part[16 * 2 * CHANNELS + channel];
        for (let tap = 0; tap < 16; tap++) if (patch[tap]) sum += part[tap * 2 * CHANNELS + channel];
        const image = channel < CHANNELS ? 0 : 1;
        features[image * FEATURES + (channel % CHANNELS) * POSITIONS + position] = Math.max(0, sum);
      }
    }
    return features;
  }

  /** Expected reward of each (state, action) under each model: [S * A] arrays, one per model. */
  rewards(world) {
    const rows = NUM_STATES * NUM_ACTIONS;
    const numbers = new Int32Array(world.next.length);
    for (let row = 0; row < rows; row++) {
      const s = Math.floor(row / NUM_ACTIONS);
      for (let entry = world.starts[row]; entry < world.starts[row + 1]; entry++) {
        numbers[entry] = this.pairNumber.get(s * NUM_STATES + world.next[entry]);
      }
    }
    return this.pairRewards.map((said) => {
      const rewards = new Float64Array(rows);
      for (let row = 0; row < rows; row++) {
        let sum = 0;
        for (let entry = world.starts[row]; entry < world.starts[row + 1]; entry++) sum += world.chance[entry] * said[numbers[entry]];
        rewards[row] = sum;
      }
      return rewards;
    });
  }
}

/** One policy's dynamics, with both linear systems of policy evaluation. */
class Evaluator {
  constructor(world) {
    this.world = world;
    this.buffers = Array.from({ length: 6 }, () => new Float64Array(NUM_STATES));
    this.values = new Float64Array(NUM_STATES);
    this.visits = new Float64Array(NUM_STATES);
    this.right = new Float64Array(NUM_STATES);
  }

  /** Merge the rows of a policy [S * A] into P_π. */
  use(policy) {
    const { starts, next, chance } = this.world;
    const rowStarts = new Int32Array(NUM_STATES + 1);
    const columns = [];
    const entries = [];
    for (let s = 0; s < NUM_STATES; s++) {
      for (let a = 0; a < NUM_ACTIONS; a++) {
        const row = s * NUM_ACTIONS + a;
        if (policy[row] === 0) continue;
        for (let entry = starts[row]; entry < starts[row + 1]; entry++) {
          columns.push(next[entry]);
          entries.push(policy[row] * chance[entry]);
        }
      }
      rowStarts[s + 1] = columns.length;
    }
    this.matrix = { starts: rowStarts, columns: Int32Array.from(columns), entries: Float64Array.from(entries) };
  }

  #apply(x, y, transposed) {
    const { starts, columns, entries } = this.matrix;
    if (transposed) {
      y.set(x);
      for (let s = 0; s < NUM_STATES; s++) {
        const flow = DISCOUNT * x[s];
        for (let e = starts[s]; e < starts[s + 1]; e++) y[columns[e]] -= flow * entries[e];
      }
      return;
    }
    for (let s = 0; s < NUM_STATES; s++) {
      let sum = 0;
      for (let e = starts[s]; e < starts[s + 1]; e++) sum += entries[e] * x[columns[e]];
      y[s] = x[s] - DISCOUNT * sum;
    }
  }

  /** (I - γP_π) x = right or its transpose, from the x there is: BiCGSTAB, begun again until the residual itself is small. */
  #solve(x, transposed) {
    const [residual, image] = this.buffers;
    for (let round = 0; round < 20; round++) {
      this.#apply(x, image, transposed);
      for (let i = 0; i < NUM_STATES; i++) residual[i] = this.right[i] - image[i];
      const enough = SMALL * (norm(this.right) + norm(x)); // what rounding leaves
      if (norm(residual) <= enough) return;
      this.#improve(x, transposed, enough / 4);
    }
  }

  #improve(x, transposed, enough) {
    const [residual, image, shadow, direction, half, halfImage] = this.buffers;
    shadow.set(residual);
    direction.fill(0);
    image.fill(0);
    let rho = 1;
    let alpha = 1;
    let omega = 1;
    for (let iteration = 0; iteration < 100 && norm(residual) > enough; iteration++) {
      const rhoNext = dot(shadow, residual);
      const beta = (rhoNext / rho) * (alpha / omega);
      rho = rhoNext;
      for (let i = 0; i < NUM_STATES; i++) direction[i] = residual[i] + beta * (direction[i] - omega * image[i]);
      this.#apply(direction, image, transposed);
      const slope = dot(shadow, image);
      if (rho === 0 || slope === 0) return;
      alpha = rho / slope;
      for (let i = 0; i < NUM_STATES; i++) half[i] = residual[i] - alpha * image[i];
      this.#apply(half, halfImage, transposed);
      const size = dot(halfImage, halfImage);
      omega = size > 0 ? dot(halfImage, half) / size : 0;
      for (let i = 0; i < NUM_STATES; i++) {
        x[i] += alpha * direction[i] + omega * half[i];
        residual[i] = half[i] - omega * halfImage[i];
      }
      if (omega === 0) return;
    }
  }

  /** Discounted state distribution from the start, [S]. */
  occupancy() {
    this.right.fill(0);
    this.right[stateIndex(START)] = 1 - DISCOUNT;
    this.visits.fill(0); // from nothing, so that states that are never reached stay at exactly 0: at a standstill, models tie
    this.#solve(this.visits, true);
    return this.visits;
  }

  /** Normalised values of all actions and of the policy under a reward [S * A]. */
  actionValues(reward, policy) {
    const { starts, next, chance } = this.world;
    this.right.fill(0);
    for (let row = 0; row < reward.length; row++) this.right[Math.floor(row / NUM_ACTIONS)] += (1 - DISCOUNT) * policy[row] * reward[row];
    this.#solve(this.values, false);
    const actionValues = new Float64Array(reward.length);
    for (let row = 0; row < reward.length; row++) {
      let sum = 0;
      for (let entry = starts[row]; entry < starts[row + 1]; entry++) sum += chance[entry] * this.values[next[entry]];
      actionValues[row] = (1 - DISCOUNT) * reward[row] + DISCOUNT * sum;
    }
    return actionValues;
  }
}

const SMALL = 1e-15;
const TIE = 1e-10; // share of the rewards' range below which values tie, as in solvers/optimal.py

const norm = (a) => Math.sqrt(dot(a, a));

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** The best policy under the mean of all models, by policy iteration: [S * A]. */
export function ordinaryDriving(world, rewards) {
  const evaluator = new Evaluator(world);
  const mean = new Float64Array(rewards[0].length);
  for (const reward of rewards) for (let row = 0; row < mean.length; row++) mean[row] += reward[row] / rewards.length;
  let lowest = Infinity;
  let highest = -Infinity;
  for (const reward of mean) {
    lowest = Math.min(lowest, reward);
    highest = Math.max(highest, reward);
  }
  const tied = TIE * (1 - DISCOUNT) * (highest - lowest);
  const policy = new Float64Array(mean.length);
  let choice = new Int32Array(NUM_STATES).fill(NUM_ACTIONS - 1);
  for (let round = 0; round < 100; round++) {
    policy.fill(0);
    choice.forEach((action, s) => (policy[s * NUM_ACTIONS + action] = 1));
    evaluator.use(policy);
    const values = evaluator.actionValues(mean, policy);
    const rows = Array.from(choice, (_, s) => values.subarray(s * NUM_ACTIONS, (s + 1) * NUM_ACTIONS));
    const better = rows.map((row, s) => (Math.max(...row) > row[choice[s]] + tied ? row.indexOf(Math.max(...row)) : choice[s]));
    const done = better.every((action, s) => action === choice[s]);
    // of several that are equally good, the first
    choice = done ? Int32Array.from(rows, (row) => row.findIndex((value) => value >= Math.max(...row) - tied)) : Int32Array.from(better);
    if (done) break;
  }
  policy.fill(0);
  choice.forEach((action, s) => (policy[s * NUM_ACTIONS + action] = 1));
  return policy;
}

/**
 * The best k-of-N policy seen in `numIterations` of regret matching, all models weighed by rank (solve_mdp, sampling "exact").
 * @returns {{policy: Float64Array, value: number}} policy [S * A]
 */
export function cautiousDriving(world, rewards, k, n, numIterations) {
  const numModels = rewards.length;
  const weights = rankWeights(k, n, numModels);
  const evaluator = new Evaluator(world);
  const size = NUM_STATES * NUM_ACTIONS;
  const policy = new Float64Array(size).fill(1 / NUM_ACTIONS);
  const regret = new Float64Array(size);
  const taken = new Float64Array(size);
  const mixture = new Float64Array(size);
  const visited = new Float64Array(size); // Σ_t d_t(s) π_t(a|s)
  const plain = new Float64Array(size); // Σ_t π_t(a|s), for states that no policy reaches
  const best = { policy: policy.slice(), value: -Infinity };
  const keep = (candidate, value) => {
    if (value < best.value) return;
    best.value = value;
    best.policy.set(candidate);
  };
  const evaluate = (candidate) => {
    evaluator.use(candidate);
    const visits = evaluator.occupancy();
    for (let row = 0; row < size; row++) taken[row] = visits[Math.floor(row / NUM_ACTIONS)] * candidate[row];
    const returns = rewards.map((reward) => dot(reward, taken));
    const order = returns.map((_, m) => m).sort((a, b) => returns[a] - returns[b] || a - b);
    let value = 0;
    order.forEach((m, i) => (value += weights[i] * returns[m]));
    return { order, value };
  };
  for (let t = 0; t < numIterations; t++) {
    const { order, value } = evaluate(policy);
    keep(policy, value);
    mixture.fill(0);
    for (let i = 0; i < numModels && weights[i] > 0; i++) {
      const reward = rewards[order[i]];
      for (let row = 0; row < size; row++) mixture[row] += weights[i] * reward[row];
    }
    for (let row = 0; row < size; row++) {
      visited[row] += taken[row];
      plain[row] += policy[row];
    }
    const actionValues = evaluator.actionValues(mixture, policy);
    for (let s = 0; s < NUM_STATES; s++) {
      const row = s * NUM_ACTIONS;
      let stateValue = 0;
      for (let a = 0; a < NUM_ACTIONS; a++) stateValue += policy[row + a] * actionValues[row + a];
      let positive = 0;
      for (let a = 0; a < NUM_ACTIONS; a++) {
        regret[row + a] += actionValues[row + a] - stateValue;
        positive += Math.max(0, regret[row + a]);
      }
      for (let a = 0; a < NUM_ACTIONS; a++) policy[row + a] = positive > 0 ? Math.max(0, regret[row + a]) / positive : 1 / NUM_ACTIONS;
    }
  }
  for (const candidate of [averagePolicy(visited, plain, numIterations), policy]) keep(candidate, evaluate(candidate).value);
  return best;
}

/** The average of the iterates, by how often each visits a state; where none ever does, the plain one. */
function averagePolicy(visited, plain, numIterations) {
  const average = new Float64Array(plain.length);
  for (let s = 0; s < NUM_STATES; s++) {
    let weight = 0;
    for (let a = 0; a < NUM_ACTIONS; a++) weight += visited[s * NUM_ACTIONS + a];
    const reached = weight > 1e-13 * numIterations;
    for (let row = s * NUM_ACTIONS; row < (s + 1) * NUM_ACTIONS; row++) {
      average[row] = reached ? visited[row] / weight : plain[row] / numIterations;
    }
  }
  return average;
}
