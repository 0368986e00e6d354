// What the selected head would write if it attended to one token only: its OV circuit (Elhage et al.
// 2021, "A Mathematical Framework for Transformer Circuits").

import { bars, signedText } from "./bars.js";
import { el, tokenLabel } from "./dom.js";

export class CircuitLists {
  constructor(save) {
    this.title = el("p", { class: "meaning" });
    this.lists = el("div", { class: "pair" });
    this.node = el(
      "div",
      { class: "insight" },
      el("div", { class: "heading apart" }, this.title, save.node),
      this.lists,
    );
  }

  // promoted, suppressed: [token, what the head adds to its logit].
  show(token, layer, head, promoted, suppressed) {
    this.title.textContent = `If head ${head} of layer ${layer} attended to ${tokenLabel(token)} alone, it would make these tokens more or less probable. The numbers are added to their logits. Select another token in the text.`;
    this.rows = { promoted, suppressed };
    const most = Math.max(...[...promoted, ...suppressed].map(([, value]) => Math.abs(value)), 1e-9);
    const part = (name, rows) =>
      el(
        "section",
        {},
        el("h4", {}, name),
        bars(
          rows.map(([each, value]) => ({
            name: tokenLabel(each),
            value: value / most,
            text: signedText(value),
          })),
        ),
      );
    this.lists.replaceChildren(part("More probable", promoted), part("Less probable", suppressed));
  }
}
