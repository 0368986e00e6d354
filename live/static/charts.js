// Bars and tables as pictures to save, SVG and PNG.

import { el, printable, svg, tokenLabel } from "./dom.js";
import { FileMenu, csv, textFile } from "./files.js";

const ROW = 22; // pixels
const LETTER = 7.3; // of the monospaced font, about
const BAR = 220;
const EDGE_SPACE = 8;
const MONOSPACE = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';

// The menu of a picture. chart(): {name, title, rows} or {name, title, columns, rows}, as below; lines():
// its numbers; look(): the palette.
export class ChartMenu extends FileMenu {
  constructor(chart, lines, look, say) {
    const drawn = () => draw(chart(), look());
    super(
      [
        ["Picture (SVG)", () => [`${chart().name}.svg`, textFile(asText(drawn()), "image/svg+xml")]],
        ["Picture (PNG)", async () => [`${chart().name}.png`, await asPng(drawn())]],
        ["Numbers (CSV)", () => [`${chart().name}.csv`, textFile(csv(lines()), "text/csv")]],
      ],
      say,
    );
  }
}

function draw(chart, palette) {
  return chart.columns ? drawTable(chart, palette) : drawBars(chart, palette);
}

// rows: [name, length of the bar from -1 to 1, text].
function drawBars({ title, rows }, palette) {
  const names = rows.map(([name]) => tokenLabel(name, 40));
  const signed = rows.some(([, value]) => value < 0);
  const left = EDGE_SPACE + Math.max(...names.map((each) => each.length), 1) * LETTER + EDGE_SPACE;
  const zero = left + (signed ? BAR / 2 : 0);
  const reach = signed ? BAR / 2 : BAR;
  const wide = Math.max(left + BAR + 90, printable(title).length * LETTER + 2 * EDGE_SPACE);
  const parts = rows.flatMap(([, value, text], i) => {
    const y = 34 + i * ROW;
    const length = Math.abs(value) * reach || 0;
    const fill = value < 0 ? palette.from : palette.to;
    return [
      words(left - EDGE_SPACE, y + ROW / 2, names[i], palette.ink, "end"),
      svg("rect", { x: value < 0 ? zero - length : zero, y: y + 3, width: length, height: ROW - 6, fill }),
      words(left + BAR + EDGE_SPACE, y + ROW / 2, text, palette.ink),
    ];
  });
  return picture(title, wide, 34 + rows.length * ROW + EDGE_SPACE, parts, palette);
}

// columns: names; rows: [name, [text, share], ...]; a share from 0 to 1 colours its cell.
function drawTable({ title, columns, rows }, palette) {
  const cell = 11 * LETTER;
  const left = EDGE_SPACE + 12 * LETTER;
  const line = (texts, i, colour) =>
    texts.map((text, j) => words(left + (j + 0.5) * cell, 34 + (i + 0.5) * ROW, text, colour, "middle"));
  const parts = [
    ...line(columns.map((each) => tokenLabel(each, 10)), 0, palette.quiet),
    ...rows.flatMap(([name, ...cells], i) => [
      words(EDGE_SPACE, 34 + (i + 1.5) * ROW, name, palette.quiet),
      ...cells.map(([, share], j) =>
        svg("rect", {
          ...{ x: left + j * cell + 1, y: 35 + (i + 1) * ROW, width: cell - 2, height: ROW - 2 },
          ...{ fill: palette.to, "fill-opacity": (0.5 * Math.sqrt(share)).toFixed(3) },
        }),
      ),
      ...line(cells.map(([text]) => tokenLabel(text, 10)), i + 1, palette.ink),
    ]),
  ];
  const wide = Math.max(left + columns.length * cell + EDGE_SPACE, title.length * LETTER + 2 * EDGE_SPACE);
  return picture(title, wide, 34 + (rows.length + 1) * ROW + EDGE_SPACE, parts, palette);
}

function words(x, y, text, fill, anchor = "start") {
  const style = "white-space: pre";
  return svg("text", { x, y, fill, "text-anchor": anchor, style }, printable(text));
}

function picture(title, wide, high, parts, palette) {
  const font = { "font-family": MONOSPACE, "font-size": 12, "dominant-baseline": "central" };
  return svg(
    "svg",
    { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high },
    svg("title", {}, printable(title)),
    svg("rect", { width: wide, height: high, fill: palette.ground }),
    svg("g", font, words(EDGE_SPACE, 17, title, palette.ink), ...parts),
  );
}

function asText(node) {
  return new XMLSerializer().serializeToString(node);
}

// As the browser draws the SVG, with two pixels for each one.
async function asPng(node) {
  const address = URL.createObjectURL(textFile(asText(node), "image/svg+xml"));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const [width, height] = ["width", "height"].map((name) => Math.ceil(2 * node.getAttribute(name)));
    const canvas = el("canvas", { width, height });
    canvas.getContext("2d").drawImage(image, 0, 0, width, height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve));
    if (blob) return blob;
  } catch {
    // Told below, as a browser has no better words for it.
  } finally {
    URL.revokeObjectURL(address);
  }
  throw new Error("This browser cannot draw this picture as PNG. Save it as SVG.");
}
