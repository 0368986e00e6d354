// What was learned when: the loss by what the next token is, at every evaluation, and the tokens of
// a few texts, coloured by their loss.

import { el, formatNumber, spokenToken } from "./dom.js";
import { TokenText } from "./text.js";

const WORST = 8; // bits above the floor, from which on a token has the full colour

export class Learned {
  constructor() {
    this.title = el("h2", {}, "What was learned when");
    this.about = el("p", { class: "note small" });
    this.table = el("table", { onkeydown: (event) => this.#key(event) });
    this.low = el("span", {});
    this.high = el("span", {});
    this.sum = el("p", { class: "small", role: "status" });
    this.text = new TokenText("Loss of every token", () => {}, { class: "text losses" });
    const axis = el("div", { class: "axis apart small" }, this.low, this.high);
    const left = el("div", {}, this.title, this.about, this.table, axis);
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
    if (!steps.includes(this.step)) this.step = steps.at(-1);
    this.about.textContent = `Loss by what the next token is, in ${losses.unit}. Choose a cell to see its tokens.`;
    this.low.textContent = `step ${steps[0].toLocaleString("en")}`;
    this.high.textContent = steps.at(-1).toLocaleString("en");
    this.#draw();
    this.node.replaceChildren(...this.parts);
  }

  #value(group, step) {
    return this.losses.steps[step].values[group];
  }

  #draw() {
    const all = this.groups.flatMap((group) => this.steps.map((step) => this.#value(group, step) ?? 0));
    const shade = (value) => Math.log1p(Math.max(0, value)) / Math.log1p(Math.max(...all, 1e-9));
    const cell = (group, step) => {
      const value = this.#value(group, step);
      const label = `step ${step.toLocaleString("en")}, ${nameOf(group)}: ${formatNumber(value)}`;
      const button = el("button", {
        type: "button",
        title: label,
        "aria-label": label,
        "data-group": group,
        "data-step": step,
        onclick: () => this.#choose(group, step),
      });
      button.style.setProperty("--value", `${(80 * shade(value ?? 0)).toFixed(1)}%`);
      return el("td", {}, button);
    };
    this.table.replaceChildren(
      ...this.groups.map((group) =>
        el("tr", {}, el("th", { scope: "row" }, nameOf(group)), ...this.steps.map((step) => cell(group, step))),
      ),
    );
    this.#mark();
  }

  #choose(group, step) {
    Object.assign(this, { group, step });
    this.#mark();
    this.table.querySelector('[aria-pressed="true"]').focus();
  }

  // The chosen cell, and its tokens.
  #mark() {
    const { group, step, losses } = this;
    for (const button of this.table.querySelectorAll("button")) {
      const chosen = button.dataset.group === group && Number(button.dataset.step) === step;
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
    this.text.spans.forEach((span, place) => {
      const above = bits[place] - (floor?.[place] ?? 0);
      const label = `${bits[place].toFixed(2)} bits${floor ? `, floor ${floor[place].toFixed(2)}` : ""}`;
      span.style.setProperty("--loss", `${(100 * Math.min(1, Math.max(0, above / WORST))).toFixed(1)}%`);
      span.classList.toggle("other", !inGroup.has(place));
      span.title = label;
      span.setAttribute("aria-label", `${spokenToken(span.token)}, ${label}`);
    });
  }

  #key(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const [group, step] = [this.groups.indexOf(this.group) + by[0], this.steps.indexOf(this.step) + by[1]];
    if (group in this.groups && step in this.steps) this.#choose(this.groups[group], this.steps[step]);
    event.preventDefault();
    event.stopPropagation();
  }
}

// excess/song: song; target position/0 to 15: position: 0 to 15
function nameOf(group) {
  return group.replace(/^(excess\/|target )/, "").replace("/", ": ");
}
