// Writing on: the button, and how tokens are drawn.

import { field } from "./controls.js";
import { el } from "./dom.js";
import { RANGES, readSampling, samplingValue } from "./link.js";

const SETTINGS = {
  temperature: ["Temperature", "0 always takes the most probable token; 1 draws by the probabilities."],
  topK: ["Top k (0: off)", "Only the k most probable tokens are drawn; 0 is all of them."],
  topP: ["Top p (1: off)", "Only the most probable tokens that together reach p are drawn; 1 is all of them."],
  seed: ["Seed", "The same seed writes the same text."],
  length: ["Tokens", "How many are written at most."],
};

export class Writing {
  // toggle(): write on, or stop. undo(): after it has written. change(sampling): other settings.
  constructor({ toggle, undo, change }) {
    this.button = el("button", { type: "button", class: "write", onclick: toggle });
    this.undo = el("button", { type: "button", onclick: undo }, "Undo");
    this.inputs = Object.fromEntries(
      Object.entries(SETTINGS).map(([name, [, title]]) => {
        const read = ({ target }) => {
          const wrong = Number.isNaN(samplingValue(name, target.value));
          target.setCustomValidity(wrong ? rangeText(RANGES[name]) : "");
          if (target.reportValidity()) change(readSampling(this.#values()));
        };
        const mode = RANGES[name].step ? "numeric" : "decimal";
        const input = { type: "number", min: 0, step: "any", inputmode: mode, title };
        return [name, el("input", { ...input, onchange: read })];
      }),
    );
    this.spoken = el("output", { class: "spoken" }); // what was written, read aloud once
    const fields = Object.entries(SETTINGS).map(([name, [text]]) => field(text, this.inputs[name]));
    this.node = el(
      "div",
      { class: "line centred" },
      this.button,
      this.undo,
      this.spoken,
      el(
        "details",
        { class: "settings" },
        el("summary", {}, "Sampling"),
        el("div", { class: "line" }, ...fields),
      ),
    );
    this.show({}, false, false);
  }

  #values() {
    return Object.fromEntries(Object.entries(this.inputs).map(([name, { value }]) => [name, value]));
  }

  // hasWritten: whether there is something to undo.
  show(sampling, busy, hasWritten) {
    this.undo.hidden = !hasWritten;
    this.button.textContent = busy ? "❚❚ Stop" : "▶ Let it write";
    this.button.title = "Ctrl+Enter in the text";
    for (const [name, value] of Object.entries(sampling)) {
      this.inputs[name].value = value;
      this.inputs[name].setCustomValidity("");
    }
  }
}

function rangeText({ zero, min, max, step }) {
  return `${step ? "A whole number" : "A number"} from ${min} to ${max}${zero ? ", or 0" : ""}`;
}
