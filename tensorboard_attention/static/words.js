// The probe as text; of cross attention, the texts of queries and keys. Lines connect the token in
// focus to what it attends to (solid) and to what attends to it (dashed); both are listed with their
// weights.

import { weightText } from "./broken.js";
import { el, formatNumber, spokenToken, svg, tokenLabel } from "./dom.js";
import { WeightTable } from "./table.js";

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
      onfocusin: (event) => this.#focus(event),
      onfocusout: () => this.#leave(),
      onkeydown: (event) => this.#key(event),
      role: "listbox",
      "aria-label": "Tokens of the text",
    });
    this.table = new WeightTable();
    this.lists = el("div", { class: "lists" });
    this.page = el("div", { class: "page" }, el("div", { class: "sheet" }, this.lines, this.text));
    this.node = el("div", { class: "words" }, this.page, this.lists, this.table.node);
  }

  // cell: the one that is marked in the map, or null.
  show(maps, layer, head, focus, cell) {
    const same = (token, i) => token === this.tokens[i];
    const known = this.tokens?.length === maps.texts.length && maps.texts.every(same);
    if (!known || this.cross !== maps.cross) this.#write(maps);
    const marked = cell?.key >= 0 ? maps.cross * maps.n + cell.key : -1;
    const weights = around(maps, maps.headIndex(layer, head), focus);
    this.spans.forEach((span, i) => {
      const [to, from] = [weights.to[i] || 0, weights.from[i] || 0];
      span.style.setProperty("--to-share", `${(100 * Math.sqrt(to)).toFixed(0)}%`);
      span.style.setProperty("--from-share", `${(100 * Math.sqrt(from)).toFixed(0)}%`);
      span.classList.toggle("focus", i === focus);
      span.setAttribute("aria-selected", i === focus);
      span.tabIndex = i === (this.tokens[focus] === undefined ? 0 : focus) ? 0 : -1;
      span.classList.toggle("key", i === marked);
    });
    this.table.show(maps, layer, head, focus, weights);
    this.shown = { weights, focus, maps };
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

  #write(maps) {
    this.cross = maps.cross;
    this.tokens = maps.texts;
    this.spans = this.tokens.map((token, i) => {
      const place = maps.placeOf(i);
      const title = `token ${place}`;
      const name = { role: "option", "aria-label": `${place}: ${spokenToken(token)}` };
      return el("span", { class: "token", "data-place": i, title, ...name }, tokenLabel(token));
    });
    const breaks = (span, i) => (this.tokens[i].endsWith("\n") ? [span, el("br")] : [span]);
    const written = this.spans.map(breaks);
    if (!maps.cross) return this.text.replaceChildren(...written.flat());
    const part = (name, parts) => [el("h4", {}, name), el("p", {}, ...parts.flat())];
    this.text.replaceChildren(
      ...part("Attended to (keys)", written.slice(maps.n)),
      ...part("Attending (queries)", written.slice(0, maps.n)),
    );
  }

  // A token that the keyboard focuses is shown like one under the pointer.
  #focus(event) {
    if (!event.target.matches(":focus-visible")) return;
    this.keyed = true;
    this.point(place(event));
  }

  #leave() {
    if (this.keyed) this.point(-1);
    this.keyed = false;
  }

  #key(event) {
    const from = place(event);
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || from < 0) return;
    const last = this.spans.length - 1;
    const next = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (next !== undefined) this.spans[Math.min(last, Math.max(0, next))].focus();
    else if (event.key === "Enter" || event.key === " ") this.pick(from);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Scrolls a long text to the token, without scrolling the tab.
  #reveal(span) {
    if (!span) return;
    const above = span.offsetTop - 20;
    const below = span.offsetTop + 40 - this.page.clientHeight;
    this.page.scrollTop = Math.min(above, Math.max(below, this.page.scrollTop));
  }

  #list() {
    const { weights, focus, maps } = this.shown;
    if (this.tokens[focus] === undefined)
      return this.lists.replaceChildren(el("p", { class: "small" }, "Hover over or tap a token."));
    const token = tokenLabel(this.tokens[focus]);
    const titles = { to: `${token} attends to`, from: `${token} is attended to by` };
    const ways = ["to", "from"].filter((way) => weights[way].length);
    this.lists.replaceChildren(
      ...ways.map((way) => {
        const found = strongest(weights[way], LEAST_LISTED).slice(0, MOST_LISTED);
        const known = weights[way].filter(Number.isFinite);
        const others = known.length - found.length;
        const lost = weights[way].filter(Number.isNaN).length;
        const total = (sum, weight) => sum + weight;
        const rest = known.reduce(total, 0) - found.map(([, weight]) => weight).reduce(total, 0);
        const rows = found.map(([i, weight]) => {
          const bar = el("i");
          bar.style.width = `${100 * weight}%`;
          return el(
            "li",
            { "data-place": i },
            el("b", {}, formatNumber(weight)),
            el("span", { class: "cut" }, tokenLabel(this.tokens[i])),
            el("small", {}, `${maps.placeOf(i)}`),
            bar,
          );
        });
        if (lost) rows.push(el("li", { class: "rest" }, `${lost} ${weightText(NaN)}`));
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

// What a token attends to and what attends to it: weights by token, null for later keys in a causal
// map and for tokens that are no keys or queries; empty if the token is itself no query or key.
function around(maps, headIndex, token) {
  const [query, key] = [maps.query(token), maps.key(token)];
  const weigh = (there, at) => (there ? maps.texts.map((_, i) => at(i)) : []);
  const weight = (q, k) => (q < 0 || k < 0 ? null : maps.weight(headIndex, q, k));
  return {
    to: weigh(query >= 0, (i) => weight(query, maps.key(i))),
    from: weigh(key >= 0, (i) => weight(maps.query(i), key)),
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
