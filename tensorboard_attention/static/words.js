// The probe as text. Lines connect the token in focus to what it attends to (solid) and to what
// attends to it (dashed); both are listed with their weights.

import { el, formatNumber, svg, tokenLabel } from "./dom.js";

const MOST_LINES = 24; // in each direction; more would clutter the text
const LEAST = 0.01;
const MOST_LISTED = 20; // in each direction
const LEAST_LISTED = 0.0005;

export class Words {
  // point(token): the pointer is over this token, or over none (-1). pick(token): it was clicked.
  constructor({ point, pick }) {
    Object.assign(this, { point, pick });
    this.lines = svg("svg", { class: "lines", "aria-hidden": "true" });
    this.text = el("div", {
      class: "text",
      onpointerover: (event) => event.pointerType === "mouse" && this.point(place(event)),
      onpointerleave: (event) => event.pointerType === "mouse" && this.point(-1),
      onclick: (event) => place(event) >= 0 && this.pick(place(event)),
    });
    this.lists = el("div", { class: "lists" });
    this.page = el("div", { class: "page" }, el("div", { class: "sheet" }, this.lines, this.text));
    this.node = el("div", { class: "words" }, this.page, this.lists);
  }

  // cell: the one that is marked in the map, or null.
  show(maps, layer, head, focus, cell) {
    if (this.tokens !== maps.tokens) this.#write(maps.tokens);
    const weights = around(maps, maps.headIndex(layer, head), focus);
    this.spans.forEach((span, i) => {
      const to = weights.to[i] ?? 0;
      const from = weights.from[i] ?? 0;
      span.style.setProperty("--to-share", `${(100 * Math.sqrt(to)).toFixed(0)}%`);
      span.style.setProperty("--from-share", `${(100 * Math.sqrt(from)).toFixed(0)}%`);
      span.classList.toggle("focus", i === focus);
      span.classList.toggle("key", i === cell?.key);
    });
    this.shown = { weights, focus };
    this.#reveal(this.spans[focus]);
    this.#list();
    this.draw();
  }

  // Called again when the text may wrap differently.
  draw() {
    if (!this.shown) return;
    const { weights, focus } = this.shown;
    const centre = (i) => {
      const span = this.spans[i];
      return [span.offsetLeft + span.offsetWidth / 2, span.offsetTop + span.offsetHeight / 2];
    };
    const lines =
      focus < 0 || focus >= this.spans.length
        ? []
        : ["from", "to"].flatMap((way) =>
            strongest(weights[way], LEAST)
              .filter(([i]) => i !== focus)
              .slice(0, MOST_LINES)
              .map(([i, weight]) => line(centre(focus), centre(i), way, weight)),
          );
    this.lines.replaceChildren(...lines);
  }

  #write(tokens) {
    this.tokens = tokens;
    this.spans = tokens.map((token, i) =>
      el("span", { class: "token", "data-place": i, title: `token ${i}` }, tokenLabel(token)),
    );
    const breaks = (token) => (token.endsWith("\n") ? [el("br")] : []);
    this.text.replaceChildren(...tokens.flatMap((token, i) => [this.spans[i], ...breaks(token)]));
  }

  // Scrolls a long text to the token, without scrolling the tab.
  #reveal(span) {
    if (!span) return;
    const above = span.offsetTop - 20;
    const below = span.offsetTop + 40 - this.page.clientHeight;
    this.page.scrollTop = Math.min(above, Math.max(below, this.page.scrollTop));
  }

  #list() {
    const { weights, focus } = this.shown;
    if (this.tokens[focus] === undefined)
      return this.lists.replaceChildren(el("p", { class: "hint" }, "Hover over or tap a token."));
    const token = tokenLabel(this.tokens[focus]);
    const titles = { to: `${token} attends to`, from: `${token} is attended to by` };
    this.lists.replaceChildren(
      ...["to", "from"].map((way) => {
        const found = strongest(weights[way], LEAST_LISTED).slice(0, MOST_LISTED);
        const others = weights[way].filter((weight) => weight != null).length - found.length;
        const total = (sum, weight) => sum + weight;
        const rest =
          weights[way].reduce(total, 0) - found.map(([, weight]) => weight).reduce(total, 0);
        const rows = found.map(([i, weight]) => {
          const bar = el("i");
          bar.style.width = `${100 * weight}%`;
          return el(
            "li",
            { "data-place": i },
            el("b", {}, formatNumber(weight)),
            el("span", {}, tokenLabel(this.tokens[i])),
            el("small", {}, `${i}`),
            bar,
          );
        });
        if (others)
          rows.push(
            el(
              "li",
              { class: "rest" },
              el("b", {}, formatNumber(Math.abs(rest))),
              `${others} ${others === 1 ? "other" : "others together"}`,
            ),
          );
        return el("section", { class: way }, el("h4", {}, titles[way]), el("ol", {}, ...rows));
      }),
    );
  }
}

// What a token attends to and what attends to it: weights by position, null for later keys in a
// causal map.
function around(maps, headIndex, token) {
  if (token < 0 || token >= maps.n) return { to: [], from: [] };
  const places = Array.from({ length: maps.n }, (_, i) => i);
  return {
    to: places.map((key) => maps.weight(headIndex, token, key)),
    from: places.map((query) => maps.weight(headIndex, query, token)),
  };
}

function strongest(weights, least) {
  return weights
    .map((weight, i) => [i, weight])
    .filter(([, weight]) => weight > least)
    .sort((a, b) => b[1] - a[1]);
}

function line([x1, y1], [x2, y2], way, weight) {
  const lift = Math.min(26, 8 + Math.abs(x2 - x1) / 12);
  const middle = [(x1 + x2) / 2, Math.min(y1, y2) - (y1 === y2 ? lift + 8 : 0)];
  return svg("path", {
    class: way,
    d: `M${x1} ${y1} Q${middle[0]} ${middle[1]} ${x2} ${y2}`,
    "stroke-width": (0.75 + 4 * weight).toFixed(2),
    "stroke-opacity": Math.min(1, 0.25 + Math.sqrt(weight)).toFixed(2),
  });
}

function place(event) {
  return Number(event.target.closest("[data-place]")?.dataset.place ?? -1);
}
