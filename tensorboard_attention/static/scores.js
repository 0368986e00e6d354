// The scores of the selected head, each with its curve over the logged steps.

import { el, formatNumber, svg } from "./dom.js";

const WIDE = 200;
const HIGH = 44;

export class Scores {
  // choose(step): a curve was clicked.
  constructor(choose) {
    this.choose = choose;
    this.node = el("section", { class: "scores", "aria-label": "Scores of the head" });
  }

  // views: one or two of {maps, step, curves}; curves are null until they are loaded.
  show(views, layer, head) {
    const [first] = views;
    const names = Object.keys(first.maps.header.scores);
    this.node.replaceChildren(
      ...names.map((name) => {
        const values = views
          .map(({ maps }) => formatNumber(maps.score(name, layer, head)))
          .join(" | ");
        const title = el(
          "div",
          { class: "value" },
          el("span", { title: first.maps.meaning(name) }, name),
          el("b", {}, values),
        );
        return el(
          "div",
          { class: "score", "data-score": name },
          title,
          this.#chart(views, name, layer, head),
        );
      }),
    );
  }

  #chart(views, name, layer, head) {
    const curves = views
      .map(({ curves, step }) => (curves ? { step, ...curve(curves, name, layer, head) } : null))
      .filter(Boolean);
    const finite = curves.flatMap(({ values }) => values.filter(Number.isFinite));
    if (!finite.length) return el("div", { class: "chart" });
    const [low, high] = bounds(finite);
    const now = views
      .map(({ maps, step }) => `${formatNumber(maps.score(name, layer, head))} at step ${step}`)
      .join(", ");
    const [first, last] = bounds(curves.flatMap((each) => each.steps));
    const x = (step) => (last > first ? ((step - first) / (last - first)) * WIDE : WIDE / 2);
    const y = (value) =>
      high > low ? HIGH - 3 - ((value - low) / (high - low)) * (HIGH - 6) : HIGH / 2;
    const drawn = curves.flatMap(({ steps, values, step }, i) => {
      const points = steps.flatMap((each, j) =>
        Number.isFinite(values[j]) ? [`${x(each).toFixed(1)},${y(values[j]).toFixed(1)}`] : [],
      );
      const mark = { x1: x(step), x2: x(step), y1: 0, y2: HIGH, class: `now view${i}` };
      return [svg("line", mark), svg("polyline", { points: points.join(" "), class: `view${i}` })];
    });
    const chart = svg(
      "svg",
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${name} over steps, from ${formatNumber(low)} to ${formatNumber(high)}: ${now}`,
      },
      ...drawn,
    );
    chart.addEventListener("click", (event) => {
      const box = chart.getBoundingClientRect();
      const wanted = first + ((event.clientX - box.left) / box.width) * (last - first);
      this.choose(wanted);
    });
    const labels = el(
      "span",
      { class: "bounds", "aria-hidden": "true" },
      el("span", {}, formatNumber(high)),
      el("span", {}, formatNumber(low)),
    );
    return el("div", { class: "chart" }, chart, labels);
  }
}

// The smallest and the largest value. As arguments of Math.min, a hundred thousand are too many.
function bounds(values) {
  return values.reduce(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Infinity, -Infinity],
  );
}

// One head's score over the steps.
function curve({ names, steps, heads, values }, name, layer, head) {
  const place = names.indexOf(name);
  const count = heads.reduce((sum, each) => sum + each, 0);
  if (place < 0 || head >= (heads[layer] ?? 0)) return { steps: [], values: [] };
  const at = place * count + heads.slice(0, layer).reduce((sum, each) => sum + each, 0) + head;
  return { steps, values: steps.map((_, i) => values[i * names.length * count + at]) };
}
