// A tour of twenty seconds: what comes next, the head that writes most of it, and the text without that
// head. It starts by itself on the first visit.

import { percent } from "./bars.js";
import { el, tokenLabel } from "./dom.js";
import { nothingOff } from "./link.js";
import { changeOf } from "./next.js";

const TOURED = "glassgpt-toured"; // of the browser's storage

export class Tour {
  constructor(app) {
    this.app = app;
    this.isLinked = location.hash !== ""; // before the page writes it
    this.text = el("p", { role: "status" });
    this.further = el("button", { type: "button", class: "further", onclick: () => this.#next() }, "Next");
    const skip = () => this.end();
    this.skip = el("button", { type: "button", class: "plain", onclick: skip }, "Skip");
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

  async start() {
    const { app } = this;
    this.stops = [() => this.#guess(), () => this.#head(), () => this.#without(), () => this.#yours()];
    app.author.stop();
    this.node.hidden = false;
    this.before = app.state.off;
    await app.set({ place: null, off: this.#on });
    await this.#next();
  }

  // What was off before it began is off again.
  end() {
    this.node.hidden = true;
    this.#point(null);
    return this.app.set({ off: this.before });
  }

  get #on() {
    return nothingOff(this.before.by);
  }

  async #next() {
    const stop = this.stops.shift();
    if (!stop) return this.end();
    this.further.disabled = true;
    const [text, node] = await stop();
    this.further.disabled = false;
    if (this.node.hidden) return; // it was skipped meanwhile
    if (!text) return this.end();
    this.text.textContent = text;
    this.#point(node);
    this.further.textContent = this.stops.length ? "Next" : "Done";
    this.skip.hidden = this.stops.length === 0;
  }

  #point(node) {
    this.pointed?.classList.remove("toured");
    this.pointed = node;
    node?.classList.add("toured");
    node?.scrollIntoView({ block: "nearest" });
  }

  #guess() {
    const { token, now } = this.app.next.rows[0];
    return [
      `The model has read this text. Its best guess of what comes next is ${tokenLabel(token)}: ${percent(now)}.`,
      this.app.next.node,
    ];
  }

  // The head that adds most to the logit of the best guess, where the last token is selected.
  async #head() {
    const { app } = this;
    const found = await app.study.attribution({ place: null }, app.reading, null);
    if (!found) return []; // a newer text is read
    const heads = found.parts.filter(([name]) => /^L\d+H\d+$/.test(name));
    const [name] = heads.reduce((most, each) => (each[1] > most[1] ? each : most));
    this.head = name.match(/\d+/g).map(Number);
    const [layer, head] = this.head;
    await app.set({ layer, head, token: app.reading.ids.length - 1 });
    return [
      `Which head writes most of that guess? ${name}. Lines in its text lead from the last token to those that it looks at.`,
      app.panels[0].node,
    ];
  }

  async #without() {
    const { app } = this;
    await app.set({ off: { ...this.#on, heads: [this.head] } });
    const name = `L${this.head.join("H")}`;
    return [`${name} is switched off now: ${changeOf(app.next.rows)}.`, app.next.node];
  }

  async #yours() {
    const { app } = this;
    await app.set({ off: this.#on });
    return ["It is on again. Type a text of your own, and use the switch beside any head.", app.input];
  }
}
