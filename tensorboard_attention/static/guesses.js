// What comes next after the selected token: what the model says beside what a perfect reader says, who
// knows all that can be known; and the text, coloured by the surprise that could have been avoided.

import { el, signedNumber, tokenLabel } from "./dom.js";
import { TokenText } from "./text.js";

const AVOIDABLE = 1.5; // bits above the floor, or below it, from which on a token has the full colour

export class Guesses {
  constructor(pick) {
    this.sum = el("p", { class: "note small" });
    this.text = new TokenText("Avoidable surprise at every token", pick, { class: "text losses" });
    this.title = el("h2");
    this.table = el("table");
    const left = el("div", {}, el("h2", {}, "What could have been known"), this.sum, this.text.node);
    this.node = el("section", { class: "learned guesses" }, left, el("div", {}, this.title, this.table));
  }

  // token: the one that is selected; of none, what comes after the text is shown.
  show({ tokens, losses, floor, next }, token) {
    this.node.hidden = !next;
    if (!next) return;
    const avoidable = losses.map((loss, i) => (loss === null || floor[i] === null ? NaN : loss - floor[i]));
    const known = avoidable.filter(Number.isFinite);
    const mean = known.reduce((sum, each) => sum + each, 0) / known.length;
    const end = floor.indexOf(null);
    const rest = end < 0 ? "" : ` From token ${end} on, nothing is known.`;
    this.sum.textContent = `Avoidable surprise, the loss less its floor: ${signedNumber(mean)} bits a token. Blue is below 0, luckier than a reader who knows the grammar.${rest}`;
    this.text.write(tokens);
    this.text.mark(token, 0);
    this.text.shade((i) => {
      const parts = [["loss", losses[i]], ["floor", floor[i]], ["avoidable", avoidable[i]]];
      const said = parts.filter(([, value]) => Number.isFinite(value)).map(([name, value]) => `${name} ${value.toFixed(2)}`);
      return [avoidable[i] / AVOIDABLE, said.length ? `${said.join(", ")} bits` : "unknown"];
    });
    const place = token in next ? token : next.length - 1;
    this.title.textContent = `What comes next after ${tokenLabel(tokens[place])} (token ${place})`;
    const share = (value) => el("td", {}, value === null ? "unknown" : `${(100 * value).toFixed(1)}%`);
    const rows = next[place].map(([text, ...said]) => el("tr", {}, el("th", { scope: "row" }, tokenLabel(text)), ...said.map(share)));
    const heads = ["token", "model", "perfect reader"].map((name) => el("th", { scope: "col" }, name));
    this.table.replaceChildren(el("tr", {}, ...heads), ...rows);
  }
}
