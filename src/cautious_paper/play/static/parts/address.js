// The address: after the # the tab, then the level, and what a tab wants kept: #draw&level=7-of-20&sample=coat

const FINE = 4095; // a coordinate is two characters: 12 bits
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const MOST_LETTERS = 24_000;

/** The address as { room, level, sample, ink, ... }, all of them texts. */
export function readAddress() {
  const [room, ...rest] = location.hash.slice(1).split("&");
  return { ...Object.fromEntries(new URLSearchParams(rest.join("&"))), room };
}

/** "7-of-20" as [7, 20]; null where it is no level of the dial. */
export function levelFrom(text) {
  const found = /^(\d{1,2})-of-(5|10|20|30)$/.exec(text ?? "");
  const [k, n] = found ? [Number(found[1]), Number(found[2])] : [0, 0];
  return k >= 1 && k <= n ? [k, n] : null;
}

export function addressOf(room, parts) {
  const query = new URLSearchParams(Object.entries(parts).filter(([, value]) => value)).toString();
  return `#${room}${query ? `&${query}` : ""}`;
}

/** A coordinate as a link keeps it, so that a link opens the very same drawing. */
export const fine = (value) => Math.round(Math.min(Math.max(value, 0), 1) * FINE) / FINE;

/** Strokes as text: four letters for each point, a dot between strokes. */
export function strokesToText(strokes) {
  const two = (value) => {
    const number = Math.round(value * FINE);
    return LETTERS[number >> 6] + LETTERS[number & 63];
  };
  return strokes.map((stroke) => stroke.map(([x, y]) => two(x) + two(y)).join("")).join(".");
}

/** Strokes from such a text; none where it is not one. */
export function strokesFromText(text) {
  if (!text || text.length > MOST_LETTERS || !/^([\w-]{4})+(\.([\w-]{4})+)*$/.test(text)) return [];
  const number = (two) => (LETTERS.indexOf(two[0]) * 64 + LETTERS.indexOf(two[1])) / FINE;
  return text.split(".").map((stroke) => stroke.match(/.{4}/g).map((point) => [number(point.slice(0, 2)), number(point.slice(2))]));
}
