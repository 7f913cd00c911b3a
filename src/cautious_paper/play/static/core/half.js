// Half-precision numbers (IEEE 754 binary16, little endian), as the weight files hold them.

/** @param {ArrayBuffer} buffer @returns {Float32Array} */
export function fromHalf(buffer) {
  const bits = new Uint16Array(buffer);
  const numbers = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) {
    const exponent = (bits[i] >> 10) & 31;
    const fraction = bits[i] & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
    numbers[i] = bits[i] & 0x8000 ? -size : size;
  }
  return numbers;
}
