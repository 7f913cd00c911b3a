// Seeded random numbers: the same page gives the same answers.

/** @returns {() => number} uniform in [0, 1) (mulberry32) */
export function uniformStream(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** A standard normal number from a uniform stream (Box and Muller). */
export function normal(uniform) {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** A number in [0, 1) that depends on its arguments alone: luck that two cars can share. */
export function hashed(...numbers) {
  let seed = 0x9e3779b9;
  for (const number of numbers) seed = Math.imul(seed ^ number, 0x85ebca6b) ^ (seed >>> 13);
  return uniformStream(seed)();
}
