// All heads as points, by two scores that one chooses. In a comparison, a head and its twin have one
// colour, and a line between them.

import { field, options } from "./controls.js";
import { el, formatNumber, svg } from "./dom.js";
import { kindOf, roleOf } from "./naming.js";
import { bounds } from "./scores.js";

const PLOT_WIDE = 480;
const PLOT_HIGH = 300;
const PLOT_EDGE = 34;

export class Points {
  // choose([layer, head]): a point was clicked.
  constructor(choose) {
    this.choose = choose;
    const select = () => el("select", { oninput: () => this.#draw() });
    [this.across, this.up] = [select(), select()];
    this.chart = svg("svg", { viewBox: `0 0 ${PLOT_WIDE} ${PLOT_HIGH}`, role: "group", "aria-label": "Heads as points" });
    this.about = el("p", { class: "note small" });
    const choices = el("div", { class: "line" }, field("Across", this.across), field("Up", this.up));
    this.node = el("section", { class: "points" }, el("h2", {}, "Heads by two scores"), choices, this.about, this.chart);
  }

  // maps: of one view, or of two. twins: [layer, head, layer, head of its twin, ...] of each head.
  show(maps, twins, { layer, head }) {
    Object.assign(this, { maps, twins, selected: [layer, head] });
    const known = (name) => maps[0].heads().some(([l, h]) => Number.isFinite(maps[0].score(name, l, h)));
    const names = Object.keys(maps[0].header.scores).filter(known);
    this.node.hidden = names.length < 2;
    const kept = (select, ...wished) => [select.value, ...wished, names[0]].find((name) => names.includes(name));
    options(this.across, names, kept(this.across, "copy", names[1]));
    options(this.up, names, kept(this.up, "importance", "induction"));
    this.#draw();
  }

  #draw() {
    const [x, y] = [this.across.value, this.up.value];
    const points = this.maps.flatMap((maps, view) =>
      maps.heads().map(([l, h]) => ({ maps, view, at: [l, h], value: [maps.score(x, l, h), maps.score(y, l, h)] })),
    ).filter(({ value }) => value.every(Number.isFinite));
    const { units } = this.maps[0].header;
    const axis = (name, i) => {
      const [low, high] = bounds([0, ...points.map(({ value }) => value[i])]);
      return [low, Object.hasOwn(units, name) ? high || 1 : Math.max(1, high)];
    };
    const scales = [axis(x, 0), axis(y, 1)];
    const place = ({ value }) => {
      const [right, up] = value.map((each, i) => (each - scales[i][0]) / (scales[i][1] - scales[i][0]));
      return [PLOT_EDGE + right * (PLOT_WIDE - 2 * PLOT_EDGE), PLOT_HIGH - PLOT_EDGE - up * (PLOT_HIGH - 2 * PLOT_EDGE)];
    };
    const compared = this.maps.length > 1;
    const pairs = this.twins.map(([l, h, m, g]) => [0, 1].map((view) => points.find((point) => point.view === view && `${point.at}` === `${view ? [m, g] : [l, h]}`)));
    const hue = new Map(pairs.flatMap((pair, i) => pair.map((point) => [point, `hsl(${(360 * i) / pairs.length} 65% 50%)`])));
    const lines = pairs.filter(([a, b]) => a && b).map((pair) => {
      const [[x1, y1], [x2, y2]] = pair.map(place);
      return svg("line", { x1, y1, x2, y2, class: "pair", style: `stroke: ${hue.get(pair[0])}` });
    });
    const text = (at, name, [low, high], end, turn = {}) =>
      svg("text", { ...at, ...turn, "text-anchor": "middle" }, `${name} (${formatNumber(low)} to ${formatNumber(high)})`);
    this.chart.replaceChildren(
      svg("path", { class: "axes", d: `M${PLOT_EDGE} ${PLOT_EDGE / 2}V${PLOT_HIGH - PLOT_EDGE}H${PLOT_WIDE - PLOT_EDGE / 2}` }),
      text({ x: PLOT_WIDE / 2, y: PLOT_HIGH - 10 }, x, scales[0]),
      text({ x: -PLOT_HIGH / 2, y: 16 }, y, scales[1], "", { transform: "rotate(-90)" }),
      ...lines,
      ...points.map((point) => this.#point(point, place(point), hue.get(point), compared)),
    );
    this.about.textContent = compared
      ? "Full: the first view. Hollow: the other. A head and its twin have one colour."
      : "At this step: move the slider to see them move. Click a point to select its head.";
  }

  #point({ maps, view, at, value }, [x, y], colour, compared) {
    const name = `L${at.join("H")}`;
    const [role, score] = roleOf(maps, ...at);
    const chosen = view === 0 && `${at}` === `${this.selected}`;
    const point = svg(
      "g",
      {
        class: `point${chosen ? " chosen" : ""}${view ? " hollow" : ""}`,
        "data-kind": kindOf(score),
        style: compared ? `--kind: ${colour ?? "var(--quiet)"}` : null,
        onclick: () => view === 0 && this.choose(at),
      },
      svg("title", {}, `${name}, ${role}: ${value.map(formatNumber).join(", ")}`),
      svg("circle", { cx: x, cy: y, r: 6 }),
      svg("text", { x: x + 9, y: y + 4 }, name),
    );
    return point;
  }
}
