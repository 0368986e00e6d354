// Ranking the heads: how much the loss of the text rises without each of them, one after the other.

import { el } from "./dom.js";

export class Ranking {
  name = "need here";

  #meaning = "rise of the loss of this text in nats per token when the head alone is switched off, as chosen under Break";

  // measured(): another head was measured.
  constructor(study, measured, say) {
    Object.assign(this, { study, measured, say });
    this.rises = new Map();
    this.button = el("button", { type: "button", onclick: () => this.toggle() });
    this.node = el("div", { class: "ranking" }, this.button);
    this.#show();
  }

  // The text, the model and the way of switching off that the heads are ranked by: others need a new
  // ranking.
  follow({ step, off }, ids) {
    const about = JSON.stringify([ids, step, off.by]);
    if (about === this.about) return;
    Object.assign(this, { about, ids, step, by: off.by });
    this.rises.clear();
    this.stop();
  }

  // possible: whether the text stays as it is.
  allow(possible) {
    this.button.disabled = !possible;
  }

  stop() {
    if (this.busy) this.study.stop("rank");
  }

  async toggle() {
    if (this.busy) return this.stop();
    const { about } = this;
    this.rises.clear();
    this.busy = true;
    this.#show();
    try {
      await this.study.rank(this, ({ layer, head, rise }) => {
        if (about !== this.about) return;
        this.rises.set(`${layer}.${head}`, rise);
        this.#show();
        this.measured();
      });
    } catch (error) {
      this.say(error.message);
    }
    this.busy = false;
    this.#show();
  }

  #show() {
    const { size } = this.rises;
    this.button.textContent = this.busy ? `❚❚ Stop (${size} measured)` : "Rank the heads";
    this.button.title = "Measures on this text how much the loss rises without each head";
  }

  // As a score like any other.
  addTo(header) {
    delete header.scores[this.name];
    if (!this.rises.size) return;
    const rise = (layer, head) => this.rises.get(`${layer}.${head}`) ?? NaN;
    header.scores[this.name] = header.heads.map((count, layer) =>
      Array.from({ length: count }, (_, head) => rise(layer, head)),
    );
    header.meanings[this.name] = this.#meaning;
    header.units[this.name] = "nats per token";
    header.measured[this.name] = "this text";
    header.counts[this.name] = header.tokens.length - 1; // the first token has no loss
  }
}
