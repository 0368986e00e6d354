// The selected head of one view: its map, the text, and the weights of the token in focus.

import { NOT_FINITE } from "./broken.js";
import { el } from "./dom.js";
import { sentenceOf } from "./opening.js";
import { Picture } from "./picture.js";
import { SaveButtons } from "./save.js";
import { Words } from "./words.js";

export class Panel {
  constructor(viewport, { point, pick, moved }, name) {
    this.title = el("h2");
    this.sentence = el("p", { class: "sentence" });
    this.note = el("p", { class: "note small" });
    this.picture = new Picture(viewport, { point, pick, moved });
    this.save = new SaveButtons(this.picture, name).node;
    this.words = new Words({ point, pick });
    const heading = el("div", { class: "heading apart" }, this.title, this.save);
    const parts = [heading, this.sentence, this.note, this.picture.node];
    this.view = el("div", { class: "view" }, ...parts);
    this.words.node.addEventListener("focusin", ({ target }) => this.#uncover(target));
    this.node = el("section", { class: "panel" }, this.view, this.words.node);
  }

  // A token that gets the focus is not behind the map, which stays on the screen.
  #uncover(token) {
    const behind = this.view.getBoundingClientRect().bottom - token.getBoundingClientRect().top;
    if (behind > 0) scrollBy(0, -behind);
  }

  show(maps, layer, head, focus, cell, palette) {
    const there = head < (maps.header.heads[layer] ?? 0);
    const broken = maps.isFinite(layer, head) ? "" : ` ${NOT_FINITE}`;
    this.note.textContent = there ? maps.header.note + broken : "This model does not have this head.";
    this.sentence.textContent = sentenceOf(maps, layer, head);
    this.picture.node.hidden = this.words.node.hidden = this.save.hidden = !there;
    if (!there) return;
    this.picture.show(maps, layer, head, focus, cell, palette);
    this.words.show(maps, layer, head, focus, cell);
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
