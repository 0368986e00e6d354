// What induction is, shown in three steps at the head of these maps that continues repeats most.

import { el, spokenToken } from "./dom.js";
import { earned } from "./marks.js";
import { roleOf } from "./naming.js";

const CONTINUING = "continues repeats"; // its pattern
const INDUCTION = "A head does induction if it continues a passage that was there before: it looks at what followed the last two tokens the time before.";

export class Induction {
  // turnTo([layer, head]), pick(token, cell): choose them.
  constructor(turnTo, pick) {
    Object.assign(this, { turnTo, pick });
    this.found = el("div", {});
    const title = el("summary", {}, "What is induction? Find it in this run");
    this.node = el("details", { class: "induction", ontoggle: () => this.#draw() }, title, el("p", {}, INDUCTION), this.found);
  }

  show(maps) {
    this.node.hidden = maps.cross || !maps.header.causal;
    this.maps = maps;
    this.#draw();
  }

  #draw() {
    if (!this.node.open || this.node.hidden || this.drawn === this.maps) return;
    this.drawn = this.maps;
    const head = mostContinuing(this.maps);
    const parts = head ? this.#steps(head) : [el("p", {}, "At this step, no head of this run continues repeats.")];
    this.found.replaceChildren(...parts);
  }

  #steps([layer, head]) {
    const { maps } = this;
    const name = `L${layer}H${head}`;
    const percent = roleOf(maps, layer, head)[0].match(/\d+%$/)?.[0];
    const choose = (text, onclick) => el("button", { type: "button", onclick }, text);
    const which = el("li", {}, `Of all heads, ${name} does it most: with ${percent} of its attention where a passage repeats. `, choose(`Show ${name}`, () => this.turnTo([layer, head])));
    const cell = clearestRepeat(maps, layer, head);
    if (!cell) {
      const repeats = earned(maps, layer, head, 0).length;
      const why = repeats ? `A passage of this text repeats, but ${name} does not look there.` : "No passage of this text repeats.";
      return [el("ol", {}, which), el("p", {}, why)];
    }
    const [query, key, weight] = cell;
    const said = (from, to) => `'${spokenToken(maps.tokens.slice(from, to).join("")).replaceAll("·", " ")}'`;
    const [last, before, next] = [said(query - 1, query + 1), said(key, key + 1), said(query + 1, query + 2)];
    const go = async () => {
      await this.turnTo([layer, head]);
      await this.pick(query, { query, key });
    };
    const looks = `After ${last} it looks at what followed ${last} before: ${before}, with ${(100 * weight).toFixed(0)}% of its attention. `;
    const isRight = maps.tokens[key] === maps.tokens[query + 1];
    const guess = `So it points to ${before}. The text goes on with ${next}: ${isRight ? "what it points to is right" : "what it points to is wrong"}.`;
    return [el("ol", {}, which, el("li", {}, looks, choose("Show this place", go)), el("li", {}, guess))];
  }
}

// [layer, head] of the head whose name is this pattern with the largest percentage; undefined without one.
function mostContinuing(maps) {
  const share = ([layer, head]) => Number.parseInt(roleOf(maps, layer, head)[0].match(/\d+%$/)?.[0] ?? 0, 10);
  const named = maps.heads().filter(([layer, head]) => roleOf(maps, layer, head)[1] === CONTINUING);
  return named.sort((one, other) => share(other) - share(one))[0];
}

// The cell of a repeat with the largest weight; words come before others.
function clearestRepeat(maps, layer, head) {
  const value = ([, key, weight]) => weight + Number(/\p{L}{2}/u.test(maps.tokens[key]));
  return earned(maps, layer, head).sort((one, other) => value(other) - value(one))[0];
}
