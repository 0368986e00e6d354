// The probe as text; of cross attention, the texts of queries and keys. Curves connect the token in
// focus to what it attends to (solid) and to what attends to it (dashed); both are listed with their
// weights.

import { weightText } from "./broken.js";
import { el, formatNumber, spokenToken, svg, tokenLabel } from "./dom.js";
import { TokenText, placeAt } from "./text.js";

const MOST_LINES = 24; // in each direction; more would clutter the text
const LEAST = 0.01;
const ARC = 11; // pixels from the top of a line of text to the control points of an arc above it
const MOST_LISTED = 20; // in each direction
const LEAST_LISTED = 0.0005;

export class Words {
  // point(token): the pointer is over this token, or over none (-1). pick(token): it was clicked.
  constructor({ point, pick }) {
    Object.assign(this, { point, pick });
    this.lines = svg("svg", { class: "lines", "aria-hidden": "true" });
    this.text = new TokenText("Tokens of the text", (token) => this.pick(token), {
      onpointerover: (event) => event.pointerType === "mouse" && this.#hover(placeAt(event)),
      onpointerleave: (event) => event.pointerType === "mouse" && this.#hover(-1),
      onfocusin: (event) => this.#focus(event),
      onfocusout: () => this.#leave(),
    });
    this.lists = el("div", { class: "lists" });
    this.page = el("div", { class: "page" }, el("div", { class: "sheet" }, this.lines, this.text.node));
    this.node = el("div", { class: "words" }, this.page, this.lists);
  }

  // cell: the one that is marked in the map, or null.
  show(maps, layer, head, focus, cell) {
    this.#write(maps);
    const marked = cell?.key >= 0 ? maps.cross * maps.n + cell.key : -1;
    const weights = around(maps, maps.headIndex(layer, head), focus);
    this.text.spans.forEach((span, i) => {
      const [to, from] = [weights.to[i] || 0, weights.from[i] || 0];
      span.style.setProperty("--to-share", `${(100 * Math.sqrt(to)).toFixed(0)}%`);
      span.style.setProperty("--from-share", `${(100 * Math.sqrt(from)).toFixed(0)}%`);
      span.classList.toggle("key", i === marked);
    });
    this.text.mark(focus, 0);
    this.shown = { weights, focus, maps };
    if (focus !== this.hovered) this.#reveal(this.text.spans[focus]); // it stays under the pointer
    this.#list();
    this.draw();
  }

  // Called again when the text may wrap differently.
  draw() {
    if (!this.shown) return;
    const { weights, focus } = this.shown;
    const { spans } = this.text;
    const lines =
      focus < 0 || focus >= spans.length
        ? []
        : ["from", "to"].flatMap((way) =>
            strongest(weights[way], LEAST)
              .filter(([i]) => i !== focus)
              .slice(0, MOST_LINES)
              .map(([i, weight]) => joinTokens(spans[focus], spans[i], way, weight)),
          );
    this.lines.replaceChildren(...lines);
  }

  #write(maps) {
    const { n, texts } = maps;
    const parts = [
      ["Attended to (keys)", n],
      ["Attending (queries)", 0, n],
    ];
    if (!this.text.write(texts, maps.cross ? parts : null)) return;
    this.text.spans.forEach((span, i) => {
      const place = maps.placeOf(i);
      span.title = `token ${place}`;
      span.setAttribute("aria-label", `${place}: ${spokenToken(texts[i])}`);
    });
  }

  #hover(token) {
    this.hovered = token;
    this.point(token);
  }

  // A token that the keyboard focuses is shown like one under the pointer.
  #focus(event) {
    if (!event.target.matches(":focus-visible")) return;
    this.keyed = true;
    this.point(placeAt(event));
  }

  #leave() {
    if (this.keyed) this.point(-1);
    this.keyed = false;
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
    const { texts } = maps;
    if (texts[focus] === undefined)
      return this.lists.replaceChildren(el("p", { class: "small" }, "Hover over or tap a token."));
    const token = tokenLabel(texts[focus]);
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
            el("span", { class: "cut" }, tokenLabel(texts[i])),
            el("small", {}, `${maps.placeOf(i)}`),
            bar,
          );
        });
        if (lost) rows.push(el("li", { class: "rest" }, `${lost} ${weightText(NaN)}`));
        const together = `${others} ${others === 1 ? "other" : "others together"}`;
        const sum = el("b", {}, formatNumber(Math.abs(rest)));
        if (others) rows.push(el("li", { class: "rest" }, sum, together));
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

// Between the middles of two tokens: an arc above their line, or from the top of the lower one to the
// bottom of the upper one. The text is in front of it.
function joinTokens(one, other, way, weight) {
  const [lower, upper] = one.offsetTop < other.offsetTop ? [other, one] : [one, other];
  const [x1, x2] = [lower, upper].map((span) => span.offsetLeft + span.offsetWidth / 2);
  const isOneLine = lower.offsetTop === upper.offsetTop;
  const [y1, y2] = [lower.offsetTop, upper.offsetTop + (isOneLine ? 0 : upper.offsetHeight)];
  const bend = isOneLine ? ARC : Math.max(ARC, (y1 - y2) / 2);
  return svg("path", {
    class: way,
    d: `M${x1} ${y1}C${x1} ${y1 - bend} ${x2} ${y2 + (isOneLine ? -bend : bend)} ${x2} ${y2}`,
    "stroke-width": (0.75 + 1.75 * weight).toFixed(2),
    "stroke-opacity": Math.min(1, 0.25 + Math.sqrt(weight)).toFixed(2),
  });
}
