// Saves the selected head as a file: its map with the label of every token as SVG or PNG, its weights
// and the scores of all heads as CSV.

import { NOT_FINITE, cross } from "./broken.js";
import { css } from "./colours.js";
import { svg, tokenLabel } from "./dom.js";
import { SPACE, label, picture, pictureFiles, textWidth, widest } from "./drawing.js";
import { FileMenu, fileName, tableFile } from "./files.js";

const CELL = 14; // pixels, so that each row and column has room for its label
const LEGEND = { wide: 320, high: 12, stops: 64 };

// The files of a map, for a menu. shown(): what is saved, as `subject` returns it.
export function mapFiles(shown) {
  return [
    ...pictureFiles("Map", () => [shown().name, draw(shown())]),
    tableFile("Weights (CSV)", () => [`${shown().name}-weights`, weightLines(shown())]),
    tableFile("Scores of all heads (CSV)", () => [`${shown().scores}-scores`, scoreLines(shown())]),
  ];
}

export class SaveMenu extends FileMenu {
  constructor(shown, say) {
    super(mapFiles(shown), say);
  }

  // shown: whether there is a map to save.
  allow(shown) {
    for (const each of this.buttons.slice(0, 3)) each.disabled = !shown;
  }
}

// What is saved of a view (0 or 1), or of the difference of both (2): maps, or what has their face;
// heads, the index of the head in them; title; name of the file, and of that of scores; views, with the
// maps that have the scores; palette.
export function subject({ state, maps, palette, difference, compare }, which) {
  const { one, two } = state;
  const chosen = [state.layer, state.head];
  const [layer, head] = which === 1 && compare ? compare.twinOf(...chosen) : chosen;
  const view = which === 1 ? two : one;
  const scored = maps[which % 2];
  const shown = which === 2 ? difference.maps : scored;
  const minus = which === 2 ? ["minus", two.run, two.tag, two.step] : [];
  const place = ({ run, tag, step }) => [...(run === "." ? [] : [run]), tag, `step ${step}`].join(", ");
  const other = which === 2 ? ` minus ${place(two)}` : "";
  return {
    maps: shown,
    heads: shown.headIndex(layer, head),
    title: `L${layer}H${head} · ${place(view)}${other}`,
    name: fileName(view.run, view.tag, view.step, `L${layer}H${head}`, ...minus),
    scores: fileName(view.run, view.tag, view.step, ...minus),
    views: which === 2 ? [one, two].map((each, i) => ({ ...each, maps: maps[i] })) : [{ ...view, maps: scored }],
    note: shown.isFinite(layer, head) ? "" : NOT_FINITE,
    palette,
  };
}

function draw({ maps, heads, title, note, palette }) {
  const rows = maps.tokens.map((token) => tokenLabel(token));
  const columns = maps.keys.map((token) => tokenLabel(token));
  const { colours, ticks, title: weighed } = maps.legend(palette);
  const x = widest(rows) + 2 * SPACE;
  const y = (note ? 38 : 20) + widest(columns) + 2 * SPACE;
  const [wide, high] = [columns.length * CELL, rows.length * CELL];
  const scale = y + high + 40;
  const stop = LEGEND.wide / LEGEND.stops;
  const colour = (i) => css(colours[Math.round((i / (LEGEND.stops - 1)) * (colours.length - 1))]);
  const middle = (i) => (i + 0.5) * CELL;
  const parts = [
    ...rows.map((each, i) => label(x - SPACE, y + middle(i), each, { "text-anchor": "end" })),
    ...columns.map((each, i) => label(x + middle(i), y - SPACE, each, {}, true)),
    svg(
      "g",
      { transform: `translate(${x} ${y}) scale(${CELL})`, "shape-rendering": "crispEdges", class: "map" },
      ...cells(maps, heads, palette),
    ),
    svg("rect", { x, y, width: wide, height: high, fill: "none", stroke: palette.line }),
    ...(note ? [label(SPACE, 33, note), crossed(x, y, wide, high, palette)] : []),
    label(x, scale - 11, weighed),
    ...Array.from({ length: LEGEND.stops }, (_, i) =>
      svg("rect", { x: x + i * stop, y: scale, width: stop + 0.5, height: LEGEND.high, fill: colour(i) }),
    ),
    ...ticks.map(([at, text]) =>
      label(x + at * LEGEND.wide, scale + LEGEND.high + 10, text, { "text-anchor": "middle" }),
    ),
  ];
  const least = Math.max(x + Math.max(wide, LEGEND.wide + 2 * SPACE), textWidth(note) + SPACE);
  return picture(title, least + SPACE, scale + LEGEND.high + 24, parts, palette);
}

// One path for each colour: cells as strips of one unit.
function cells(maps, heads, palette) {
  const strips = new Map();
  for (let query = 0; query < maps.n; query++) {
    for (let key = 0, end; key < maps.m; key = end) {
      const pixel = maps.pixel(heads, query, key, palette);
      for (end = key + 1; end < maps.m; end++)
        if (maps.pixel(heads, query, end, palette) !== pixel) break;
      const strip = `M${key} ${query}h${end - key}v1h${key - end}z`;
      strips.set(pixel, (strips.get(pixel) ?? "") + strip);
    }
  }
  return [...strips].map(([pixel, d]) => svg("path", { fill: css(pixel), d }));
}

function crossed(x, y, wide, high, palette) {
  return svg(
    "g",
    { class: "broken", transform: `translate(${x} ${y})`, stroke: palette.from, "stroke-width": 3 },
    ...cross(wide, high).map(([x1, y1, x2, y2]) => svg("line", { x1, y1, x2, y2 })),
  );
}

// One line per weight. Tokens are JSON texts, so that spaces and line ends are kept and seen.
function weightLines({ maps, heads }) {
  const lines = [["query", "query_token", "key", "key_token", ...maps.columns]];
  maps.tokens.forEach((token, query) =>
    maps.keys.forEach((other, key) => {
      const values = maps.values(heads, query, key)?.map((each) => (Number.isNaN(each) ? "nan" : each));
      if (values) lines.push([query, JSON.stringify(token), key, JSON.stringify(other), ...values]);
    }),
  );
  return lines;
}

function scoreLines({ views }) {
  const names = [...new Set(views.flatMap(({ maps }) => Object.keys(maps.header.scores)))];
  const lines = views.flatMap(({ maps, run, tag, step }) =>
    maps
      .heads()
      .map(([layer, head]) => [
        ...[run, tag, step, layer, head],
        ...names.map((name) => maps.score(name, layer, head)),
      ]),
  );
  return [["run", "probe", "step", "layer", "head", ...names], ...lines];
}
