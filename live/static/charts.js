// Bars and tables as files to save: pictures as SVG and PNG, and their numbers.

import { svg, tokenLabel } from "./dom.js";
import { SPACE, label, picture, pictureFiles } from "./drawing.js";
import { tableFile } from "./files.js";

const ROW = 22; // pixels
const LETTER = 7.3; // of the monospaced font, about
const BAR = 220;
const TOP = 34;

// The files of a picture, for a menu, where they are called `what`. chart(): {name, title, rows} or
// {name, title, columns, rows}, as below; lines(): its numbers; look(): the palette.
export function chartFiles(what, chart, lines, look) {
  const draw = (of) => [of.name, (of.columns ? drawTable : drawBars)(of, look())];
  return [
    ...pictureFiles(what, () => draw(chart())),
    tableFile(`${what} (CSV)`, () => [chart().name, lines()]),
  ];
}

// rows: [name, length of the bar from -1 to 1, text].
function drawBars({ title, rows }, palette) {
  const names = rows.map(([name]) => tokenLabel(name, 40));
  const signed = rows.some(([, value]) => value < 0);
  const left = SPACE + Math.max(...names.map((each) => each.length), 1) * LETTER + SPACE;
  const zero = left + (signed ? BAR / 2 : 0);
  const reach = signed ? BAR / 2 : BAR;
  const parts = rows.flatMap(([, value, text], i) => {
    const y = TOP + i * ROW;
    const length = Math.abs(value) * reach || 0;
    const fill = value < 0 ? palette.from : palette.to;
    return [
      label(left - SPACE, y + ROW / 2, names[i], { "text-anchor": "end" }),
      svg("rect", { x: value < 0 ? zero - length : zero, y: y + 3, width: length, height: ROW - 6, fill }),
      label(left + BAR + SPACE, y + ROW / 2, text),
    ];
  });
  return picture(title, left + BAR + 90, TOP + rows.length * ROW + SPACE, parts, palette);
}

// columns: names; rows: [name, [text, share], ...]; a share from 0 to 1 colours its cell.
function drawTable({ title, columns, rows }, palette) {
  const cell = 11 * LETTER;
  const left = SPACE + 12 * LETTER;
  const line = (texts, i, colour) =>
    texts.map((text, j) =>
      label(left + (j + 0.5) * cell, TOP + (i + 0.5) * ROW, text, { fill: colour, "text-anchor": "middle" }),
    );
  const parts = [
    ...line(columns.map((each) => tokenLabel(each, 10)), 0, palette.quiet),
    ...rows.flatMap(([name, ...cells], i) => [
      label(SPACE, TOP + (i + 1.5) * ROW, name, { fill: palette.quiet }),
      ...cells.map(([, share], j) =>
        svg("rect", {
          ...{ x: left + j * cell + 1, y: TOP + 1 + (i + 1) * ROW, width: cell - 2, height: ROW - 2 },
          ...{ fill: palette.to, "fill-opacity": (0.5 * Math.sqrt(share)).toFixed(3) },
        }),
      ),
      ...line(cells.map(([text]) => tokenLabel(text, 10)), i + 1, palette.ink),
    ]),
  ];
  const wide = left + columns.length * cell + SPACE;
  return picture(title, wide, TOP + (rows.length + 1) * ROW + SPACE, parts, palette);
}
