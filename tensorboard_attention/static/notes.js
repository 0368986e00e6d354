// What is not shown of a log, and why.

import { el } from "./dom.js";

export class Notes {
  constructor() {
    this.list = el("ul");
    const title = el("summary", {}, "Parts of this log are not shown");
    this.node = el("details", { class: "notes small", hidden: true }, title, this.list);
  }

  show(texts) {
    this.node.hidden = !texts.length;
    this.list.replaceChildren(...texts.map((text) => el("li", {}, text)));
  }
}
