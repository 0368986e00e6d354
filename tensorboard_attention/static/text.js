// A text, token by token: a list through which arrow keys move.

import { el, spokenToken, tokenLabel } from "./dom.js";

export class TokenText {
  spans = [];

  // pick(place): a token was clicked, or chosen by a key; or null. more: further attributes.
  constructor(name, pick, more) {
    this.pick = pick;
    this.node = el("div", {
      class: "text",
      role: "listbox",
      "aria-label": name,
      onclick: (event) => placeAt(event) >= 0 && pick?.(placeAt(event)),
      onkeydown: (event) => this.#key(event),
      ...more,
    });
  }

  // parts: [heading, first token, token after the last] of each part, if there are several. Spans of
  // tokens that stay are kept, and with them the focus. Returns whether anything has changed.
  write(tokens, parts = null) {
    const differs = this.spans.findIndex((span, i) => span.token !== tokens[i]);
    const kept = differs < 0 ? this.spans.length : differs;
    const layout = JSON.stringify([tokens.length, parts]);
    if (kept === this.spans.length && layout === this.layout) return false;
    this.layout = layout;
    this.spans.length = kept;
    for (const token of tokens.slice(kept)) {
      const span = el("span", { class: "token", role: "option", "data-place": this.spans.length });
      span.textContent = tokenLabel(token);
      span.token = token;
      this.spans.push(span);
    }
    const breaks = (span, i) => (i && span.token.endsWith("\n") ? [span, el("br")] : [span]);
    const written = this.spans.map(breaks);
    const part = ([name, from, to]) => [el("h4", {}, name), el("p", {}, ...written.slice(from, to).flat())];
    this.node.replaceChildren(...(parts ? parts.flatMap(part) : written.flat()));
    return true;
  }

  // chosen: the selected token; usual: the one that Tab reaches if there is none.
  mark(chosen, usual) {
    const reached = this.spans[chosen] ? chosen : usual;
    this.spans.forEach((span, i) => {
      span.classList.toggle("focus", i === chosen);
      span.setAttribute("aria-selected", i === chosen);
      span.tabIndex = i === reached ? 0 : -1;
    });
  }

  // Colours the tokens by their loss. of(place): the share of the full colour, below 0 of another one,
  // and what it means.
  shade(of) {
    this.spans.forEach((span, place) => {
      const [share, text] = of(place);
      span.style.setProperty("--loss", `${(100 * Math.min(1, Math.abs(share)) || 0).toFixed(1)}%`);
      span.classList.toggle("lucky", share < 0);
      span.title = `token ${place}: ${text}`;
      span.setAttribute("aria-label", `${place}: ${spokenToken(span.token)}, ${text}`);
    });
  }

  #key(event) {
    const from = placeAt(event);
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || from < 0) return;
    const last = this.spans.length - 1;
    const next = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    // Of the token that is chosen, Space is the page's.
    const picks = event.key === "Enter" || (event.key === " " && !event.target.matches(".focus"));
    if (next !== undefined) this.spans[Math.min(last, Math.max(0, next))].focus();
    else if (this.pick && picks) this.pick(from);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// The token that an event is of; -1 for none.
export function placeAt(event) {
  return Number(event.target.closest("[data-place]")?.dataset.place ?? -1);
}

// Arrow keys move through the cells of a table, each of which has its row and column as data-at.
export function walkCells(body, event) {
  const from = event.target.closest("[data-at]");
  const way = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!from || !way || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  event.preventDefault();
  event.stopPropagation();
  const [row, column] = from.dataset.at.split(".").map((each, i) => Number(each) + way[i]);
  const to = body.querySelector(`[data-at="${row}.${column}"]`);
  if (!to) return;
  [from.tabIndex, to.tabIndex] = [-1, 0];
  to.focus();
}
