// The weights of the token in focus as a table for screen readers.

import { weightText } from "./broken.js";
import { el, spokenToken } from "./dom.js";

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
      const cells = (name, texts) => texts.map((text) => el(name, {}, text));
      const title = `Layer ${layer}, head ${head}: weights of token ${maps.placeOf(focus)}, ${spokenToken(tokens[focus])}`;
      const names = ["Position", "Token", "Attends to", "Is attended to by"];
      this.node.replaceChildren(
        el(
          "table",
          {},
          el("caption", {}, title),
          el("thead", {}, el("tr", {}, ...cells("th", names))),
          el(
            "tbody",
            {},
            ...tokens.map((token, i) => {
              const texts = [`${maps.placeOf(i)}`, spokenToken(token), weightText(to[i]), weightText(from[i])];
              return el("tr", {}, ...cells("td", texts));
            }),
          ),
        ),
      );
    }, QUIET);
  }
}
