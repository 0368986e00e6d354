// Parts of the model that are switched off: buttons for the selected head and its layer, and a list
// of what is off.

import { options } from "./controls.js";
import { el } from "./dom.js";
import { anyOff, nothingOff } from "./edits.js";
import { stepTitle } from "./steps.js";

const WAYS = { mean: "its mean", zero: "nothing at all" };

export class Switches {
  // change(off): other parts are to be off. means: over what the means of parts are, in words.
  constructor(change, means) {
    this.change = change;
    const button = (act) => el("button", { type: "button", onclick: act });
    this.head = button(() => this.toggleHead());
    this.attention = button(() => this.toggle(this.heads.map((_, head) => [this.layer, head])));
    this.mlp = button(() => this.#toggleMlp(this.layer));
    this.by = el("select", { oninput: () => change({ ...this.off, by: this.by.value }) });
    options(this.by, Object.keys(WAYS), "mean", Object.values(WAYS));
    this.list = el("ul", { class: "offlist line", "aria-label": "What is off" });
    const all = () => change(nothingOff(this.off.by));
    this.all = el("button", { type: "button", onclick: all }, "All on");
    this.node = el(
      "section",
      { class: "switches", "aria-label": "Break" },
      stepTitle(3, "Break", "Every head has its own switch, on its map."),
      el("div", { class: "buttons line centred" }, this.head, this.attention, this.mlp),
      el("label", { class: "by small" }, "In place of a part: ", this.by, (this.means = el("span", {}, ` over ${means}`))),
      (this.shown = el("div", { class: "buttons line centred" }, this.list, this.all)),
    );
  }

  // n_heads: of a layer.
  show(off, layer, head, n_heads) {
    Object.assign(this, { off, layer, chosen: head, heads: Array(n_heads).fill() });
    const isOff = (each) => off.heads.some(([l, h]) => l === layer && h === each);
    const mlpOff = off.mlps.includes(layer);
    const state = (button, text, pressed) => {
      button.textContent = text;
      button.setAttribute("aria-pressed", pressed);
    };
    state(this.head, `L${layer}H${head}`, isOff(head));
    state(this.attention, `All heads of layer ${layer}`, this.heads.every((_, each) => isOff(each)));
    state(this.mlp, `MLP of layer ${layer}`, mlpOff);
    this.by.value = off.by;
    this.means.hidden = off.by !== "mean";
    this.shown.hidden = !anyOff(off);
    this.list.replaceChildren(...this.#parts().map(([text, without]) => this.#chip(text, without)));
  }

  // What is off, with what is off without it. A layer with no head left is one part.
  #parts() {
    const { heads, mlps } = this.off;
    const layers = [...new Set(heads.map(([layer]) => layer))].sort((a, b) => a - b);
    const without = (part) => this.change({ ...this.off, ...part });
    return [
      ...layers.flatMap((layer) => {
        const here = heads.filter(([each]) => each === layer);
        const rest = heads.filter(([each]) => each !== layer);
        if (here.length === this.heads.length && here.length > 1)
          return [[`layer ${layer}: all heads`, () => without({ heads: rest })]];
        return here.map((head) => [
          `L${layer}H${head[1]}`,
          () => without({ heads: heads.filter((each) => each !== head) }),
        ]);
      }),
      ...[...mlps].sort((a, b) => a - b).map((layer) => [
        `layer ${layer}: MLP`,
        () => without({ mlps: mlps.filter((each) => each !== layer) }),
      ]),
    ];
  }

  #chip(text, on) {
    const name = `${text} on again`;
    return el(
      "li",
      {},
      el("button", { type: "button", "aria-label": name, title: name, onclick: on }, `${text} ✕`),
    );
  }

  // The selected head.
  toggleHead() {
    this.toggle([[this.layer, this.chosen]]);
  }

  // These heads off, or on again if all of them are off.
  toggle(heads) {
    const { off } = this;
    const among = (some, [l, h]) => some.some(([layer, head]) => layer === l && head === h);
    const rest = off.heads.filter((each) => !among(heads, each));
    const on = heads.every((each) => among(off.heads, each));
    this.change({ ...off, heads: on ? rest : [...rest, ...heads] });
  }

  #toggleMlp(layer) {
    const { mlps } = this.off;
    const rest = mlps.filter((each) => each !== layer);
    this.change({ ...this.off, mlps: rest.length < mlps.length ? rest : [...mlps, layer] });
  }
}
