// The link to the page in which the model of a run runs, where it has one.

import { el } from "./dom.js";

export class LiveLink {
  node = el("a", { target: "_blank", rel: "noopener", hidden: true }, "Live page");

  // live: the runs that have such a page.
  show(run, live) {
    this.node.hidden = !live.includes(run);
    this.node.href = `live?${new URLSearchParams({ run })}`;
    this.node.title = `The model of ${run}, which runs while you type`;
  }
}
