// The image reward model of the paper, one model after another:
//
//   28x28 -> conv 64 @ 4x4 -> max-pool 2 -> ReLU -> conv 16 @ 4x4 -> max-pool 2 -> ReLU -> 256 -> 50 -> 15 -> actions
//
// Pooling drops the last row and column of both convolutions, so only the first 25x25 pixels reach the output. All sums are
// in double precision.

export const SIDE = 28;
const SEEN = 25;
const POOLED = 11; // 22x22 outputs of the first convolution, pooled
const PLACES = POOLED * POOLED;
const FIRST = 64;
const SECOND = 16;
const TAPS = 16;
const LAST = 4;
const FEATURES = SECOND * LAST * LAST;
const HIDDEN = [50, 15];

/** How many weights one model with `numActions` outputs has. */
export function imageParameters(numActions) {
  return (TAPS + 1) * FIRST + (FIRST * TAPS + 1) * SECOND + (FEATURES + 1) * HIDDEN[0] + (HIDDEN[0] + 1) * HIDDEN[1] + (HIDDEN[1] + 1) * numActions;
}

export class ImageModels {
  /**
   * @param {Float32Array} weights of all models, in PyTorch's order, [M, P]
   * @param {number} numActions
   */
  constructor(weights, numActions) {
    this.weights = Float64Array.from(weights); // a conversion at every product would take longer
    this.numActions = numActions;
    this.size = imageParameters(numActions);
    this.numModels = weights.length / this.size;
    this.pooled = new Float64Array(FIRST * PLACES);
    this.features = new Float64Array(FEATURES);
  }

  /**
   * What every model says each action pays.
   * @param {Uint8Array} image 784 bytes
   * @returns {Float64Array} [A, M]
   */
  rewards(image) {
    const pixels = new Float64Array(SEEN * SEEN);
    for (let y = 0; y < SEEN; y++) for (let x = 0; x < SEEN; x++) pixels[y * SEEN + x] = image[y * SIDE + x] / 255;
    const inked = inkedPlaces(pixels);
    const rewards = new Float64Array(this.numActions * this.numModels);
    for (let m = 0; m < this.numModels; m++) {
      const outputs = this.#one(m, pixels, inked);
      for (let a = 0; a < this.numActions; a++) rewards[a * this.numModels + m] = outputs[a];
    }
    return rewards;
  }

  #one(model, pixels, inked) {
    const part = this.weights.subarray(model * this.size, (model + 1) * this.size);
    firstLayer(part, pixels, inked, this.pooled);
    secondLayer(part.subarray((TAPS + 1) * FIRST), this.pooled, this.features);
    let at = (TAPS + 1) * FIRST + (FIRST * TAPS + 1) * SECOND;
    let values = this.features;
    for (const [layer, outputs] of [...HIDDEN, this.numActions].entries()) {
      const next = new Float64Array(outputs);
      const inputs = values.length;
      const biases = at + outputs * inputs;
      for (let o = 0; o < outputs; o++) {
        let sum = part[biases + o];
        for (let i = 0; i < inputs; i++) sum += part[at + o * inputs + i] * values[i];
        next[o] = layer < HIDDEN.length ? Math.max(0, sum) : sum;
      }
      at = biases + outputs;
      values = next;
    }
    return values;
  }
}

/** Pooled places whose patches hold any ink; elsewhere the first layer says the same everywhere. */
function inkedPlaces(pixels) {
  const inked = [];
  for (let place = 0; place < PLACES; place++) {
    const corner = cornerOf(place);
    let ink = 0;
    for (let dy = 0; dy < 5; dy++) for (let dx = 0; dx < 5; dx++) ink += pixels[corner + dy * SEEN + dx];
    if (ink > 0) inked.push(place);
  }
  return inked;
}

const cornerOf = (place) => 2 * Math.floor(place / POOLED) * SEEN + 2 * (place % POOLED);

function firstLayer(part, pixels, inked, pooled) {
  const biases = FIRST * TAPS;
  for (let c = 0; c < FIRST; c++) pooled.fill(Math.max(0, part[biases + c]), c * PLACES, (c + 1) * PLACES);
  for (const place of inked) {
    const i = cornerOf(place);
    const j = i + SEEN, k = j + SEEN, l = k + SEEN, m = l + SEEN;
    const a0 = pixels[i], a1 = pixels[i + 1], a2 = pixels[i + 2], a3 = pixels[i + 3], a4 = pixels[i + 4];
    const b0 = pixels[j], b1 = pixels[j + 1], b2 = pixels[j + 2], b3 = pixels[j + 3], b4 = pixels[j + 4];
    const c0 = pixels[k], c1 = pixels[k + 1], c2 = pixels[k + 2], c3 = pixels[k + 3], c4 = pixels[k + 4];
    const d0 = pixels[l], d1 = pixels[l + 1], d2 = pixels[l + 2], d3 = pixels[l + 3], d4 = pixels[l + 4];
    const e0 = pixels[m], e1 = pixels[m + 1], e2 = pixels[m + 2], e3 = pixels[m + 3], e4 = pixels[m + 4];
    for (let channel = 0; channel < FIRST; channel++) {
      const w = channel * TAPS;
      let weight = part[w];
      let p = weight * a0, q = weight * a1, r = weight * b0, s = weight * b1; // the four outputs of a pool
      weight = part[w + 1]; p += weight * a1; q += weight * a2; r += weight * b1; s += weight * b2;
      weight = part[w + 2]; p += weight * a2; q += weight * a3; r += weight * b2; s += weight * b3;
      weight = part[w + 3]; p += weight * a3; q += weight * a4; r += weight * b3; s += weight * b4;
      weight = part[w + 4]; p += weight * b0; q += weight * b1; r += weight * c0; s += weight * c1;
      weight = part[w + 5]; p += weight * b1; q += weight * b2; r += weight * c1; s += weight * c2;
      weight = part[w + 6]; p += weight * b2; q += weight * b3; r += weight * c2; s += weight * c3;
      weight = part[w + 7]; p += weight * b3; q += weight * b4; r += weight * c3; s += weight * c4;
      weight = part[w + 8]; p += weight * c0; q += weight * c1; r += weight * d0; s += weight * d1;
      weight = part[w + 9]; p += weight * c1; q += weight * c2; r += weight * d1; s += weight * d2;
      weight = part[w + 10]; p += weight * c2; q += weight * c3; r += weight * d2; s += weight * d3;
      weight = part[w + 11]; p += weight * c3; q += weight * c4; r += weight * d3; s += weight * d4;
      weight = part[w + 12]; p += weight * d0; q += weight * d1; r += weight * e0; s += weight * e1;
      weight = part[w + 13]; p += weight * d1; q += weight * d2; r += weight * e1; s += weight * e2;
      weight = part[w + 14]; p += weight * d2; q += weight * d3; r += weight * e2; s += weight * e3;
      weight = part[w + 15]; p += weight * d3; q += weight * d4; r += weight * e3; s += weight * e4;
      pooled[channel * PLACES + place] = Math.max(0, part[biases + channel] + Math.max(p, q, r, s));
    }
  }
}

function secondLayer(part, pooled, features) {
  const biases = SECOND * FIRST * TAPS;
  for (let o = 0; o < SECOND; o++) {
    for (let y = 0; y < LAST; y++) {
      for (let x = 0; x < LAST; x++) {
        let a = 0, b = 0, c = 0, d = 0; // the four outputs of a pool
        for (let channel = 0; channel < FIRST; channel++) {
          const corner = channel * PLACES + 2 * y * POOLED + 2 * x;
          for (let dy = 0; dy < 4; dy++) {
            const i = corner + dy * POOLED;
            const j = i + POOLED;
            const w = (o * FIRST + channel) * TAPS + 4 * dy;
            const w0 = part[w], w1 = part[w + 1], w2 = part[w + 2], w3 = part[w + 3];
            const p1 = pooled[i + 1], p2 = pooled[i + 2], p3 = pooled[i + 3];
            const q1 = pooled[j + 1], q2 = pooled[j + 2], q3 = pooled[j + 3];
            a += w0 * pooled[i] + w1 * p1 + w2 * p2 + w3 * p3;
            b += w0 * p1 + w1 * p2 + w2 * p3 + w3 * pooled[i + 4];
            c += w0 * pooled[j] + w1 * q1 + w2 * q2 + w3 * q3;
            d += w0 * q1 + w1 * q2 + w2 * q3 + w3 * pooled[j + 4];
          }
        }
        features[(o * LAST + y) * LAST + x] = Math.max(0, part[biases + o] + Math.max(a, b, c, d));
      }
    }
  }
}
