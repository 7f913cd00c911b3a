// A CSV of two columns of numbers and perhaps a third with the class. What cannot be read is an error with a sentence.

export const MOST_ROWS = 400;
const MOST_BYTES = 5e6;
const CLASSES = ["A", "B", "C"];

/** @returns {{points: {x: number, y: number, kind: number}[], note: string}} */
export function readCsv(text, name = "The file") {
  if (text.length > MOST_BYTES) throw new Error(`${name} is larger than 5 MB. Cut it to some hundred rows.`);
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/).filter((line) => line.trim() !== "");
  if (lines.length === 0) throw new Error(`${name} is empty. It needs two columns of numbers.`);
  const separator = ["\t", ";", ","].find((sign) => lines[0].includes(sign)) ?? /\s+/;
  const rows = lines.map((line) => line.trim().split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
  const isNumber = (cell) => cell !== undefined && cell !== "" && Number.isFinite(Number(cell));
  const heading = rows.length > 1 && !isNumber(rows[0][0]) && !isNumber(rows[0][1]);
  const body = heading ? rows.slice(1) : rows;
  body.forEach((cells, number) => {
    if (cells.length < 2) throw new Error(`${name}, row ${number + 1}: one column only. It needs two columns of numbers.`);
    const wrong = cells.slice(0, 2).find((cell) => !isNumber(cell));
    if (wrong !== undefined) {
      throw new Error(`${name}, row ${number + 1}: “${wrong.slice(0, 30)}” is not a number. The first two columns must be numbers; only the third, the class, may be a text.`);
    }
  });
  const kinds = [...new Set(body.map((cells) => cells[2] ?? ""))].sort();
  if (kinds.length > CLASSES.length) throw new Error(`${name} has ${kinds.length} different values in its third column. The plane has room for three classes.`);
  const every = body.map((cells) => ({ x: Number(cells[0]), y: Number(cells[1]), kind: kinds.indexOf(cells[2] ?? "") }));
  const { points, note } = thinned(every);
  const names = kinds.length > 1 ? ` ${kinds.map((kind, i) => `${CLASSES[i]} is “${kind || "empty"}”`).join(", ")}.` : " All are class A: click points of another class beside them.";
  return { points, note: `${every.length.toLocaleString("en")} rows.${names}${note}` };
}

/** At most as many points as train within seconds, evenly chosen. */
export function thinned(points) {
  if (points.length <= MOST_ROWS) return { points, note: "" };
  const kept = Array.from({ length: MOST_ROWS }, (_, i) => points[Math.floor((i * points.length) / MOST_ROWS)]);
  return { points: kept, note: ` Training here uses ${MOST_ROWS} of them; fit_ensemble in Python takes all.` };
}
