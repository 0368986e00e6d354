// Patching part after part, each alone: a button that starts and stops it, and what was found until now.

import { el } from "./dom.js";

export class Sweep {
  parts = []; // those of the last sweep
  shares = []; // of each of them, as far as they are known

  // changed(): it began or ended, or the shares have changed. say(text): reports what could not be done.
  constructor(name, study, changed, say) {
    Object.assign(this, { name, study, changed, say });
    this.button = el("button", { type: "button", onclick: () => this.#toggle() });
    this.#show();
  }

  // question: as Study.patches takes it, without its parts; another one needs a new sweep. parts: of the
  // next sweep.
  follow(question, parts) {
    const about = JSON.stringify(question);
    this.offered = parts;
    if (about === this.about) return;
    Object.assign(this, { about, question, shares: [] });
    this.stop();
    this.changed();
  }

  stop() {
    if (this.busy && !this.stopping) this.study.stop();
    this.stopping = this.busy;
  }

  async #toggle() {
    if (this.busy) return this.stop();
    const { about, offered: parts } = this;
    Object.assign(this, { parts, shares: [], busy: true });
    this.#changed();
    try {
      await this.study.patches({ ...this.question, parts }, ({ at, share }) => {
        if (about !== this.about) return;
        this.shares[at] = share;
        this.#changed();
      });
    } catch (error) {
      this.say(error.message);
    }
    this.busy = this.stopping = false;
    this.#changed();
  }

  #changed() {
    this.#show();
    this.changed();
  }

  #show() {
    const known = `${this.shares.length} of ${this.parts.length}`;
    this.button.textContent = this.busy ? `❚❚ Stop (${known})` : this.name;
  }
}
