// The selected head of one view: its map, the text, and the weights of the token in focus.

import { NOT_FINITE } from "./broken.js";
import { el } from "./dom.js";
import { earned } from "./marks.js";
import { Matters } from "./matters.js";
import { kindOf, verdictOf } from "./naming.js";
import { Picture } from "./picture.js";
import { saveButtons } from "./save.js";
import { Words } from "./words.js";

export class Panel {
  constructor(viewport, { point, pick, moved }, name) {
    this.title = el("h2");
    this.verdict = el("p", { class: "verdict" });
    this.sentence = el("p", { class: "sentence small" });
    this.note = el("p", { class: "note small" });
    this.picture = new Picture(viewport, { point, pick, moved });
    this.save = saveButtons(this.picture, name);
    this.words = new Words({ point, pick });
    this.matters = new Matters();
    const heading = el("div", { class: "heading apart" }, this.title, this.verdict, this.save);
    this.view = el("div", { class: "view" }, heading, this.sentence, this.note);
    this.node = el("section", { class: "panel" }, this.view, this.words.node, this.picture.node, this.matters.node);
  }

  show(maps, layer, head, focus, cell, palette) {
    const there = head < (maps.header.heads[layer] ?? 0);
    const broken = maps.isFinite(layer, head) ? "" : ` ${NOT_FINITE}`;
    this.note.textContent = there ? maps.header.note + broken : "This model does not have this head.";
    const { headline, pattern, how, need } = verdictOf(maps, layer, head);
    this.verdict.textContent = headline;
    this.verdict.title = how;
    this.verdict.dataset.kind = kindOf(pattern);
    this.sentence.textContent = need;
    this.matters.show(maps, layer, head);
    this.picture.node.hidden = this.words.node.hidden = this.save.hidden = !there;
    if (!there) return;
    this.picture.show(maps, layer, head, focus, cell, palette, this.#earned(maps, layer, head));
    this.words.show(maps, layer, head, focus, cell);
  }

  // Found once for what is shown, not at every move of the pointer.
  #earned(maps, layer, head) {
    const shown = [maps, layer, head];
    if (!this.found || shown.some((each, i) => each !== this.found.shown[i]))
      this.found = { shown, cells: earned(maps, layer, head) };
    return this.found.cells;
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
