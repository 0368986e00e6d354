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
    await app.set({ place: null, off: nothingOff(app.state.off.by) });
    await this.#next();
  }

  // Switches on again what it has switched off.
  async end() {
    this.node.hidden = true;
    this.#point(null);
    if (this.isOff) await this.app.set({ off: nothingOff(this.app.state.off.by) });
    this.isOff = false;
  }

  async #next() {
    const stop = this.stops.shift();
    if (!stop) return this.end();
    this.further.disabled = true;
    try {
      const [text, node] = await stop();
      this.text.textContent = text;
      this.#point(node);
    } catch {
      return this.end(); // the text was changed meanwhile
    } finally {
      this.further.disabled = false;
    }
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
    const { parts } = await app.study.attribution({ place: null }, app.reading, null);
    const heads = parts.filter(([name]) => /^L\d+H\d+$/.test(name));
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
    this.isOff = true;
    await app.set({ off: { ...nothingOff(app.state.off.by), heads: [this.head] } });
    const name = `L${this.head.join("H")}`;
    return [`${name} is switched off now: ${changeOf(app.next.rows)}.`, app.next.node];
  }

  async #yours() {
    const { app } = this;
    this.isOff = false;
    await app.set({ off: nothingOff(app.state.off.by) });
    return ["It is on again. Type a text of your own, and use the switch beside any head.", app.input];
  }
}
