// The k-of-N game of one state, as solvers/per_state.py plays it: regret matching+ against an adversary that weighs the
// models by rank, until the value of the best policy and the bound on all policies' values meet.

const CHECK_AVERAGE = 10;
export const MOST_ITERATIONS = 300;
export const TOLERANCE = 1e-4;

/** Best action under the mean of all models, shared where several are best: rewards [A, M] -> [A]. */
export function ordinaryPolicy(rewards, numActions) {
  const numModels = rewards.length / numActions;
  const means = new Float64Array(numActions);
  for (let a = 0; a < numActions; a++) {
    for (let m = 0; m < numModels; m++) means[a] += rewards[a * numModels + m];
    means[a] /= numModels;
  }
  const best = Math.max(...means);
  const policy = means.map((mean) => (mean === best ? 1 : 0));
  let count = 0;
  for (const share of policy) count += share;
  return { policy: policy.map((share) => share / count), means };
}

/** Whether some model prefers another action than those the policy takes. */
export function hasDisagreement(rewards, policy) {
  const numActions = policy.length;
  const numModels = rewards.length / numActions;
  for (let m = 0; m < numModels; m++) {
    let best = -Infinity;
    for (let a = 0; a < numActions; a++) best = Math.max(best, rewards[a * numModels + m]);
    for (let a = 0; a < numActions; a++) if (policy[a] > 0 && rewards[a * numModels + m] < best) return true;
  }
  return false;
}

/** How far two policies are apart: 0 the same, 1 entirely different. */
export function totalVariation(policy, other) {
  let sum = 0;
  for (let a = 0; a < policy.length; a++) sum += Math.abs(policy[a] - other[a]);
  return sum / 2;
}

/**
 * What a k-of-N policy does in one state.
 * @param {Float64Array} rewards [A, M]
 * @param {number} numActions
 * @param {Float64Array} rankWeights [M], of the level; uniform where k = n
 * @param {boolean} ordinaryLevel whether k = n
 * @returns policy [A], ordinary [A], means [A], caution, heard [M] (how much each model counts), mixture [A]
 */
export function decide(rewards, numActions, rankWeights, ordinaryLevel) {
  const numModels = rewards.length / numActions;
  const { policy: ordinary, means } = ordinaryPolicy(rewards, numActions);
  if (ordinaryLevel) {
    return { policy: ordinary, ordinary, means, caution: 0, heard: rankWeights, mixture: means, gap: 0 };
  }
  if (!hasDisagreement(rewards, ordinary)) {
    const scratch = new Scratch(numActions, numModels);
    evaluate(rewards, ordinary, rankWeights, scratch.order, scratch);
    const heard = new Float64Array(numModels);
    for (let i = 0; i < numModels; i++) heard[scratch.order[i]] = rankWeights[i];
    return { policy: ordinary, ordinary, means, caution: 0, heard, mixture: scratch.mixture, gap: 0 };
  }
  const game = playGame(rewards, numActions, rankWeights);
  return { ...game, ordinary, means, caution: totalVariation(game.policy, ordinary) };
}

class Scratch {
  constructor(numActions, numModels) {
    this.values = new Float64Array(numModels);
    this.mixture = new Float64Array(numActions);
    this.order = Int32Array.from({ length: numModels }, (_, m) => m);
    this.averageOrder = this.order.slice();
  }
}

/** The best policy of one state's game, its gap, and how much each model counted on average. */
export function playGame(rewards, numActions, rankWeights, mostIterations = MOST_ITERATIONS, tolerance = TOLERANCE) {
  const numModels = rewards.length / numActions;
  let highest = -Infinity;
  let lowest = Infinity;
  for (const reward of rewards) {
    if (reward > highest) highest = reward;
    if (reward < lowest) lowest = reward;
  }
  const limit = tolerance * (highest - lowest);
  const scratch = new Scratch(numActions, numModels);
  const { mixture } = scratch;
  const policy = new Float64Array(numActions).fill(1 / numActions);
  const regret = new Float64Array(numActions);
  const policySum = new Float64Array(numActions);
  const mixtureSum = new Float64Array(numActions);
  const recentSum = new Float64Array(numActions);
  const average = new Float64Array(numActions);
  const heard = new Float64Array(numModels);
  const best = new Float64Array(numActions);
  let lower = -Infinity;
  let upper = Infinity;
  let total = 0;
  let recent = 0;
  let restart = 1;
  for (let t = 0; t < mostIterations; t++) {
    let value = evaluate(rewards, policy, rankWeights, scratch.order, scratch);
    if (value >= lower) {
      lower = value;
      best.set(policy);
    }
    if (t === restart) {
      // early answers to poor policies do not loosen the bound for ever
      recentSum.fill(0);
      recent = 0;
      restart *= 2;
    }
    total += t + 1;
    recent += t + 1;
    for (let i = 0; i < numModels && rankWeights[i] !== 0; i++) heard[scratch.order[i]] += (t + 1) * rankWeights[i];
    let largest = -Infinity;
    let largestRecent = -Infinity;
    for (let a = 0; a < numActions; a++) {
      policySum[a] += (t + 1) * policy[a];
      mixtureSum[a] += (t + 1) * mixture[a];
      recentSum[a] += (t + 1) * mixture[a];
      largest = Math.max(largest, mixtureSum[a]);
      largestRecent = Math.max(largestRecent, recentSum[a]);
    }
    upper = Math.min(upper, largest / total, largestRecent / recent);
    let positive = 0;
    for (let a = 0; a < numActions; a++) {
      regret[a] = Math.max(0, regret[a] + mixture[a] - value);
      positive += regret[a];
    }
    for (let a = 0; a < numActions; a++) policy[a] = positive > 0 ? regret[a] / positive : 1 / numActions;
    if ((t + 1) % CHECK_AVERAGE === 0 || t + 1 === mostIterations) {
      let weight = 0;
      for (let a = 0; a < numActions; a++) weight += policySum[a];
      for (let a = 0; a < numActions; a++) average[a] = policySum[a] / weight;
      value = evaluate(rewards, average, rankWeights, scratch.averageOrder, scratch);
      if (value >= lower) {
        lower = value;
        best.set(average);
      }
    }
    if (upper - lower <= limit) break;
  }
  for (let m = 0; m < numModels; m++) heard[m] /= total;
  return { policy: best, gap: Math.max(upper, lower) - lower, heard, mixture: mixtureSum.map((sum) => sum / total) };
}

/** The exact k-of-N value of a policy [A]; fills the order of the models, and the mixture that weighs them by rank. */
function evaluate(rewards, policy, rankWeights, order, scratch) {
  const { values, mixture } = scratch;
  const numActions = policy.length;
  const numModels = values.length;
  values.fill(0);
  for (let a = 0; a < numActions; a++) {
    const share = policy[a];
    if (share !== 0) for (let m = 0; m < numModels; m++) values[m] += share * rewards[a * numModels + m];
  }
  sortByValue(order, values);
  mixture.fill(0);
  let value = 0;
  for (let i = 0; i < numModels; i++) {
    const weight = rankWeights[i];
    if (weight === 0) break;
    const m = order[i];
    value += weight * values[m];
    for (let a = 0; a < numActions; a++) mixture[a] += weight * rewards[a * numModels + m];
  }
  return value;
}

/** Models from the worst on, ties by number. Insertion: the order changes little from one iteration to the next. */
function sortByValue(order, values) {
  let inversions = 0;
  for (let i = 1; i < order.length; i++) inversions += values[order[i - 1]] > values[order[i]] ? 1 : 0;
  let gap = 1;
  while (inversions > order.length / 3 && 3 * gap + 1 < order.length) gap = 3 * gap + 1;
  for (; gap > 0; gap = Math.floor(gap / 3)) {
    for (let i = gap; i < order.length; i++) {
      const m = order[i];
      const value = values[m];
      let j = i - gap;
      while (j >= 0 && (values[order[j]] > value || (values[order[j]] === value && order[j] > m))) {
        order[j + gap] = order[j];
        j -= gap;
      }
      order[j + gap] = m;
    }
  }
}
