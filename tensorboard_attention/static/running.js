// The links to the pages in which the model of a run runs, where it has them.

import { el } from "./dom.js";

export class LiveLinks {
  #follow = el("a", { target: "_blank", rel: "noopener", hidden: true }, "Your own text");
  #live = el("a", { target: "_blank", rel: "noopener", hidden: true }, "Live page");
  nodes = [this.#follow, this.#live];

  // followed, live: the runs that have a page that follows them, or one that was written once.
  show(run, { followed, live }) {
    this.#link(this.#follow, "follow", run, followed, `What ${run} makes of a text of your own, at every step`);
    this.#link(this.#live, "live", run, live, `The model of ${run}, which runs while you type`);
  }

  #link(node, route, run, runs, title) {
    node.hidden = !runs.includes(run);
    node.href = `${route}?${new URLSearchParams({ run })}`;
    node.title = title;
  }
}
