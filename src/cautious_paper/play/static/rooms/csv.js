// A CSV of numbers and perhaps a class: read, then two columns and the class are chosen. What cannot be read is an error with a sentence.

export const MOST_ROWS = 400;
const MOST_BYTES = 5e6;
const MOST_COLUMNS = 200; // in the lists to choose from
const LARGEST = 1e15; // beyond, neighbouring numbers are too far apart to draw a plane around
const CLASSES = ["A", "B", "C"];

/**
 * The cells of a file.
 * @returns {{name: string, heading: string[] | null, rows: {cells: string[], number: number}[], columns: string[]}} `columns`: what to call each
 */
export function readCsv(text, name = "The file") {
  if (text.length > MOST_BYTES) throw new Error(`${name} is larger than 5 MB. Cut it to some hundred rows.`);
  const lines = text.replace(/^\uFEFF/, "").split(/\r\n|\r|\n/).map((line, i) => ({ line, number: i + 1 })).filter(({ line }) => line.trim() !== "");
  if (lines.length === 0) throw new Error(`${name} is empty. It needs two columns of numbers.`);
  const separator = ["\t", ";", ","].find((sign) => lines[0].line.includes(sign)) ?? /\s+/;
  const cellsOf = (line) => (separator instanceof RegExp ? line.trim() : line).split(separator).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
  const table = lines.map(({ line, number }) => ({ cells: cellsOf(line), number }));
  const first = table[0].cells;
  const heading = first.length > 1 && !first.some((cell) => isNumber(cell) || hasComma(cell)) ? first : null;
  const rows = heading ? table.slice(1) : table;
  if (rows.length === 0) throw new Error(`${name} has one line only, “${lines[0].line.slice(0, 30)}”, and no number in it. It needs two columns of numbers below the names.`);
  const columns = first.slice(0, MOST_COLUMNS).map((cell, i) => (heading && cell ? cell.slice(0, 40) : `column ${i + 1}`));
  if (columns.length < 2) throw new Error(`${name}, line ${rows[0].number}: one column only. It needs two columns of numbers.`);
  return { name, heading, rows, columns };
}

/** Which columns a plane shows unless one chooses: the first two of numbers, and after them the first with two or three values; -1: no class. */
export function usualColumns({ rows, columns }) {
  const every = columns.map((_, i) => i);
  const numeric = every.filter((i) => rows.every(({ cells }) => isNumber(cells[i])));
  const [across, up] = numeric.length < 2 ? [0, 1] : numeric; // then the error is about the first two
  const left = every.filter((i) => i !== across && i !== up);
  const few = left.filter((i) => [2, 3].includes(valuesOf(rows, i).length));
  const kind = few.find((i) => !numeric.includes(i)) ?? few[0] ?? (left.includes(2) ? 2 : -1);
  return { across, up, kind };
}

/** The points of a table: two of its columns, and the class if there is one. */
export function pointsOf({ name, heading, rows, columns }, { across, up, kind }) {
  for (const { cells, number } of rows) for (const column of [across, up]) check(cells[column] ?? "", `${name}, line ${number}`, columns[column], heading);
  const kinds = kind < 0 ? [""] : valuesOf(rows, kind);
  if (kinds.length > CLASSES.length) throw new Error(`${name} has ${kinds.length} different values in “${columns[kind]}”. A plane shows three classes at most: choose another column for the class, or none.`);
  const every = rows.map(({ cells }) => ({ x: Number(cells[across]), y: Number(cells[up]), kind: Math.max(kinds.indexOf(cells[kind] ?? ""), 0) }));
  const { points, note } = thinned(every);
  const used = heading ? ` Across: “${columns[across]}”, up: “${columns[up]}”${kinds.length > 1 ? `, class: “${columns[kind]}”` : ""}.` : "";
  const one = kinds.length > 1 ? "" : " All are class A: click points of another class beside them.";
  const called = kinds.length > 1 ? kinds.map((value) => (value || "empty").slice(0, 16)) : [];
  return { points, names: CLASSES.map((plain, i) => called[i] ?? plain), note: `${every.length.toLocaleString("en")} rows.${used}${one}${note}` };
}

const valuesOf = (rows, column) => [...new Set(rows.map(({ cells }) => cells[column] ?? ""))].sort();
const isNumber = (cell) => cell !== undefined && cell !== "" && Number.isFinite(Number(cell));
const hasComma = (cell) => /^[+-]?\d+,\d+$/.test(cell);

/** A number, or a sentence that says why not and what to do. */
function check(cell, where, column, heading) {
  const short = cell.slice(0, 30);
  const of = heading ? ` in “${column}”` : "";
  if (hasComma(cell)) throw new Error(`${where}: “${short}”${of} has a decimal comma. Write ${short.replace(",", ".")}: numbers need a point.`);
  if (cell === "") throw new Error(`${where}: a number is missing${of}. Across and up need a number in each row; leave out rows that have none.`);
  if (!isNumber(cell)) throw new Error(`${where}: “${short}”${of} is not a number. Across and up must be columns of numbers; only the class may be a text.`);
  if (Math.abs(Number(cell)) > LARGEST) throw new Error(`${where}: “${short}”${of} is too large. Numbers up to 1e15 can be drawn; scale the column.`);
}

/** At most as many points as train within seconds, evenly chosen. */
export function thinned(points) {
  if (points.length <= MOST_ROWS) return { points, note: "" };
  const kept = Array.from({ length: MOST_ROWS }, (_, i) => points[Math.floor((i * points.length) / MOST_ROWS)]);
  return { points: kept, note: ` Training here uses ${MOST_ROWS} of them; fit_ensemble in Python takes all.` };
}
