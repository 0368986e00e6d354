// The order of the heads: layer by layer, or sorted by a score.

import { el } from "./dom.js";
import { field, options } from "./controls.js";

export class Order {
  // change({sort} or {rising}): another order was chosen.
  constructor(change) {
    this.sort = el("select", { oninput: () => change({ sort: this.sort.value }) });
    this.turn = el("button", { type: "button", onclick: () => change({ rising: !this.rising }) });
    this.node = el("div", { class: "sorting line extra" }, field("Order", this.sort), this.turn);
  }

  show(names, { sort, rising }) {
    this.rising = rising;
    options(this.sort, ["", ...names], sort, ["layer by layer", ...names]);
    this.turn.hidden = !sort;
    this.turn.textContent = rising ? "smallest first" : "largest first";
  }
}
