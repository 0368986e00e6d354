// What carries the answer: parts of the model get the values that they have on a second text, and a bar
// shows how much of its answer comes over, as patching.js measures it.

import { bars, percent, shareText } from "./bars.js";
import { field, options } from "./controls.js";
import { el, tokenLabel } from "./dom.js";
import { SecondText } from "./second.js";
import { StreamTable, pairLabel, streamName } from "./streams.js";
import { Sweep } from "./sweep.js";

const MOST_RANKED = 14;
const PATCHES_MEANING =
  "Take a second text with another answer, and put what one part computed for it into the first text: how much of the second answer comes over? 0% is as in the first text, 100% as in the second.";
const PATCHES_MEASURE =
  "Measured by the logit of the second answer minus that of the first. Parts can carry more than 100% together, or do nothing alone.";

export class Patches {
  // set(part): the state is to change. say(text): reports what could not be done.
  constructor(study, set, say) {
    Object.assign(this, { study, set });
    const count = (text) => study.vocabulary.encode(text).length;
    this.second = new SecondText(study.data.run.names ?? [], count, (other) => set({ other }));
    this.part = el("select", { oninput: () => set(chosen(this.part.value)) });
    this.at = el("select", { oninput: () => set({ at: this.at.value === "" ? null : Number(this.at.value) }) });
    this.heads = new Sweep("Patch every head", study, () => this.#showRanking(), say);
    this.streams = new Sweep("Patch the stream at every token", study, () => this.#showStreams(), say);
    this.table = new StreamTable((layer, at) => set({ part: `stream ${layer}`, at }));
    this.node = el(
      "div",
      { class: "insight patches" },
      el("p", { class: "meaning" }, PATCHES_MEANING),
      this.second.node,
      (this.guesses = el("p", { class: "guesses", role: "status" })),
      (this.outcome = el(
        "div",
        { class: "outcome", hidden: true },
        el("div", { class: "line" }, field("Patch", this.part), field("at", this.at)),
        (this.bar = el("div")),
        el("h4", {}, "What comes next: before → patched"),
        (this.next = el("div", { class: "compared" })),
        el("p", { class: "note small" }, PATCHES_MEASURE),
        el("div", { class: "buttons line" }, this.heads.button, this.streams.button),
        (this.ranking = el("div")),
        this.table.node,
      )),
    );
  }

  // What the text and the second one are compared at; null, and a line why, if they cannot be.
  begin(state, reading) {
    const { labels } = this.study;
    this.second.show(state.text, state.other, labels[reading.rows[0].id].trim());
    if (state.other === null) return this.#refuse("");
    const [all, ids] = [this.study.ids(state), this.study.vocabulary.encode(state.other)];
    if (all.length !== ids.length)
      return this.#refuse(`Tokens: ${ids.length} in the second text, ${all.length} in the first. Patching needs as many in both.`);
    const other = ids.slice(reading.from);
    const i = (state.place ?? other.length) - 1;
    const differs = other.findIndex((id, at) => id !== reading.ids[at]);
    if (differs < 0 || differs > i)
      return this.#refuse("The second text is the same up to here: change a word of it.");
    Object.assign(this, { differs, tokens: other.map((id, at) => [labels[reading.ids[at]], labels[id]]) });
    return { ...reading.asked, other, i };
  }

  #refuse(text) {
    this.guesses.textContent = text;
    this.outcome.hidden = true;
    return null;
  }

  // The parts of what is asked: the one that is chosen.
  parts({ layer, head, part, at }, { i }) {
    const places = at === null || at > i ? upTo(i) : [at];
    return [{ ...(part ? partOf(part) : { kind: "head", layer, head }), places }];
  }

  // question: what `begin` returned. found: what Study.patch returned.
  show(state, question, { answers, certain, share, rows }) {
    const [ours, theirs] = answers.map((id, text) => `${tokenLabel(this.study.labels[id])} ${percent(certain[text])}`);
    const same = answers[0] === answers[1];
    this.guesses.textContent = same
      ? `Both texts have the same best guess: ${ours} and ${theirs}. Change the second text, or choose a token of the first in whose place the guesses differ.`
      : `Best guess in the first text: ${ours}; in the second: ${theirs}.`;
    this.outcome.hidden = same;
    if (same) return;
    const [{ places, ...part }] = this.parts(state, question);
    this.#offer(part, places, question.i);
    this.bar.replaceChildren(bars([{ name: "comes over", value: clamped(share), text: shareText(share) }]));
    this.next.replaceChildren(
      bars(
        rows.map(({ token, now, before }) => ({
          name: tokenLabel(token),
          value: now,
          was: before,
          text: `${percent(before)} → ${percent(now)}`,
        })),
      ),
    );
    this.heads.follow(question, this.#heads(places));
    this.streams.follow(question, this.#streams(question.i));
    this.#showRanking();
    this.table.mark(part, places);
  }

  #offer(part, places, i) {
    const all = [...this.#heads(places).map(({ places: _, ...each }) => each), ...upTo(this.#layers).map((layer) => ({ kind: "stream", layer }))];
    options(this.part, all.map(keyOf), keyOf(part), all.map((each) => this.#name(each)));
    const named = upTo(i).map((place) => `${place}: ${pairLabel(this.tokens[place])}`);
    const texts = ["every token", ...named];
    options(this.at, ["", ...upTo(i).map(String)], places.length > 1 ? "" : `${places[0]}`, texts);
    texts.forEach((text, at) => (this.at.options[at].textContent = text));
  }

  get #layers() {
    return this.study.data.config.n_layers;
  }

  // All heads and MLPs, at these places.
  #heads(places) {
    const { n_heads } = this.study.data.config;
    return upTo(this.#layers - 1).flatMap((layer) => [
      ...upTo(n_heads - 1).map((head) => ({ kind: "head", layer, head, places })),
      { kind: "mlp", layer, places },
    ]);
  }

  // Before each layer and after the last, each token from the first that differs: those before it are
  // the same.
  #streams(i) {
    const places = upTo(i).slice(this.differs);
    return upTo(this.#layers).flatMap((layer) => places.map((place) => ({ kind: "stream", layer, places: [place] })));
  }

  #name({ kind, layer, head }) {
    if (kind === "head") return `L${layer}H${head}`;
    return kind === "mlp" ? `MLP of layer ${layer}` : `stream ${streamName(layer, this.#layers)}`;
  }

  // The largest share first.
  #showRanking() {
    const { shares, parts } = this.heads;
    const ranked = shares.map((share, at) => [this.#name(parts[at]), share, parts[at]]);
    ranked.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    this.streams.button.disabled = Boolean(this.heads.busy); // one after the other
    if (!ranked.length) return this.ranking.replaceChildren();
    const at = atOf(ranked[0][2]);
    const rows = ranked.slice(0, MOST_RANKED).map(([name, share, part]) => ({
      name,
      value: clamped(share),
      text: shareText(share),
      mark: keyOf(part) === this.part.value && String(at ?? "") === this.at.value,
      spoken: `${name}, ${shareText(share)} comes over`,
      onclick: () => this.set({ ...chosen(keyOf(part)), at }),
    }));
    const where = at === null ? "every token" : `token ${at} ${pairLabel(this.tokens[at])}`;
    this.ranking.replaceChildren(el("h4", {}, `Each part alone, at ${where}`), bars(rows, true));
  }

  #showStreams() {
    this.heads.button.disabled = Boolean(this.streams.busy);
    this.table.show(this.tokens, this.streams.parts, this.streams.shares);
  }
}

// 0 to n.
function upTo(n) {
  return Array.from({ length: n + 1 }, (_, at) => at);
}

// Where a part is patched, as the state has it.
function atOf({ places }) {
  return places.length > 1 ? null : places[0];
}

// A part as it is in the state and in a link, and as Python's `patch` has it; a head by its name.
function keyOf({ kind, layer, head }) {
  return kind === "head" ? `L${layer}H${head}` : `${kind} ${layer}`;
}

function partOf(key) {
  const [kind, layer] = key.split(" ");
  return { kind, layer: Number(layer) };
}

// The state in which a part is chosen: heads are those that are selected.
function chosen(key) {
  const head = key.match(/^L(\d+)H(\d+)$/);
  return head ? { layer: Number(head[1]), head: Number(head[2]), part: null } : { part: key };
}

function clamped(share) {
  return Math.min(1, Math.max(-1, share));
}
