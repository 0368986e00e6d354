// A tour of twenty seconds: what comes next, the head that writes most of it, and the text without that
// head. It starts by itself on the first visit. It describes what the page shows and blocks nothing: the
// text, the step and the head can change meanwhile.

import { percent } from "./bars.js";
import { el, tokenLabel } from "./dom.js";
import { nothingOff } from "./edits.js";
import { changeOf } from "./next.js";

const NARROW = 860; // pixels, as in the style
const TOURED = "glassgpt-toured"; // of the browser's storage

export class Tour {
  #stops = [() => this.#guess(), (isNew) => this.#head(isNew), () => this.#without(), () => this.#yours()];

  constructor(app) {
    this.app = app;
    this.isLinked = location.hash !== ""; // before the page writes it
    this.text = el("p", { role: "status" });
    const further = () => this.#enter(this.stop + 1);
    this.further = el("button", { type: "button", class: "further", onclick: further });
    this.skip = el("button", { type: "button", class: "plain", onclick: () => this.end() }, "Skip");
    const buttons = el("div", { class: "line centred" }, this.further, this.skip);
    this.node = el("aside", { class: "tour", "aria-label": "Tour", hidden: true }, this.text, buttons);
  }

  // Whether the page is visited for the first time, alone in its window and without a link to a view.
  isDue() {
    if (window !== top || this.isLinked || !this.app.state.text) return false;
    try {
      const isFirst = localStorage.getItem(TOURED) === null;
      localStorage.setItem(TOURED, "1");
      return isFirst;
    } catch {
      return false; // the browser keeps nothing
    }
  }

  // isAsked: whether it was asked for, and may scroll the page to where it begins.
  async start(isAsked = true) {
    Object.assign(this, { isAsked });
    if (!this.app.state.text) await this.app.author.replace(this.app.data.run.prompt);
    this.before = this.app.state.off;
    this.node.hidden = false;
    return this.#enter(0);
  }

  // What was off before it began is off again, unless other parts were switched off meanwhile.
  end() {
    const { app } = this;
    this.node.hidden = true;
    this.pointed?.classList.remove("toured");
    return app.state.off === this.off ? app.set({ off: this.before }) : null;
  }

  #enter(stop) {
    if (stop === this.#stops.length) return this.end();
    const { by } = this.before;
    Object.assign(this, { stop, reading: null, isEntered: true });
    this.off = stop === 2 ? { ...nothingOff(by), heads: [this.head] } : nothingOff(by);
    const isSame = JSON.stringify(this.app.state.off) === JSON.stringify(this.off);
    if (isSame) this.off = this.app.state.off;
    return this.app.set(isSame ? { place: null } : { place: null, off: this.off });
  }

  // The page shows something new. isNew(): whether it still does.
  async show(isNew) {
    if (this.node.hidden) return;
    const found = await this.#stops[this.stop](isNew);
    if (!found || !isNew() || this.node.hidden) return;
    const [text, node, place] = found;
    this.text.textContent = text;
    const isLast = this.stop === this.#stops.length - 1;
    this.further.textContent = isLast ? "Done" : "Next";
    this.skip.hidden = isLast;
    if (this.isEntered) this.#point(node, place);
    this.isEntered = false;
  }

  // The bubble stands "before" or "after" what it is about, and covers nothing.
  #point(node, place) {
    this.pointed?.classList.remove("toured");
    this.pointed = node;
    node.classList.add("toured");
    const hadFocus = this.node.contains(document.activeElement);
    node[place](this.node);
    if (hadFocus) this.further.focus({ preventScroll: true });
    if (this.isAsked || this.stop) this.node.scrollIntoView({ block: place === "before" ? "start" : "nearest" });
  }

  async #rows() {
    return this.app.study.probabilities({ place: null }, this.app.reading);
  }

  async #guess() {
    const [{ token, now }] = await this.#rows();
    const guess = `Its best guess of what comes next is ${tokenLabel(token)}: ${percent(now)}.`;
    // On a phone the guesses are far below.
    const node = innerWidth > NARROW ? this.app.next.node : this.app.input;
    return [`The model has read this text. ${guess}`, node, "after"];
  }

  // The head that adds most to the logit of the best guess, where the last token is selected.
  async #head(isNew) {
    const { app } = this;
    const { reading } = app;
    if (this.reading !== reading) {
      const found = await app.study.attribution({ place: null }, reading, null);
      if (!found || !isNew()) return null;
      const heads = found.parts.filter(([name]) => /^L\d+H\d+$/.test(name));
      const [name] = heads.reduce((most, each) => (each[1] > most[1] ? each : most));
      Object.assign(this, { reading, head: name.match(/\d+/g).map(Number) });
      const [layer, head] = this.head;
      await app.set({ layer, head, token: reading.ids.length - 1 }); // and shows it
      return null;
    }
    const lines = "Curves in its text lead from the last token to those that it looks at.";
    return [`Which head writes most of that guess? ${this.#name}. ${lines}`, app.panels[0].node, "before"];
  }

  get #name() {
    return `L${this.head.join("H")}`;
  }

  async #without() {
    const rows = await this.#rows();
    const isOff = rows.some(({ before }) => before !== undefined);
    const change = isOff ? `is switched off now: ${changeOf(rows)}` : "is on again";
    return [`${this.#name} ${change}.`, this.app.next.node, "after"];
  }

  #yours() {
    const text = "Every part is on. Type a text of your own, and use the switch beside any head.";
    return [text, this.app.input, "after"];
  }
}
