// The scores of the selected head: each with its meaning, where it was measured, and its curve over
// the logged steps. Three of them lead, and the others are folded.

import { el, formatNumber, svg } from "./dom.js";
import { haveSameText } from "./maps.js";
import { roleOf } from "./naming.js";
import { closest } from "./state.js";

const HERE = ["this text", ""]; // places that may differ from step to step
const MOST_NAMED = 3; // steps
const WIDE = 200;
const HIGH = 44;

export class Scores {
  // choose(step): a curve was clicked.
  constructor(choose) {
    this.choose = choose;
    this.leading = el("div", { class: "scores" });
    this.others = el("div", { class: "scores" });
    const folded = el("details", {}, el("summary", {}, "All scores"), this.others);
    this.folded = folded;
    this.node = el("section", { class: "head-scores", "aria-label": "Scores of the head" }, this.leading, folded);
  }

  // views: one or two of {maps, layer, head, step, steps, curves}; steps are how many there are, curves
  // null until they are loaded. leads: the names of the scores that lead.
  show(views, leads = leading(views[0].maps, views[0].layer, views[0].head)) {
    const [first] = views;
    const { layer, head } = first;
    const names = Object.keys(first.maps.header.scores);
    const same = views.every(({ maps }) => haveSameText(maps, first.maps));
    const card = (name) => {
        const values = views
          .map(({ maps, layer, head }) => formatNumber(maps.score(name, layer, head)))
          .join(" | ");
        const having = views.filter((view) => has(view, name));
        return el(
          "div",
          { class: "score", "data-score": name },
          el(
            "div",
            { class: "value apart" },
            el("span", { title: first.maps.meaning(name) }, name),
            el("small", {}, views.length > 1 ? "" : rank(first.maps, name, layer, head)),
            el("b", {}, values),
          ),
          ...about(having, name, same, first.maps),
          ...this.#chart(views, name, values),
        );
    };
    this.leading.replaceChildren(...leads.map(card));
    this.folded.hidden = names.every((name) => leads.includes(name));
    this.others.replaceChildren(...names.filter((name) => !leads.includes(name)).map(card));
  }

  #chart(views, name, values) {
    if (views.every(({ steps }) => steps < 2)) return [];
    const curves = views
      .map(({ maps, layer, head, curves, step }) =>
        curves ? { step, ...curve(curves, name, layer, head, placeOf(maps, name)) } : null,
      )
      .filter(Boolean);
    const finite = curves.flatMap(({ values }) => values.filter(Number.isFinite));
    // Until the curves are loaded, their place is kept.
    if (!curves.length) return [el("div", { class: "chart" }), el("div", { class: "axis apart small" })];
    if (!finite.length) return [];
    const [low, high] = scaleOf(views, name, finite);
    const [from, to] = bounds(finite).map(formatNumber);
    const now = views
      .map(({ maps, layer, head, step }) => `${formatNumber(maps.score(name, layer, head))} at step ${step}`)
      .join(", ");
    const [first, last] = bounds(curves.flatMap((each) => each.steps));
    const x = (step) => (last > first ? ((step - first) / (last - first)) * WIDE : WIDE / 2);
    const y = (value) => HIGH - 3 - ((value - low) / (high - low)) * (HIGH - 6);
    const pointed = svg("line", { y1: 0, y2: HIGH, class: "pointed", visibility: "hidden" });
    const chart = svg(
      "svg",
      {
        viewBox: `0 0 ${WIDE} ${HIGH}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${name} over steps, from ${from} to ${to}: ${now}`,
      },
      ...curves.flatMap((each, i) => drawn(each, i, x, y)),
      pointed,
    );
    const readout = el("output", {});
    const stepAt = (event) => {
      const box = chart.getBoundingClientRect();
      return first + ((event.clientX - box.left) / box.width) * (last - first);
    };
    chart.addEventListener("click", (event) => this.choose(stepAt(event)));
    chart.addEventListener("pointermove", (event) => {
      const step = closest(curves.flatMap(({ steps }) => steps), stepAt(event));
      for (const end of ["x1", "x2"]) pointed.setAttribute(end, x(step));
      pointed.setAttribute("visibility", "visible");
      const there = curves.map(({ steps, values }) => formatNumber(values[steps.indexOf(step)]));
      readout.textContent = `step ${step.toLocaleString("en")}: ${there.join(" | ")}`;
    });
    chart.addEventListener("pointerleave", () => {
      pointed.setAttribute("visibility", "hidden");
      readout.textContent = "";
    });
    // With two digits of what is between them.
    const digits = Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(high - low))));
    const scale = [high, low].map((value) => el("span", {}, `${Number(value.toFixed(digits))}`));
    const ends = [`step ${first.toLocaleString("en")}`, last.toLocaleString("en")];
    return [
      el(
        "div",
        { class: "chart" },
        chart,
        el("span", { class: "bounds apart small", "aria-hidden": "true" }, ...scale),
      ),
      el("div", { class: "axis apart small" }, el("span", {}, ends[0]), readout, el("span", {}, ends[1])),
    ];
  }
}

// The names of the scores that lead, of those that some head has: that of the pattern that names the
// head, what is nearby, and need.
export function leading(maps, layer, head) {
  const isThere = (name) => maps.heads().some(([l, h]) => Number.isFinite(maps.score(name, l, h)));
  const there = Object.keys(maps.header.scores).filter(isThere);
  const role = roleOf(maps, layer, head)[1];
  const leads = new Set([there.includes(role) ? role : there[0], "nearby", "need"]);
  return [...leads].filter((name) => there.includes(name));
}

// A curve, in a piece for each text, and a line at the step that is shown.
function drawn({ step, ...values }, i, x, y) {
  const point = ([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`;
  const mark = { x1: x(step), x2: x(step), y1: 0, y2: HIGH, class: `now view${i}` };
  const lines = piecesOf(values).map((piece) => piece.map(point));
  for (const points of lines) if (points.length === 1) points.push(points[0]); // a dot
  return [
    svg("line", mark),
    ...lines.map((points) => svg("polyline", { points: points.join(" "), class: `view${i}` })),
  ];
}

// [step, value] of the finite values of a curve, in a piece for each text.
export function piecesOf({ steps, values, cuts }) {
  const pieces = [[]];
  steps.forEach((step, i) => {
    if (cuts.includes(step)) pieces.push([]);
    if (Number.isFinite(values[i])) pieces.at(-1).push([step, values[i]]);
  });
  return pieces.filter((piece) => piece.length);
}

function has({ maps, layer, head }, name) {
  return !Number.isNaN(maps.score(name, layer, head));
}

// Where a score was measured; "" if the log does not say so.
export function placeOf({ header: { measured } }, name) {
  return Object.hasOwn(measured, name) ? measured[name] : "";
}

// Over how many queries a score is a mean; 0 if the log does not say so.
function countOf({ header: { counts } }, name) {
  return Object.hasOwn(counts, name) ? counts[name] : 0;
}

function formatCount(count) {
  return `${count.toLocaleString("en")} token${count === 1 ? "" : "s"}`;
}

// What a score means, where it was measured, and over how many tokens. Of two views that have it, whether it can be
// compared. Where its curve is cut.
function about(views, name, sameText, first) {
  const places = views.map(({ maps }) => placeOf(maps, name));
  const [place] = places;
  const differ = places.some((each) => each !== place);
  const counts = views.map(({ maps }) => countOf(maps, name));
  const over = [...new Set(counts)].map((count) => (count ? formatCount(count) : "unknown")).join(" | ");
  const where = [place && !differ && `on ${place}`, counts.some(Boolean) && `over ${over}`];
  const measured = where.filter(Boolean).join(", ");
  const named = places.map((each) => each || "an unknown text").join(" | ");
  const warning = differ
    ? `not comparable, measured on ${named}`
    : views.length > 1 && place === "this text" && !sameText
      ? "not comparable, each measured on its own text"
      : "";
  const cuts = views.flatMap(({ layer, head, curves }, i) =>
    curves ? curve(curves, name, layer, head, places[i]).cuts : [],
  );
  const cut = cuts.length ? `cut ${atSteps(cuts)}, where the text changes` : "";
  const differs = [warning, cut].filter(Boolean).join("; ");
  return Object.entries({ meaning: first.meaning(name), measured, differs }).flatMap(([kind, text]) =>
    text ? [el("p", { class: `${kind} small` }, text)] : [],
  );
}

// The place of a head among all heads, by a score.
function rank(maps, name, layer, head) {
  const value = maps.score(name, layer, head);
  const values = maps.heads().map(([l, h]) => maps.score(name, l, h));
  const known = values.filter((each) => !Number.isNaN(each));
  if (Number.isNaN(value) || known.length < 2) return "";
  return `rank ${known.filter((each) => each > value).length + 1} of ${known.length}`;
}

// From 0 to 1, but for scores that are no shares from 0 to the largest of all heads.
function scaleOf(views, name, finite) {
  const { units } = views[0].maps.header;
  const loaded = views.map(({ curves }) => curves).filter(Boolean);
  const ends = Object.hasOwn(units, name)
    ? bounds(loaded.flatMap((curves) => extent(curves, name)))
    : [Math.min(0, bounds(finite)[0]), Math.max(1, bounds(finite)[1])];
  return ends[1] > ends[0] ? ends : [ends[0], ends[0] + 1];
}

// Of all heads and steps.
function extent({ names, heads, values }, name) {
  const count = heads.reduce((sum, each) => sum + each, 0);
  const place = names.indexOf(name);
  let [low, high] = [0, 0];
  for (let start = place * count; start < values.length; start += names.length * count)
    for (let i = start; place >= 0 && i < start + count; i++) {
      if (values[i] < low) low = values[i];
      if (values[i] > high) high = values[i];
    }
  return [low, high];
}

// The smallest and the largest value. As arguments of Math.min, a hundred thousand are too many.
export function bounds(values) {
  return values.reduce(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Infinity, -Infinity],
  );
}

// One head's score over the steps. cuts: the steps at which the text changes that it was measured on.
export function curve({ names, steps, texts, heads, values }, name, layer, head, where) {
  const place = names.indexOf(name);
  const count = heads.reduce((sum, each) => sum + each, 0);
  if (place < 0 || head >= (heads[layer] ?? 0)) return { steps: [], values: [], cuts: [] };
  const at = place * count + heads.slice(0, layer).reduce((sum, each) => sum + each, 0) + head;
  const cuts = steps.filter((_, i) => i && HERE.includes(where) && texts[i] !== texts[i - 1]);
  return { steps, values: steps.map((_, i) => values[i * names.length * count + at]), cuts };
}

function atSteps(steps) {
  const texts = [...new Set(steps)].map((each) => each.toLocaleString("en"));
  return texts.length > MOST_NAMED
    ? `at ${texts.length} steps`
    : `at step${texts.length > 1 ? "s" : ""} ${texts.join(", ")}`;
}
