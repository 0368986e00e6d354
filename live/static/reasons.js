// Why a head looks where it looks: the score of a cell of its map, before the softmax, as a sum over what
// wrote the query and what wrote the key.

import { bars, contributions, signedScale, signedText } from "./bars.js";
import { el, tokenLabel } from "./dom.js";

const MOST_TERMS = 10;

export class Reasons {
  // mark(heads): the heads of a term are pointed at, as [layer, head]; none: no longer.
  constructor(mark) {
    this.title = el("p", { class: "meaning" });
    this.list = el("div");
    this.sum = el("p", { class: "sum" });
    const over = ({ target }) => mark(this.#heads(target.closest("li")));
    this.list.addEventListener("pointerover", over);
    this.list.addEventListener("pointerleave", () => mark([]));
    const scale = signedScale("raises the score", "lowers the score");
    this.node = el("div", { class: "insight" }, this.title, scale, this.list, this.sum);
  }

  // tokens: of the query and of the key. terms: {query, key, value}; they sum to the score.
  show({ layer, head }, [query, key], terms) {
    this.terms = [...terms].sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const sum = (some) => some.reduce((all, { value }) => all + value, 0);
    const most = this.terms.slice(0, MOST_TERMS).map(({ query: from, key: to, value }) => [`${from} → ${to}`, value]);
    const rest = this.terms.slice(MOST_TERMS);
    if (rest.length) most.push([`${rest.length} others together`, sum(rest)]);
    this.title.textContent = `The score with which L${layer}H${head} looks from ${tokenLabel(query)} to ${tokenLabel(key)}, as a sum: what a part wrote into the query → what a part wrote into the key. Choose another cell of the map or another token.`;
    this.list.replaceChildren(bars(contributions(most), true));
    this.sum.textContent = `All terms sum to the score: ${signedText(sum(terms))}.`;
  }

  // Those that the row of a term names.
  #heads(row) {
    const place = row ? [...row.parentElement.children].indexOf(row) : MOST_TERMS;
    const term = this.terms[place];
    if (!term || place >= MOST_TERMS) return [];
    const found = [term.query, term.key].map((name) => name.match(/^L(\d+)H(\d+)$/));
    return found.filter(Boolean).map(([, layer, head]) => [Number(layer), Number(head)]);
  }
}
