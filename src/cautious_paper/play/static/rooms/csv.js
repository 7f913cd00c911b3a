// A CSV of two columns of numbers and perhaps a third with the class. What cannot be read is an error with a sentence.

export const MOST_ROWS = 400;
const MOST_BYTES = 5e6;
const LARGEST = 1e15; // beyond, neighbouring numbers are too far apart to draw a plane around
const CLASSES = ["A", "B", "C"];

/** @returns {{points: {x: number, y: number, kind: number}[], names: string[], note: string}} */
export function readCsv(text, name = "The file") {
  if (text.length > MOST_BYTES) throw new Error(`${name} is larger than 5 MB. Cut it to some hundred rows.`);
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/).map((line, i) => ({ line, number: i + 1 })).filter(({ line }) => line.trim() !== "");
  if (lines.length === 0) throw new Error(`${name} is empty. It needs two columns of numbers.`);
  const separator = ["\t", ";", ","].find((sign) => lines[0].line.includes(sign)) ?? /\s+/;
  const cellsOf = (line) => (separator instanceof RegExp ? line.trim() : line).split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
  const rows = lines.map(({ line, number }) => ({ cells: cellsOf(line), number }));
  const [first] = rows;
  const heading = first.cells.length > 1 && !isNumber(first.cells[0]) && !isNumber(first.cells[1]) && !first.cells.slice(0, 2).some(hasComma) ? first.cells : null;
  const body = heading ? rows.slice(1) : rows;
  if (body.length === 0) throw new Error(`${name} has one line only, “${lines[0].line.slice(0, 30)}”, and no number in it. It needs two columns of numbers below the names.`);
  for (const { cells, number } of body) check(cells, `${name}, line ${number}`);
  const kinds = [...new Set(body.map(({ cells }) => cells[2] ?? ""))].sort();
  const used = columns(heading ?? first.cells, heading);
  if (kinds.length > CLASSES.length) throw new Error(`${name} has ${kinds.length} different values in its third column${heading ? `, “${heading[2]}”` : ""}. A plane shows three classes at most; the columns must be two of numbers, then the class.`);
  const every = body.map(({ cells }) => ({ x: Number(cells[0]), y: Number(cells[1]), kind: kinds.indexOf(cells[2] ?? "") }));
  const { points, note } = thinned(every);
  const names = kinds.length > 1 ? ` ${kinds.map((kind, i) => `${CLASSES[i]} is “${kind || "empty"}”`).join(", ")}.` : " All are class A: click points of another class beside them.";
  const called = kinds.length > 1 ? kinds.map((kind) => (kind || "empty").slice(0, 16)) : [];
  return { points, names: CLASSES.map((plain, i) => called[i] ?? plain), note: `${every.length.toLocaleString("en")} rows.${used}${names}${note}` };
}

const isNumber = (cell) => cell !== undefined && cell !== "" && Number.isFinite(Number(cell));
const hasComma = (cell) => /^[+-]?\d+,\d+$/.test(cell);

/** Two numbers, or a sentence that says why not and what to do. */
function check(cells, where) {
  if (cells.length < 2) throw new Error(`${where}: one column only. It needs two columns of numbers.`);
  for (const cell of cells.slice(0, 2)) {
    const short = cell.slice(0, 30);
    if (hasComma(cell)) throw new Error(`${where}: “${short}” has a decimal comma. Write ${short.replace(",", ".")}: numbers need a point.`);
    if (cell === "") throw new Error(`${where}: a number is missing. The first two columns must be numbers; leave out rows that have none.`);
    if (!isNumber(cell)) throw new Error(`${where}: “${short}” is not a number. The first two columns must be numbers; only the third, the class, may be a text.`);
    if (Math.abs(Number(cell)) > LARGEST) throw new Error(`${where}: “${short}” is too large. Numbers up to 1e15 can be drawn; scale the column.`);
  }
}

/** Which columns are used, where it could be others than one thinks. */
function columns(cells, heading) {
  if (heading) return ` Across: “${cells[0]}”, up: “${cells[1]}”${cells.length > 2 ? `, class: “${cells[2]}”` : ""}${cells.length > 3 ? "; other columns are not used" : ""}.`;
  return cells.length > 3 ? " Only the first three columns are used: across, up, class." : "";
}

/** At most as many points as train within seconds, evenly chosen. */
export function thinned(points) {
  if (points.length <= MOST_ROWS) return { points, note: "" };
  const kept = Array.from({ length: MOST_ROWS }, (_, i) => points[Math.floor((i * points.length) / MOST_ROWS)]);
  return { points: kept, note: ` Training here uses ${MOST_ROWS} of them; fit_ensemble in Python takes all.` };
}
