// One score of all heads over the logged steps: when which head formed.

import { el, svg } from "./dom.js";
import { bounds, curve, piecesOf, placeOf } from "./scores.js";

const ACROSS = 400;
const DOWN = 120;

export class HeadCurves {
  // choose([layer, head]): the curve of a head was clicked.
  constructor(choose) {
    this.choose = choose;
    this.title = el("h3", {});
    this.chart = svg("svg", { viewBox: `0 0 ${ACROSS} ${DOWN}`, preserveAspectRatio: "none", role: "img" });
    this.low = el("span", {});
    this.high = el("span", {});
    const axis = el("div", { class: "axis apart small" }, this.low, this.high);
    this.parts = [this.title, el("div", { class: "chart" }, this.chart), axis];
    this.node = el("section", { class: "headcurves" });
  }

  // curves: of all scores, or null until they are loaded; name: of the score.
  show(maps, curves, name, { layer, head }, step) {
    const place = placeOf(maps, name);
    const all = curves ? maps.heads().map(([l, h]) => [l, h, piecesOf(curve(curves, name, l, h, place))]) : [];
    const points = all.flatMap(([, , pieces]) => pieces.flat());
    const [first, last] = bounds(points.map(([at]) => at));
    if (!(last > first)) return this.node.replaceChildren();
    this.node.replaceChildren(...this.parts);
    const [low, high] = bounds([0, ...points.map(([, value]) => value)]);
    const x = (at) => ((at - first) / (last - first)) * ACROSS;
    const y = (value) => DOWN - 4 - ((value - low) / (high - low || 1)) * (DOWN - 8);
    const path = (pieces) =>
      pieces.map((piece) => `M${piece.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("L")}`).join("");
    const isChosen = ([l, h]) => l === layer && h === head;
    all.sort((a, b) => isChosen(a) - isChosen(b)); // the chosen one above the others
    this.chart.replaceChildren(
      svg("line", { x1: x(step), x2: x(step), y1: 0, y2: DOWN, class: "now" }),
      ...all.map(([l, h, pieces]) => {
        const drawn = svg("path", { d: path(pieces), class: isChosen([l, h]) ? "chosen" : "" });
        drawn.append(svg("title", {}, `L${l}H${h}`));
        drawn.addEventListener("click", () => this.choose([l, h]));
        return drawn;
      }),
    );
    this.chart.setAttribute("aria-label", `${name} of all heads over steps; bold: layer ${layer}, head ${head}`);
    this.title.textContent = `${name}, all heads`;
    this.low.textContent = `step ${first.toLocaleString("en")}`;
    this.high.textContent = last.toLocaleString("en");
  }
}
