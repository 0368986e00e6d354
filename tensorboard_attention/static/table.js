// The weights of the token in focus as a table for screen readers.

import { weightText } from "./broken.js";
import { el, spokenToken, table } from "./dom.js";

const QUIET = 300; // milliseconds without a change, so that moving through tokens or steps stays fast

export class WeightTable {
  constructor() {
    this.node = el("div", { class: "spoken" });
  }

  // to, from: the weights by position, as in words.js.
  show(maps, layer, head, focus, { to, from }) {
    const tokens = maps.texts;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (tokens[focus] === undefined) return this.node.replaceChildren();
      const title = `Layer ${layer}, head ${head}: weights of token ${maps.placeOf(focus)}, ${spokenToken(tokens[focus])}`;
      const names = ["Position", "Token", "Attends to", "Is attended to by"];
      const cells = (token, i) => [`${maps.placeOf(i)}`, spokenToken(token), weightText(to[i]), weightText(from[i])];
      this.node.replaceChildren(table(title, names, tokens.map(cells)));
    }, QUIET);
  }
}
