// One car on the road: where it is, what it met, and its picture.

import { NUM_ACTIONS, START, carMoves, outcome, stateIndex } from "../core/driving.js";
import { hashed } from "../core/random.js";

const LONG_SEED = 4242; // of no road that is shown
const ROWS_SHOWN = 4.7;
const CAR_FROM_BOTTOM = 1.25;
const PAINT = { ordinary: ["#5b9bff", "#2b6cd4"], cautious: ["#ffbe5c", "#e8890c"], you: ["#7ee0b8", "#17a673"] };

/** Luck that belongs to a place of the road, so that both cars meet the same obstacles there. */
function obstacleAt(seed, row, half, probability) {
  if (hashed(seed, row, half, 1) >= probability) return null;
  return 2 * half + (hashed(seed, row, half, 2) < 0.5 ? 0 : 1);
}

/** The action that a policy takes in a state; its luck belongs to the road and the tick. */
export function chosen(policy, state, seed, tick) {
  const row = stateIndex(state) * NUM_ACTIONS;
  let luck = hashed(seed, tick, 77);
  for (let a = 0; a < NUM_ACTIONS; a++) {
    luck -= policy[row + a];
    if (luck < 0) return a;
  }
  return NUM_ACTIONS - 1;
}

/** What a policy meets in the long run: hits per hundred rows, and speed at hits. */
export function longRun(policy, probability, steps) {
  const car = new Car(LONG_SEED);
  for (let tick = 0; tick < steps; tick++) car.step(chosen(policy, car.state, LONG_SEED, tick), probability);
  const { hits, hitSpeed, speed } = car.sums;
  return { hits: car.row ? (100 * hits) / car.row : 0, hitSpeed: hits ? hitSpeed / hits : null, speed: speed / steps };
}

export class Car {
  constructor(seed) {
    this.seed = seed;
    this.state = START;
    this.row = 0; // rows driven
    this.before = { row: 0, column: START.column };
    this.stones = new Map(); // every obstacle that was seen, by its place on the road
    this.sums = { steps: 0, speed: 0, hits: 0, hitSpeed: 0 };
    this.flash = 0;
  }

  /** Take an action: the world's rules, with the luck of this road. */
  step(action, probability) {
    const { state } = this;
    const [column, speed, distance] = carMoves(state.column, state.speed, action);
    const row = this.row + distance;
    const moved = [state.left, state.right].map((obstacle, half) => {
      if (obstacle) return obstacle[0] + distance < 3 ? [obstacle[0] + distance, obstacle[1]] : null;
      for (let seen = distance - 1; seen >= 0; seen--) {
        const place = obstacleAt(this.seed, row + 2 - seen, half, probability);
        if (place !== null) return [seen, place];
      }
      return null;
    });
    const next = { column, speed, left: moved[0], right: moved[1] };
    const { hits } = outcome(state, next);
    for (const obstacle of moved) {
      if (obstacle) {
        const place = row + 2 - obstacle[0];
        const key = `${place},${obstacle[1]}`;
        if (!this.stones.has(key)) this.stones.set(key, { row: place, column: obstacle[1], hit: false });
      }
    }
    if (hits) {
      this.flash = 1;
      const [low, high] = [Math.min(state.column, column), Math.max(state.column, column)];
      for (const stone of this.stones.values()) {
        if (stone.row > this.row - 0.5 && stone.row <= row && stone.column >= low && stone.column <= high) stone.hit = true;
      }
    }
    for (const [key, stone] of this.stones) if (stone.row < row - 4) this.stones.delete(key);
    this.before = { row: this.row, column: state.column };
    Object.assign(this, { state: next, row });
    this.sums.steps += 1;
    this.sums.speed += state.speed;
    this.sums.hits += hits;
    this.sums.hitSpeed += hits * state.speed;
    return hits;
  }

  /** Speed, hits per hundred rows, and speed at hits. */
  statistics() {
    const { steps, speed, hits, hitSpeed } = this.sums;
    return {
      speed: steps ? (speed / steps).toFixed(2) : "–",
      hits: this.row ? ((100 * hits) / this.row).toFixed(1) : "–",
      hitSpeed: hits ? (hitSpeed / hits).toFixed(2) : "–",
    };
  }

  /** Draw the road; `share` of the last step has been driven, and `mark` stands beside the car. */
  draw({ context: c, width, height }, share, who, mark = "") {
    const smooth = share * share * (3 - 2 * share);
    const row = this.before.row + share * (this.row - this.before.row);
    const column = this.before.column + smooth * (this.state.column - this.before.column);
    const lane = width / 4;
    const unit = height / ROWS_SHOWN;
    const y = (place) => height - (CAR_FROM_BOTTOM + place - row) * unit;
    c.fillStyle = "#2a2118";
    c.fillRect(0, 0, width, height);
    drawDitches(c, lane, width, height, unit, row, y);
    c.fillStyle = "#33383f";
    c.fillRect(lane, 0, 2 * lane, height);
    c.fillStyle = "#d8d3c4";
    c.fillRect(lane - 1.5, 0, 3, height);
    c.fillRect(3 * lane - 1.5, 0, 3, height);
    c.fillStyle = "#e9c46a";
    for (let dash = Math.floor(row) - 3; dash < row + 6; dash++) c.fillRect(2 * lane - 2, y(dash) - unit * 0.2, 4, unit * 0.42);
    for (const stone of this.stones.values()) drawStone(c, (stone.column + 0.5) * lane, y(stone.row), Math.min(lane, unit) * 0.36, stone.hit);
    const carY = y(row);
    const carX = (column + 0.5) * lane;
    darken(c, width, height, carX, carY, unit);
    drawCar(c, carX, carY, lane * 0.5, unit * 0.74, PAINT[who], (this.state.column - this.before.column) * Math.sin(Math.PI * share));
    drawSpeed(c, width, height, this.state.speed);
    if (mark) drawMark(c, width, carX, carY + unit * 0.52, lane, mark);
    if (this.flash > 0.02) {
      c.fillStyle = `rgb(255 70 40 / ${0.45 * this.flash})`;
      c.fillRect(0, 0, width, height);
      c.fillStyle = `rgb(255 255 255 / ${this.flash})`;
      c.font = `800 ${lane * 0.42}px system-ui, sans-serif`;
      c.textAlign = "center";
      c.fillText("hit", carX, carY - unit * 0.55);
    }
  }
}

function drawDitches(c, lane, width, height, unit, row, y) {
  c.fillStyle = "#4a3a26";
  for (let place = Math.floor(row) - 3; place < row + 6; place++) {
    for (let tuft = 0; tuft < 5; tuft++) {
      const x = hashed(place, tuft, 11) * lane * 0.8;
      const dy = hashed(place, tuft, 12) * unit;
      for (const side of [lane * 0.05 + x, width - lane * 0.05 - x]) c.fillRect(side - 2, y(place) - dy, 4, 9);
    }
  }
}

function drawStone(c, x, y, radius, hit) {
  c.save();
  c.translate(x, y);
  c.beginPath();
  for (let i = 0; i < 9; i++) {
    const angle = (i * 2 * Math.PI) / 9;
    const reach = radius * (0.84 + 0.16 * Math.sin(i * 2.4));
    c.lineTo(reach * Math.cos(angle), reach * Math.sin(angle));
  }
  c.closePath();
  c.fillStyle = hit ? "#7d3b30" : "#c8513d";
  c.fill();
  c.lineWidth = 2;
  c.strokeStyle = hit ? "#41201a" : "#ff9a84";
  c.stroke();
  c.fillStyle = "rgb(255 255 255 / .22)";
  c.beginPath();
  c.ellipse(-radius * 0.25, -radius * 0.3, radius * 0.32, radius * 0.18, -0.5, 0, 7);
  c.fill();
  if (hit) {
    c.strokeStyle = "#ffd9d0";
    c.lineWidth = 2.5;
    c.beginPath();
    c.moveTo(-radius * 0.5, -radius * 0.5);
    c.lineTo(radius * 0.5, radius * 0.5);
    c.moveTo(radius * 0.5, -radius * 0.5);
    c.lineTo(-radius * 0.5, radius * 0.5);
    c.stroke();
  }
  c.restore();
}

/** Night: what the headlights reach is what a model sees. */
function darken(c, width, height, x, y, unit) {
  const dark = c.createLinearGradient(0, y - 3.1 * unit, 0, y - 1.6 * unit);
  dark.addColorStop(0, "rgb(6 8 12 / .97)");
  dark.addColorStop(1, "rgb(6 8 12 / 0)");
  c.fillStyle = dark;
  c.fillRect(0, 0, width, y - 1.6 * unit);
  const light = c.createRadialGradient(x, y, unit * 0.3, x, y - unit * 1.1, unit * 2.3);
  light.addColorStop(0, "rgb(255 240 200 / .30)");
  light.addColorStop(1, "rgb(255 240 200 / 0)");
  c.fillStyle = light;
  c.fillRect(0, 0, width, height);
}

function drawCar(c, x, y, width, length, [light, deep], lean) {
  c.save();
  c.translate(x, y);
  c.rotate(lean * 0.22);
  c.fillStyle = "rgb(0 0 0 / .4)";
  c.beginPath();
  c.roundRect(-width / 2 + 3, -length / 2 + 5, width, length, width * 0.3);
  c.fill();
  const paint = c.createLinearGradient(-width / 2, 0, width / 2, 0);
  paint.addColorStop(0, light);
  paint.addColorStop(1, deep);
  c.fillStyle = paint;
  c.beginPath();
  c.roundRect(-width / 2, -length / 2, width, length, width * 0.3);
  c.fill();
  c.fillStyle = "#12202f";
  c.beginPath();
  c.roundRect(-width * 0.36, -length * 0.24, width * 0.72, length * 0.2, 5);
  c.roundRect(-width * 0.34, length * 0.22, width * 0.68, length * 0.13, 5);
  c.fill();
  c.fillStyle = "rgb(255 255 255 / .18)";
  c.beginPath();
  c.roundRect(-width * 0.34, -length * 0.02, width * 0.68, length * 0.2, 4);
  c.fill();
  c.fillStyle = "#fff6d6";
  c.fillRect(-width * 0.42, -length * 0.5, width * 0.24, length * 0.07);
  c.fillRect(width * 0.18, -length * 0.5, width * 0.24, length * 0.07);
  c.restore();
}

/** What the car does otherwise, in a label behind it; inside the picture wherever the car is. */
function drawMark(c, width, x, y, lane, words) {
  const size = Math.max(11, lane * 0.17);
  c.font = `700 ${size}px system-ui, sans-serif`;
  c.textAlign = "center";
  const half = c.measureText(words).width / 2 + size * 0.6;
  const middle = Math.min(Math.max(x, half + 4), width - half - 4);
  c.fillStyle = PAINT.cautious[0];
  c.beginPath();
  c.roundRect(middle - half, y, 2 * half, size * 1.7, size * 0.85);
  c.fill();
  c.fillStyle = "#2b1a00";
  c.fillText(words, middle, y + size * 1.2);
}

function drawSpeed(c, width, height, speed) {
  const size = Math.max(10, width * 0.05);
  for (let bar = 0; bar < 3; bar++) {
    c.fillStyle = bar < speed ? "#4ade80" : "rgb(255 255 255 / .18)";
    c.beginPath();
    c.roundRect(width - size * 1.5, height - size * (1.6 + 1.5 * bar), size, size * 1.2, 3);
    c.fill();
  }
}
