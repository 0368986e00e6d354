// What the selected head would write if it attended to one token only: its OV circuit (Elhage et al.
// 2021, "A Mathematical Framework for Transformer Circuits").

import { bars, contributions, signedScale } from "./bars.js";
import { el, tokenLabel } from "./dom.js";

export class CircuitLists {
  constructor() {
    this.title = el("p", { class: "meaning" });
    this.lists = el("div", { class: "pair" });
    this.node = el("div", { class: "insight" }, this.title, signedScale(), this.lists);
  }

  // promoted, suppressed: [token, what the head adds to its logit].
  show(token, layer, head, promoted, suppressed) {
    this.title.textContent = `If L${layer}H${head} attended to ${tokenLabel(token)} alone, it would raise and lower the logits of these tokens most, by these numbers (beyond the mean of all tokens), by its direct path to them alone. Select another token in the text.`;
    const all = [...promoted, ...suppressed].map(([each, value]) => [tokenLabel(each), value]);
    const rows = contributions(all);
    const part = (name, from, to) => el("section", {}, el("h4", {}, name), bars(rows.slice(from, to)));
    const { length } = promoted;
    this.lists.replaceChildren(part("Raised", 0, length), part("Lowered", length));
  }
}
