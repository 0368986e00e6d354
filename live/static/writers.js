// Which parts write the next token: what each one adds to its logit (direct logit attribution,
// Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").

import { bars, contributions, signedScale, signedText } from "./bars.js";
import { field, options } from "./controls.js";
import { el, tokenLabel } from "./dom.js";

const MOST_BARS = 14;
const WRITERS_MEANING =
  "Every head and MLP adds to the numbers that the next token is read from. A bar is its direct contribution to the score (the logit) of this token. Later parts also read what earlier ones wrote; switch a part off to see everything that depends on it.";

export class Writers {
  // explain(id): another token is to be explained.
  constructor(explain) {
    this.select = el("select", { oninput: () => explain(Number(this.select.value)) });
    this.sum = el("p", { class: "sum" });
    this.list = el("div");
    const about = el("p", { class: "meaning" }, WRITERS_MEANING);
    const token = field("Token", this.select);
    this.node = el("div", { class: "insight" }, about, token, signedScale(), this.list, this.sum);
  }

  // choices: [id, token] of the tokens that can be explained. parts: [name, value]; they sum to the logit.
  show(choices, id, parts, logit) {
    offerTokens(this.select, choices, id);
    const sorted = [...parts].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const rest = sorted.splice(MOST_BARS);
    const sum = (some) => some.reduce((all, [, value]) => all + value, 0);
    if (rest.length) sorted.push([`${rest.length} others together`, sum(rest)]);
    this.list.replaceChildren(bars(contributions(sorted), true));
    this.sum.textContent = `All parts sum to ${signedText(sum(parts))}; the logit is ${signedText(logit)}.`;
  }
}

// choices: as for `show`. id: of the token that is chosen.
export function offerTokens(select, choices, id) {
  const labels = choices.map(([, token]) => tokenLabel(token));
  options(select, choices.map(([each]) => `${each}`), `${id}`, labels);
}
