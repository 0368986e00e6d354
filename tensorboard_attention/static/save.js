// Saves the selected head as a file: its map with the label of every token as SVG or PNG, its weights
// and the scores of all heads as CSV.

import { el, printable, svg, tokenLabel } from "./dom.js";
import { NOT_FINITE, cross, strike } from "./broken.js";
import { css } from "./colours.js";
import { FileMenu, csv, fileName, textFile } from "./files.js";

const CELL = 14; // pixels, so that each row and column has room for its label
const SPACE = 6;
const LEGEND = { wide: 320, high: 12, stops: 64 };
const FAMILY = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const SHARP = 4_000; // up to this many pixels per side, a PNG has two for each one
const MOST_SIDE = 16_384; // pixels per side that browsers can draw

export class SaveMenu extends FileMenu {
  // subject(): what is saved, as below.
  // say(text): tells what could not be done.
  constructor(subject, say) {
    const item = (text, make) => [text, () => make(subject())];
    super(
      [
        item("Map (SVG)", (of) => [`${of.name}.svg`, textFile(drawSvg(of), "image/svg+xml")]),
        item("Map (PNG)", async (of) => [`${of.name}.png`, await drawPng(of)]),
        item("Weights (CSV)", (of) => [`${of.name}-weights.csv`, textFile(weightsCsv(of), "text/csv")]),
        item("Scores of all heads (CSV)", (of) => [
          `${of.scores}-scores.csv`,
          textFile(scoresCsv(of), "text/csv"),
        ]),
      ],
      say,
    );
  }

  // shown: whether there is a map to save.
  allow(shown) {
    for (const each of this.buttons.slice(0, 3)) each.disabled = !shown;
  }
}

// What is saved of a view (0 or 1), or of the difference of both (2): maps, or what has their face;
// heads, the index of the head in them; title; name of the file, and of that of scores; views, with the
// maps that have the scores; palette.
export function subject({ state, maps, palette, difference }, which) {
  const { layer, head, one, two } = state;
  const view = which === 1 ? two : one;
  const scored = maps[which % 2];
  const shown = which === 2 ? difference.maps : scored;
  const minus = which === 2 ? ["minus", two.run, two.tag, two.step] : [];
  const place = ({ run, tag, step }) => [...(run === "." ? [] : [run]), tag, `step ${step}`].join(", ");
  const other = which === 2 ? ` minus ${place(two)}` : "";
  return {
    maps: shown,
    heads: shown.headIndex(layer, head),
    title: `Layer ${layer}, head ${head} · ${place(view)}${other}`,
    name: fileName(view.run, view.tag, view.step, `L${layer}H${head}`, ...minus),
    scores: fileName(view.run, view.tag, view.step, ...minus),
    views: which === 2 ? [one, two].map((each, i) => ({ ...each, maps: maps[i] })) : [{ ...view, maps: scored }],
    note: shown.isFinite(layer, head) ? "" : NOT_FINITE,
    palette,
  };
}

// Where everything of the picture is, in pixels: {wide, high, map: {x, y, rows, columns}, ramp, texts}.
// A text has its anchor ("start", "middle", "end") and may be turned to read upwards.
function plan({ maps, title, note, palette }) {
  const rows = maps.tokens.map((token) => tokenLabel(token));
  const columns = maps.keys.map((token) => tokenLabel(token));
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  const width = (text, size = 12) => {
    pen.font = `${size}px ${FAMILY}`;
    return Math.ceil(pen.measureText(text).width);
  };
  const widest = (labels) => labels.reduce((most, label) => Math.max(most, width(label)), 0);
  const heading = printable(title);
  const legend = maps.legend(palette);
  const x = SPACE + widest(rows) + SPACE;
  const y = SPACE + (note ? 38 : 20) + widest(columns) + SPACE;
  const below = y + rows.length * CELL + 3 * SPACE;
  const text = (at, down, words, anchor, more) => ({ x: at, y: down, words, anchor, size: 12, ...more });
  const ramp = { x: x, y: below + 16 };
  return {
    wide: Math.max(
      x + columns.length * CELL + 2 * SPACE,
      x + LEGEND.wide + 5 * SPACE,
      width(heading, 14) + 2 * SPACE,
      width(note) + 2 * SPACE,
    ),
    high: ramp.y + LEGEND.high + 24,
    map: { x, y, rows: rows.length, columns: columns.length },
    ramp: Array.from({ length: LEGEND.stops }, (_, i) => ({
      x: ramp.x + (i * LEGEND.wide) / LEGEND.stops,
      y: ramp.y,
      wide: LEGEND.wide / LEGEND.stops,
      high: LEGEND.high,
      fill: css(legend.colours[Math.round((i / (LEGEND.stops - 1)) * (legend.colours.length - 1))]),
    })),
    texts: [
      text(SPACE, SPACE + 8, heading, "start", { size: 14 }),
      ...(note ? [text(SPACE, SPACE + 26, note, "start")] : []),
      ...rows.map((label, i) => text(x - SPACE, y + (i + 0.5) * CELL, label, "end")),
      ...columns.map((label, i) =>
        text(x + (i + 0.5) * CELL, y - SPACE, label, "start", { turned: true }),
      ),
      text(ramp.x, below + 6, legend.title, "start"),
      ...legend.ticks.map(([at, label]) =>
        text(ramp.x + at * LEGEND.wide, ramp.y + LEGEND.high + 10, label, "middle"),
      ),
    ],
  };
}

function drawSvg(of) {
  const { maps, heads, palette } = of;
  const { wide, high, map, ramp, texts } = plan(of);
  // One path for each colour: cells as strips of one unit.
  const strips = new Map();
  for (let query = 0; query < map.rows; query++) {
    for (let key = 0, end; key < map.columns; key = end) {
      const pixel = maps.pixel(heads, query, key, palette);
      for (end = key + 1; end < map.columns; end++)
        if (maps.pixel(heads, query, end, palette) !== pixel) break;
      const strip = `M${key} ${query}h${end - key}v1h${key - end}z`;
      strips.set(pixel, (strips.get(pixel) ?? "") + strip);
    }
  }
  const paths = [...strips].map(([pixel, d]) => svg("path", { fill: css(pixel), d }));
  const edge = { x: map.x, y: map.y, width: map.columns * CELL, height: map.rows * CELL };
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${wide} ${high}`, width: wide, height: high },
    svg("rect", { width: wide, height: high, fill: palette.ground }),
    svg(
      "g",
      {
        transform: `translate(${map.x} ${map.y}) scale(${CELL})`,
        "shape-rendering": "crispEdges",
        class: "map",
      },
      ...paths,
    ),
    svg("rect", { ...edge, fill: "none", stroke: palette.line }),
    ...(of.note ? [crossed(map, palette)] : []),
    ...ramp.map((each) =>
      svg("rect", { x: each.x, y: each.y, width: each.wide + 0.5, height: each.high, fill: each.fill }),
    ),
    svg(
      "g",
      { fill: palette.ink, "font-family": FAMILY, "dominant-baseline": "central" },
      ...texts.map(({ x, y, words, anchor, size, turned }) =>
        svg(
          "text",
          {
            "text-anchor": anchor,
            "font-size": size,
            transform: `translate(${x} ${y})${turned ? " rotate(-90)" : ""}`,
            style: "white-space: pre",
          },
          words,
        ),
      ),
    ),
  );
  picture.prepend(svg("title", {}, printable(of.title)));
  return new XMLSerializer().serializeToString(picture);
}

function crossed(map, palette) {
  const lines = cross(map.columns * CELL, map.rows * CELL);
  return svg(
    "g",
    { class: "broken", transform: `translate(${map.x} ${map.y})`, stroke: palette.from, "stroke-width": 3 },
    ...lines.map(([x1, y1, x2, y2]) => svg("line", { x1, y1, x2, y2 })),
  );
}

async function drawPng(of) {
  const { maps, heads, palette } = of;
  const { wide, high, map, ramp, texts } = plan(of);
  const ratio = Math.max(wide, high) <= SHARP ? 2 : 1;
  if (Math.max(wide, high) * ratio > MOST_SIDE)
    throw new Error("A PNG of so many tokens is too large for a browser. Save the map as SVG.");
  const canvas = el("canvas", { width: Math.ceil(wide * ratio), height: Math.ceil(high * ratio) });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.fillStyle = palette.ground;
  pen.fillRect(0, 0, wide, high);
  for (let query = 0; query < map.rows; query++) {
    for (let key = 0; key < map.columns; key++) {
      pen.fillStyle = css(maps.pixel(heads, query, key, palette));
      pen.fillRect(map.x + key * CELL, map.y + query * CELL, CELL, CELL);
    }
  }
  pen.strokeStyle = palette.line;
  pen.strokeRect(map.x, map.y, map.columns * CELL, map.rows * CELL);
  if (of.note) strike(pen, palette.from, map.x, map.y, map.columns * CELL, map.rows * CELL);
  for (const each of ramp) {
    pen.fillStyle = each.fill;
    pen.fillRect(each.x, each.y, each.wide + 0.5, each.high);
  }
  pen.fillStyle = palette.ink;
  pen.textBaseline = "middle";
  for (const { x, y, words, anchor, size, turned } of texts) {
    pen.save();
    pen.font = `${size}px ${FAMILY}`;
    pen.textAlign = { start: "left", middle: "center", end: "right" }[anchor];
    pen.translate(x, y);
    if (turned) pen.rotate(-Math.PI / 2);
    pen.fillText(words, 0, 0);
    pen.restore();
  }
  const blob = await new Promise((resolve) => canvas.toBlob(resolve));
  if (!blob) throw new Error("This browser cannot draw a PNG of so many tokens. Save the map as SVG.");
  return blob;
}

// One line per weight. Tokens are JSON texts, so that spaces and line ends are kept and seen.
function weightsCsv({ maps, heads }) {
  const lines = [["query", "query_token", "key", "key_token", ...maps.columns]];
  maps.tokens.forEach((token, query) =>
    maps.keys.forEach((other, key) => {
      const values = maps.values(heads, query, key)?.map((each) => (Number.isNaN(each) ? "nan" : each));
      if (values) lines.push([query, JSON.stringify(token), key, JSON.stringify(other), ...values]);
    }),
  );
  return csv(lines);
}

function scoresCsv({ views }) {
  const names = [...new Set(views.flatMap(({ maps }) => Object.keys(maps.header.scores)))];
  const lines = views.flatMap(({ maps, run, tag, step }) =>
    maps
      .heads()
      .map(([layer, head]) => [
        ...[run, tag, step, layer, head],
        ...names.map((name) => maps.score(name, layer, head)),
      ]),
  );
  return csv([["run", "probe", "step", "layer", "head", ...names], ...lines]);
}
