// The neurons of an MLP: how often each is active, where its output is largest in size, and what it
// raises and lowers there.

import { field, options } from "./controls.js";
import { el, signedNumber, tokenLabel } from "./dom.js";
import { passage } from "./matters.js";

const MOST_NEURONS = 100; // rows at once
const NEURON_ORDERS = {
  rare: ["rarest first", (one, other) => one.active - other.active],
  often: ["most often active first", (one, other) => other.active - one.active],
  strong: ["largest output first", (one, other) => outputSize(other) - outputSize(one)],
};

function outputSize({ passages }) {
  return Math.abs(passages[0]?.[1] ?? 0);
}

export class Neurons {
  constructor() {
    this.layer = el("select", { oninput: () => this.#draw() });
    this.sort = el("select", { oninput: () => this.#draw() });
    options(this.sort, Object.keys(NEURON_ORDERS), "strong", Object.values(NEURON_ORDERS).map(([text]) => text));
    this.count = el("p", { class: "note small" });
    this.list = el("div", { class: "neurons-list" });
    this.node = el(
      "details",
      { class: "neurons", ontoggle: () => this.#draw() },
      el("summary", {}, el("h2", {}, "Neurons")),
      el("div", { class: "line" }, field("Layer", this.layer), field("Order", this.sort)),
      this.count,
      this.list,
    );
  }

  // evidence: as in evidence.py, or null.
  show(evidence) {
    this.node.hidden = !evidence?.neurons.some((layer) => layer.length);
    if (this.evidence === evidence) return;
    this.evidence = evidence;
    if (this.node.hidden) return;
    const layers = evidence.neurons.map((_, layer) => `${layer}`);
    options(this.layer, layers, layers.includes(this.layer.value) ? this.layer.value : layers.at(-1));
    this.#draw();
  }

  #draw() {
    if (!this.node.open || this.node.hidden) return;
    const all = this.evidence.neurons[this.layer.value].map((neuron, number) => ({ ...neuron, number }));
    const shown = all.sort(NEURON_ORDERS[this.sort.value][1]).slice(0, MOST_NEURONS);
    const some = shown.length < all.length ? `${MOST_NEURONS} of ${all.length.toLocaleString("en")} neurons. ` : "";
    this.count.textContent = `${some}Each raises and lowers the logits of these tokens most where its output is largest in size, by its direct path to them alone; where its output has the other sign, it lowers what it raises here, and raises what it lowers. Select one for its passages.`;
    this.list.replaceChildren(...shown.map((neuron) => this.#row(neuron)));
  }

  #row({ number, active, passages, raises, lowers }) {
    const tokens = (list) => list.map((token) => el("span", { class: "token" }, tokenLabel(token)));
    const places = el("ol", { class: "passages" });
    return el(
      "details",
      { ontoggle: () => places.replaceChildren(...passages.map((each) => this.#passage(each))) },
      el(
        "summary",
        {},
        el("b", {}, `${number}`),
        el("span", { class: "active" }, `${(100 * active).toFixed(0)}% active`),
        ...(passages.length
          ? [
              el("span", { class: "raises" }, `at ${signedNumber(passages[0][1])} raises `, ...tokens(raises)),
              el("span", { class: "lowers" }, "lowers ", ...tokens(lowers)),
            ]
          : ["0 at every token"]),
      ),
      places,
    );
  }

  #passage([at, output]) {
    return el("li", {}, el("b", {}, signedNumber(output)), el("span", {}, ...passage(this.evidence, at)));
  }
}
