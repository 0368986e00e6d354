// The selected head of one view: its map, the text, and the weights of the token in focus.

import { el } from "./dom.js";
import { NOT_FINITE } from "./grid.js";
import { sentenceOf } from "./opening.js";
import { Picture } from "./picture.js";
import { Words } from "./words.js";

const NARROW = "(max-width: 860px)"; // as in style.css

export class Panel {
  constructor(viewport, { point, pick, moved }, save) {
    this.title = el("h2");
    this.sentence = el("p", { class: "sentence" });
    this.note = el("p", { class: "note" });
    this.picture = new Picture(viewport, { point, pick, moved });
    this.words = new Words({ point, pick });
    const heading = el("div", { class: "heading" }, this.title, save.node);
    const parts = [heading, this.sentence, this.note, this.picture.node, this.words.node];
    this.node = el("section", { class: "panel" }, ...parts);
  }

  show(maps, layer, head, focus, cell, palette) {
    const there = head < (maps.header.heads[layer] ?? 0);
    const broken = maps.isFinite(layer, head) ? "" : ` ${NOT_FINITE}`;
    this.note.textContent = there ? maps.header.note + broken : "This model does not have this head.";
    this.sentence.textContent = sentenceOf(maps, layer, head);
    this.picture.node.hidden = this.words.node.hidden = !there;
    if (!there) return;
    this.picture.show(maps, layer, head, focus, cell, palette);
    this.words.show(maps, layer, head, focus, cell);
  }

  // Scrolls to the map if it is below the heads, as on a phone.
  bring() {
    if (matchMedia(NARROW).matches) this.node.scrollIntoView();
  }

  // Called again when the available width or the viewport has changed.
  draw() {
    this.picture.draw();
    this.words.draw();
  }
}

export function emptyNotice() {
  const example = [
    "from tensorboard_attention import add_attention",
    'add_attention(writer, "my probe", maps, tokens, step)',
  ];
  const what =
    "No run in this log folder has attention maps. To log them from a training script:";
  return el(
    "div",
    { class: "empty" },
    el("h2", {}, "No attention maps yet"),
    el("p", {}, what),
    el("pre", {}, example.join("\n")),
  );
}
