// Writing on: the button, and how tokens are drawn.

import { field } from "./controls.js";
import { el } from "./dom.js";
import { readSampling } from "./link.js";

const SETTINGS = {
  temperature: ["Temperature", { min: 0, max: 100, step: "any" }, "0 always takes the most probable token; 1 draws by the probabilities."],
  topK: ["Top k (0: off)", { min: 0, step: 1 }, "Only the k most probable tokens are drawn; 0 is all of them."],
  topP: ["Top p (1: off)", { min: 0, max: 1, step: "any" }, "Only the most probable tokens that together reach p are drawn; 1 is all of them."],
  seed: ["Seed", { min: 0, max: 2 ** 32 - 1, step: 1 }, "The same seed writes the same text."],
  length: ["Tokens", { min: 1, max: 10_000, step: 1 }, "How many are written at most."],
};

export class Writing {
  // start(), stop(): write on, or stop. change(sampling): other settings.
  constructor({ start, stop, change }) {
    this.start = start;
    this.stop = stop;
    this.button = el("button", { type: "button", class: "write", onclick: () => this.toggle() });
    this.inputs = Object.fromEntries(
      Object.entries(SETTINGS).map(([name, [, range, title]]) => {
        const read = ({ target }) => target.reportValidity() && change(readSampling(this.#values()));
        const mode = range.step === 1 ? "numeric" : "decimal";
        return [name, el("input", { type: "number", ...range, title, inputmode: mode, onchange: read })];
      }),
    );
    this.spoken = el("output", { class: "spoken" }); // what was written, read aloud once
    const fields = Object.entries(SETTINGS).map(([name, [text]]) => field(text, this.inputs[name]));
    this.node = el(
      "div",
      { class: "writing" },
      this.button,
      this.spoken,
      el(
        "details",
        { class: "settings" },
        el("summary", {}, "Sampling"),
        el("div", {}, ...fields),
      ),
    );
    this.show({}, false);
  }

  #values() {
    return Object.fromEntries(Object.entries(this.inputs).map(([name, { value }]) => [name, value]));
  }

  toggle() {
    return this.busy ? this.stop() : this.start();
  }

  show(sampling, busy) {
    this.busy = busy;
    this.button.textContent = busy ? "❚❚ Stop" : "▶ Let it write";
    this.button.title = "Ctrl+Enter in the text";
    for (const [name, value] of Object.entries(sampling)) this.inputs[name].value = value;
  }
}
