// How much of the answer comes over with the residual stream of one token before one layer, as a table
// (causal tracing, Meng et al. 2022, "Locating and Editing Factual Associations in GPT", figure 1).

import { shareText } from "./bars.js";
import { el, tokenLabel } from "./dom.js";
import { walkCells } from "./text.js";

export class StreamTable {
  parts = [];
  shares = [];

  // choose(layer, place): this stream is to be patched.
  constructor(choose) {
    this.readout = el("p", { class: "readout small" });
    this.body = el("div", { class: "scroller" });
    const cellAt = (event) => this.cells?.indexOf(event.target.closest("[data-at]")) ?? -1;
    const point = (event) => {
      const at = cellAt(event);
      if (at in this.shares) this.readout.textContent = this.#named(at);
    };
    const pick = (event) => {
      const part = this.parts[cellAt(event)];
      if (part) choose(part.layer, part.places[0]);
    };
    for (const type of ["pointerover", "focusin"]) this.body.addEventListener(type, point);
    this.body.addEventListener("click", pick);
    this.body.addEventListener("keydown", (event) =>
      event.key === "Enter" ? pick(event) : walkCells(this.body, event),
    );
    this.node = el("div", {}, this.body, this.readout);
  }

  // tokens: of both texts, [first, second] by place. parts: what is patched. shares: of the first of them,
  // which become one more from call to call.
  show(tokens, parts, shares) {
    Object.assign(this, { tokens, parts, shares });
    this.node.hidden = !shares.length;
    if (!shares.length) return;
    if (shares.length === 1) this.#build();
    this.#fill(shares.length - 1);
  }

  // The cell of the part that is patched at these places, if there is one.
  mark({ kind, layer }, places) {
    const isMarked = (part) => kind === "stream" && part.layer === layer && part.places.join() === places.join();
    this.cells?.forEach((cell, at) => cell.toggleAttribute("aria-current", isMarked(this.parts[at])));
  }

  #build() {
    const { parts, tokens } = this;
    const places = [...new Set(parts.map(({ places: [place] }) => place))];
    const layers = [...new Set(parts.map(({ layer }) => layer))];
    const last = layers.length - 1;
    const cell = (layer, column) => el("td", { "data-at": `${layer}.${column}`, tabindex: -1 });
    const row = (layer) =>
      el("tr", {}, el("th", { scope: "row" }, streamName(layer, last)), ...places.map((_, i) => cell(layer, i)));
    const heads = places.map((place) => el("th", { scope: "col" }, pairLabel(tokens[place])));
    const top = el("tr", {}, el("th", { scope: "col" }, "stream"), ...heads);
    this.body.replaceChildren(
      el("table", { class: "lens" }, el("thead", {}, top), el("tbody", {}, ...layers.map(row))),
    );
    this.cells = [...this.body.querySelectorAll("[data-at]")];
    this.cells[0].tabIndex = 0;
    this.last = last;
    this.readout.textContent = "Choose a cell to patch this stream, or walk through them with the arrow keys.";
  }

  #fill(at) {
    const [cell, share] = [this.cells[at], this.shares[at]];
    cell.textContent = Math.abs(share) < 0.005 ? "" : shareText(share);
    cell.classList.toggle("less", share < 0);
    cell.style.setProperty("--share", `${Math.min(100, 100 * Math.abs(share)).toFixed(0)}%`);
    cell.setAttribute("aria-label", this.#named(at));
  }

  #named(at) {
    const { layer, places: [place] } = this.parts[at];
    return `Stream ${streamName(layer, this.last)}, token ${place} ${pairLabel(this.tokens[place])}: ${shareText(this.shares[at])} comes over`;
  }
}

// last: the number of layers.
export function streamName(layer, last) {
  return layer === last ? `after layer ${layer - 1}` : `before layer ${layer}`;
}

// The token that both texts have at a place, or both of them.
export function pairLabel([first, second]) {
  const label = tokenLabel(first, 10);
  return first === second ? label : `${label} → ${tokenLabel(second, 10)}`;
}
