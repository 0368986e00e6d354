// What comes next: the most probable tokens, or what could have been in the place of a token.

import { bars, percent } from "./bars.js";
import { el, spokenToken, tokenLabel } from "./dom.js";

const MOST_ROWS = 10; // of tokens
const WORTH_A_ROW = 0.001; // probability of a token with a row of its own, unless the first has little more

// What became of the token that was the most probable before.
export function changeOf(rows) {
  const { token, now, before } = rows.reduce((most, row) => (row.before > most.before ? row : most));
  return `${tokenLabel(token)} ${percent(before)} → ${percent(now)}`;
}

// The rows that are worth reading, and how much all other tokens have together. kept: the id of a token
// whose row stays.
function divide(rows, kept) {
  const most = ({ now, before = 0, sure = 0 }) => Math.max(now, before, sure);
  const least = Math.min(WORTH_A_ROW, Math.max(...rows.map(most)) / 10);
  const first = [...rows].sort((a, b) => most(b) - most(a)).slice(0, MOST_ROWS);
  const shown = rows.filter((row) => row.id === kept || (first.includes(row) && most(row) >= least));
  const rest = (name) => Math.max(0, shown.reduce((left, row) => left - row[name], 1));
  return { shown, others: { now: rest("now"), before: rest("before"), sure: rest("sure") } };
}

export class NextTokens {
  // choose(id): go on with this token. back(): show what comes next again.
  // sum: the loss of the text, in words.
  constructor({ choose, back }, sum) {
    this.choose = choose;
    this.title = el("h2");
    this.back = el("button", { type: "button", class: "plain", onclick: back }, "What comes next");
    this.note = el("p", { class: "note small" });
    this.list = el("div", { class: "probabilities" });
    this.node = el(
      "section",
      { class: "next", "aria-label": "Probabilities of tokens" },
      this.title,
      sum,
      this.note,
      this.list,
      this.back,
    );
  }

  // rows: {id, token, now, before} with probabilities; before is undefined if nothing is off.
  // instead: the token in whose place they are, {token, place, id}; null for the next one. sure: [id,
  // probability] by a perfect reader, if it is known.
  show(rows, instead, sure) {
    this.rows = rows;
    const chances = sure && new Map(sure);
    this.title.textContent = instead
      ? `Instead of ${tokenLabel(instead.token)} (token ${instead.place})`
      : "What comes next";
    const isCompared = rows.some(({ before }) => before !== undefined);
    this.list.classList.toggle("compared", isCompared || Boolean(sure));
    this.list.classList.toggle("three", isCompared && Boolean(sure));
    this.note.textContent = instead
      ? "Choose one to go on from there; the rest of the text is dropped."
      : isCompared
        ? "Before (the line in a bar) → now that parts are off. Choose a token to add it."
        : "Choose a token to add it to the text.";
    if (sure) this.note.textContent += ` After the dot${isCompared ? "" : ", and as a line"}: a perfect reader.`;
    this.back.hidden = !instead;
    const known = rows.map((each) => ({ ...each, sure: sure && (chances.get(each.id) ?? 0) }));
    const { shown, others } = divide(known, instead?.id);
    const least = (share) => percent(share || 1e-9); // what is rarer than 0.1% is not in the page
    const row = (name, { now, before, sure: best }, more) => ({
      name,
      value: now,
      was: isCompared ? before : sure && best,
      text: [isCompared ? `${percent(before)} → ${percent(now)}` : percent(now), ...(sure ? [least(best)] : [])].join(" · "),
      ...more,
    });
    const chosen = ({ id, token, now, before, sure: best }) => ({
      mark: instead?.id === id,
      spoken: `${spokenToken(token)}, ${percent(now)}${isCompared ? `, before ${percent(before)}` : ""}${sure ? `, perfect reader ${least(best)}` : ""}`,
      onclick: () => this.choose(id),
    });
    this.list.replaceChildren(
      bars([...shown.map((each) => row(tokenLabel(each.token), each, chosen(each))), row("others", others)]),
    );
    if (instead?.place === this.place) return;
    this.place = instead?.place;
    const { offsetTop = 0 } = this.list.querySelector("[aria-current]")?.parentNode ?? {};
    this.list.scrollTop = offsetTop - this.list.offsetTop;
  }
}
