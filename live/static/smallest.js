// The smallest part that answers: for each number of heads and MLPs, those that give a token the largest
// probability; and what each of them, and each pair, adds.

import { bars, contributions, percent, signedScale, signedText } from "./bars.js";
import { field } from "./controls.js";
import { el } from "./dom.js";
import { kindOf, roleOf } from "./naming.js";
import { offerTokens } from "./writers.js";

const MAX_TRIED = 16; // parts, as in the worker
const MAX_PAIRS = 6;
const ENOUGH = 0.9; // of the probability with all parts
const SMALLEST_MEANING =
  "How much of the model does this token need? Every way to switch heads and MLPs off is tried, whatever is off at the moment. A part that is off is replaced as chosen under Break.";
const SETS_MEANING =
  "Of all sets of so many parts, the one that gives the token the largest probability. Choose one to switch all other parts off.";
const ADDS_MEANING =
  "In percentage points. The bar is what a part adds, averaged over all orders of switching the parts on (its Shapley value); the line is what is lost when it alone is off. A line beyond its bar: the part needs others. A bar beyond its line: others stand in when it is missing.";
const PAIRS_MEANING = "How much more two parts add together than each without the other, averaged in the same way, in percentage points.";

export class Smallest {
  // explain(id): another token is to be explained. set(part): the state is to change. isWriting(): whether the
  // text is about to change.
  constructor(study, explain, set, isWriting) {
    Object.assign(this, { study, set, isWriting, share: null });
    const { n_layers, n_heads } = study.data.config;
    const count = n_layers * (n_heads + 1);
    this.isWanted = count <= MAX_TRIED;
    const ways = this.isWanted ? `all ${(2 ** count).toLocaleString("en")} ways` : `the ${MAX_TRIED} parts that matter most`;
    this.offer = `Try ${ways}`;
    const many = `This model has ${count} parts: 2^${count} ways are too many. The ${MAX_TRIED} that matter most when each is left out alone can be tried, with the others on.`;
    this.select = el("select", { oninput: () => explain(Number(this.select.value)) });
    this.button = el("button", { type: "button", onclick: () => this.#toggle() });
    this.node = el(
      "div",
      { class: "insight" },
      el("p", { class: "meaning" }, SMALLEST_MEANING),
      this.isWanted ? "" : el("p", {}, many),
      el("div", { class: "line" }, field("Token", this.select), this.button),
      (this.note = el("p", { role: "status" })),
      (this.outcome = el("div", { class: "found" })),
    );
  }

  // choices: [id, token] of the tokens that can be explained. question: as the worker takes it. maps: what they
  // say of the heads.
  show(state, choices, question, maps) {
    Object.assign(this, { state, question, maps });
    offerTokens(this.select, choices, question.target);
    if (this.about !== JSON.stringify(question)) this.#leave();
    if (this.isWanted && !this.about && !this.isWriting()) this.#try();
    this.#mark();
  }

  #toggle() {
    this.isWanted = this.share === null;
    this.#leave();
    if (this.isWanted) this.#try();
  }

  // What was asked is no longer wanted.
  #leave() {
    if (this.share !== null) this.study.stop("subsets");
    Object.assign(this, { about: null, turn: null, share: null });
    this.outcome.replaceChildren();
    this.#say("");
  }

  async #try() {
    const turn = (this.turn = {});
    Object.assign(this, { about: JSON.stringify(this.question), share: 0 });
    this.#say("");
    const each = ({ share, found }) => {
      if (turn !== this.turn) return;
      this.share = found ? null : share;
      this.#say(found ? this.#draw(found) : "");
    };
    await this.study.subsets(this.question, each).catch(({ message }) => {
      if (turn !== this.turn) return;
      this.share = null;
      this.#say(message);
    });
  }

  #say(text) {
    this.note.textContent = text;
    this.button.textContent = this.share === null ? this.offer : `❚❚ Stop (${this.share}%)`;
    this.button.hidden = this.outcome.hasChildNodes();
  }

  // found: what `summary` in subsets.js returns. Returns how many parts are enough, in words.
  #draw({ parts, best, shapley, alone, interactions }) {
    const names = parts.map(({ layer, head }) => (head === null ? `L${layer} MLP` : `L${layer}H${head}`));
    const [[, none], [, whole]] = [best[0], best.at(-1)];
    const points = (value) => signedText(100 * value, 1);
    this.offs = best.map(([, , off]) => off);
    const sets = best.map(([on, value, off]) => ({
      name: el("span", { class: "kinds" }, on.length ? "" : "no part", ...on.map((i) => this.#badge(parts[i], names[i]))),
      value,
      text: percent(value),
      spoken: `${on.map((i) => names[i]).join(", ") || "no part"}: ${percent(value)}`,
      onclick: () => this.set({ off }),
    }));
    const most = Math.max(...[...shapley, ...alone].map(Math.abs), 1e-9);
    const adds = names.map((name, i) => ({
      name,
      value: shapley[i] / most,
      was: alone[i] / most,
      text: `${points(shapley[i])} · ${points(alone[i])}`,
    }));
    adds.sort((one, other) => other.value - one.value);
    const pairs = interactions.sort((a, b) => Math.abs(b[2]) - Math.abs(a[2])).slice(0, MAX_PAIRS);
    const together = contributions(pairs.map(([i, j, value]) => [`${names[i]}, ${names[j]}`, 100 * value]), 1);
    const note = (text) => el("p", { class: "note small" }, text);
    const section = (name, title, meaning, ...rest) => el("section", { class: name }, el("h3", {}, title), note(meaning), ...rest);
    const sum = `The bars sum to ${points(whole - none)}: from ${percent(none)} with no part to ${percent(whole)} with all.`;
    const scale = signedScale("need each other", "stand in for one another");
    this.outcome.replaceChildren(
      section("sets", "The best set of each size", SETS_MEANING, bars(sets)),
      el(
        "div",
        { class: "pair" },
        section("compared", "What each part adds · what is lost without it", ADDS_MEANING, bars(adds, true), note(sum)),
        section("", "Pairs", PAIRS_MEANING, scale, bars(together, true)),
      ),
    );
    this.#mark();
    const [enough] = best.find(([, value]) => value >= ENOUGH * whole);
    const which = enough.map((i) => names[i]).join(", ") || "no part";
    return `Enough for nine tenths of the probability with all parts: ${which} (${enough.length} of ${parts.length}).`;
  }

  #badge({ layer, head }, name) {
    const [role, pattern] = head === null ? ["", ""] : roleOf(this.maps, layer, head);
    return el("span", { "data-kind": kindOf(pattern), title: role }, name);
  }

  // The set that is on.
  #mark() {
    const key = ({ heads, mlps }) => [...heads.map(String).sort(), "", ...[...mlps].sort()].join();
    const rows = this.outcome.querySelectorAll(".sets button");
    rows.forEach((row, at) => row.toggleAttribute("aria-current", key(this.offs[at]) === key(this.state.off)));
  }
}
