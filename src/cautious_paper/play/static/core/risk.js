// k-of-N: draw n reward models and average the k that are worst for the current policy.

/**
 * Expected weight of the i-th worst of `numModels` models, drawn without replacement (as KofN.rank_weights in Python).
 * @returns {Float64Array} sums to one, never increases
 */
export function rankWeights(k, n, numModels) {
  if (!(1 <= k && k <= n && n <= numModels)) throw new RangeError(`${k}-of-${n} of ${numModels} models is not a level.`);
  if (k === n) return new Float64Array(numModels).fill(1 / numModels);
  // P[L = l], up to a factor, of the place l of the k-th worst of the other n - 1 draws; from neighbour to neighbour.
  const last = numModels - n + k;
  const logs = [0];
  for (let l = k; l < last; l++) logs.push(logs[logs.length - 1] + Math.log(((l / (l - k + 1)) * (last - l)) / (numModels - 1 - l)));
  const top = Math.max(...logs);
  const weights = new Float64Array(numModels);
  let survival = 0;
  for (let l = last; l >= k; l--) {
    survival += Math.exp(logs[l - k] - top);
    weights[l - 1] = survival;
  }
  for (let i = 0; i < k - 1; i++) weights[i] = survival;
  let total = 0;
  for (const weight of weights) total += weight;
  return weights.map((weight) => weight / total);
}
