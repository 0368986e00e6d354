// The neurons of the MLPs: which ones are strongest at the selected token, and one of them in the text.

import { bars, contributions, signedScale, signedText } from "./bars.js";
import { el, tokenLabel } from "./dom.js";
import { TokenText } from "./text.js";

export class Activity {
  chosen = null; // {layer, neuron}; null for the strongest one

  // again(): another neuron is to be shown. pick(place): another token.
  constructor(again, pick) {
    this.again = again;
    this.title = el("p", { class: "meaning" });
    this.list = el("div");
    this.name = el("h4");
    this.text = new TokenText("Output of the neuron at every token", pick, { class: "text" });
    this.raised = el("p");
    this.lowered = el("p");
    const shown = el("section", { class: "neuron" }, this.name, this.text.node, this.raised, this.lowered);
    const pair = el("div", { class: "pair" }, this.list, shown);
    this.node = el("div", { class: "insight" }, this.title, signedScale("output above 0", "below 0"), pair);
  }

  // place: of the selected token. strongest: [{layer, neuron, value}] there. shown: one neuron, {layer, neuron,
  // values, raised, lowered}.
  show(tokens, place, strongest, shown) {
    const name = ({ layer, neuron }) => `L${layer}N${neuron}`;
    this.title.textContent = `At ${tokenLabel(tokens[place])} these neurons of the MLPs have the largest outputs. Choose one, or another token in the text.`;
    const rows = contributions(strongest.map((each) => [name(each), each.value]));
    strongest.forEach((each, i) => {
      rows[i].mark = name(each) === name(shown);
      rows[i].spoken = `${name(each)}, ${rows[i].text}`;
      rows[i].onclick = () => {
        this.chosen = each;
        this.again();
      };
    });
    this.list.replaceChildren(bars(rows, true));
    this.name.textContent = `Output of ${name(shown)} at every token`;
    const most = shown.values.reduce((largest, each) => Math.max(largest, Math.abs(each)), 1e-9);
    this.text.write(tokens);
    this.text.mark(place, place);
    // Above 0 in the colour of what raises.
    this.text.shade((i) => [-shown.values[i] / most, `output ${signedText(shown.values[i])}`]);
    const list = (some) => some.flatMap((token) => [" ", el("span", { class: "token" }, tokenLabel(token))]);
    this.raised.replaceChildren("Raised most where it is strongest, by its direct path to the logits:", ...list(shown.raised));
    this.lowered.replaceChildren("Lowered most:", ...list(shown.lowered));
  }
}
