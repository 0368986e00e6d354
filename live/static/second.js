// The second text, from which parts are patched into the first: the same with a name exchanged, or a copy
// to edit.

import { el } from "./dom.js";

// The text with one of its names exchanged by another that gives as many tokens, as {from, to, text}; null
// if there is none. groups: names that can stand for one another. guess: the beginning of a name that is
// exchanged rather than others. count(text): its tokens.
export function exchanged(text, groups, guess, count) {
  const words = text.match(/\p{L}+/gu) ?? [];
  const found = words.filter((word) => groups.some((names) => names.includes(word)));
  const from = (guess && found.find((name) => name.startsWith(guess))) || found[0];
  const similar = (names) => (names.includes(from) ? 0 : 1); // names of the same kind come first
  for (const to of [...groups].sort((a, b) => similar(a) - similar(b)).flat()) {
    const other = text.replace(/\p{L}+/gu, (word) => (word === from ? to : word));
    if (from && !words.includes(to) && count(other) === count(text)) return { from, to, text: other };
  }
  return null;
}

export class SecondText {
  // names: as `exchanged` takes them; none but for tales. count(text): its tokens. change(text): another
  // second text.
  constructor(names, count, change) {
    Object.assign(this, { names, count });
    const button = (text, onclick) => el("button", { type: "button", onclick }, text);
    this.exchange = button("The same tale with another name", () => change(this.other.text));
    this.copy = button("A copy of the text", () => change(this.text));
    this.input = el("textarea", {
      rows: 2,
      spellcheck: "false",
      "aria-label": "Second text",
      oninput: () => change(this.input.value.replace(/\p{Surrogate}/gu, "\ufffd")),
    });
    const buttons = el("div", { class: "buttons line centred" }, el("span", {}, "Second text"), this.exchange, this.copy);
    this.node = el("div", { class: "second" }, buttons);
  }

  // text: the first one. second: null until there is one. guess: as `exchanged` takes it.
  show(text, second, guess) {
    this.text = text;
    this.other = exchanged(text, this.names, guess, this.count);
    this.exchange.hidden = !this.other;
    if (this.other) this.exchange.textContent = `The same tale with ${this.other.to} for ${this.other.from}`;
    if (second === null) return this.input.remove();
    if (this.input.value !== second) this.input.value = second;
    if (!this.input.isConnected) this.node.append(this.input);
  }
}
