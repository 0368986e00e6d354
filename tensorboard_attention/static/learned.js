// What was learned when: the loss by what the next token is, at every evaluation, and the tokens of
// a few texts, coloured by their loss.

import { el, formatNumber } from "./dom.js";
import { TokenText, walkCells } from "./text.js";

const WORST = 8; // bits above the floor, from which on a token has the full colour

export class Learned {
  constructor() {
    this.title = el("h2", {}, "What was learned when");
    this.about = el("p", { class: "note small" });
    this.table = el("table", { onkeydown: (event) => walkCells(this.table, event) });
    this.low = el("span", {});
    this.high = el("span", {});
    this.colours = el("p", { class: "note small" });
    this.sum = el("p", { class: "small", role: "status" });
    this.text = new TokenText("Loss of every token", null, { class: "text losses" });
    const axis = el("div", { class: "axis apart small" }, this.low, this.high);
    const left = el("div", {}, this.title, this.about, this.table, axis, this.colours);
    this.parts = [left, el("div", {}, this.sum, this.text.node)];
    this.node = el("section", { class: "learned" });
  }

  // losses: as in losses.py, or null.
  show(losses) {
    const steps = losses ? Object.keys(losses.steps).map(Number).sort((a, b) => a - b) : [];
    if (!steps.length) return this.node.replaceChildren();
    this.losses = losses;
    this.steps = steps;
    this.groups = Object.keys(losses.groups).filter((name) => steps.some((step) => this.#value(name, step) != null));
    if (!this.groups.includes(this.group)) this.group = this.groups[0];
    if (!this.isChosen || !steps.includes(this.step)) this.step = steps.at(-1);
    const groups = losses.floor ? "what the next token is" : "the position of the token";
    this.about.textContent = `Loss by ${groups}, in ${losses.unit}. Choose a cell to see its tokens.`;
    this.low.textContent = `step ${steps[0].toLocaleString("en")}`;
    this.high.textContent = steps.at(-1).toLocaleString("en");
    this.#draw();
    this.node.replaceChildren(...this.parts);
  }

  #value(group, step) {
    return this.losses.steps[step].values[group];
  }

  #draw() {
    const all = this.groups.flatMap((group) => this.steps.map((step) => this.#value(group, step)));
    const known = all.filter((value) => value != null);
    // Without a floor, what cannot be avoided is in every value.
    const least = this.losses.floor ? 0 : Math.min(...known);
    const most = Math.max(...known);
    const shade = (value) => Math.log1p(Math.max(0, value - least)) / Math.log1p(Math.max(most - least, 1e-9));
    this.colours.textContent = `The palest colour is ${formatNumber(least)}, the strongest ${formatNumber(most)}.`;
    const cell = (group, row, step, column) => {
      const value = this.#value(group, step);
      const label = `step ${step.toLocaleString("en")}, ${nameOf(group)}: ${formatNumber(value)}`;
      const button = el("button", {
        type: "button",
        title: label,
        "aria-label": label,
        "data-at": `${row}.${column}`,
        onclick: () => this.#choose(group, step),
        onfocus: () => this.#choose(group, step),
      });
      button.style.setProperty("--value", `${(80 * shade(value ?? least)).toFixed(1)}%`);
      return el("td", {}, button);
    };
    this.table.replaceChildren(
      ...this.groups.map((group, row) => {
        const cells = this.steps.map((step, column) => cell(group, row, step, column));
        return el("tr", {}, el("th", { scope: "row" }, nameOf(group)), ...cells);
      }),
    );
    this.#mark();
  }

  #choose(group, step) {
    Object.assign(this, { group, step, isChosen: true });
    this.#mark();
  }

  // The chosen cell, and its tokens.
  #mark() {
    const { group, step, losses } = this;
    const at = `${this.groups.indexOf(group)}.${this.steps.indexOf(step)}`;
    for (const button of this.table.querySelectorAll("button")) {
      const chosen = button.dataset.at === at;
      button.setAttribute("aria-pressed", chosen);
      button.tabIndex = chosen ? 0 : -1;
    }
    const values = this.groups.map((name) => this.#value(name, step) ?? 0);
    const whole = losses.floor ? ` of ${formatNumber(values.reduce((sum, value) => sum + value, 0))}` : "";
    const number = `${formatNumber(this.#value(group, step))}${whole} ${losses.unit}`;
    this.sum.textContent = `Step ${step.toLocaleString("en")}, ${nameOf(group)}: ${number}`;
    const starts = losses.texts.map((_, i) => losses.texts.slice(0, i).flat().length);
    const inGroup = new Set(losses.groups[group].flatMap((places, i) => places.map((place) => starts[i] + place)));
    const [bits, floor] = [losses.steps[step].bits.flat(), losses.floor?.flat()];
    this.text.write(losses.texts.flat());
    this.text.mark(-1, 0);
    this.text.shade((place) => {
      const label = `${bits[place].toFixed(2)} bits${floor ? `, floor ${floor[place].toFixed(2)}` : ""}`;
      return [(bits[place] - (floor?.[place] ?? 0)) / WORST, label];
    });
    this.text.spans.forEach((span, place) => span.classList.toggle("other", !inGroup.has(place)));
  }
}

// roles/song: song; target position/0 to 15: position: 0 to 15
function nameOf(group) {
  return group.replace(/^(roles\/|target )/, "").replace("/", ": ");
}
