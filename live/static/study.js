// The text at hand as the model reads it: questions to the worker, and its answers as the page shows
// them, in texts instead of token ids.

import { Asking } from "./asking.js";
import { LiveMaps } from "./views.js";
import { Vocabulary } from "./vocabulary.js";
import { windowStart } from "./window.js";

const SHOWN = 10; // tokens, as bars
const KEPT = 5; // of a cell of the logit lens, of an OV circuit, and by a perfect reader

export class Study {
  constructor(data, worker) {
    this.data = data;
    this.asking = new Asking(worker);
    this.vocabulary = new Vocabulary(data);
    this.labels = this.vocabulary.labels;
  }

  // Those of each step, as the page has them.
  weights() {
    return this.data.steps.map((_, i) => document.getElementById(`weights-${i}`).textContent);
  }

  load() {
    return this.asking.ask("load", { data: this.data, weights: this.weights() });
  }

  // All tokens of a state, also those that no longer fit the context.
  ids(state) {
    return state.ids ?? this.vocabulary.encode(state.text);
  }

  // What the model sees of a text; null if a newer text was read instead.
  async read(state) {
    const all = this.ids(state);
    const from = windowStart(all.length, this.data.config.context_length);
    const begun = Math.max(0, this.vocabulary.begun(state) - from);
    const asked = { step: state.step, ids: all.slice(from), off: state.off };
    const answer = await this.asking.ask("read", { ...asked, view: "weights" });
    if (!answer) return null;
    const view = state.view === "change" ? "weights" : state.view;
    const shown = view === "weights" ? answer : await this.asking.ask("read", { ...asked, view });
    return shown && new TextRead(this, asked, { from, begun }, answer, view, shown.maps);
  }

  // The most probable tokens in the place that a state looks at, with the one that is there, and those of
  // `sure`: [id, probability] by a perfect reader, the most probable first.
  async probabilities({ place }, reading, sure = []) {
    const [i, more] = [(place ?? reading.ids.length) - 1, sure.slice(0, KEPT).map(([id]) => id)];
    const ask = () => this.asking.ask("next", { ...reading.asked, i, k: SHOWN, more });
    const { rows } = place === null && !more.length ? reading : ((await ask()) ?? {});
    return rows?.map((row) => ({ ...row, token: this.labels[row.id] }));
  }

  // Writes on after the text. each(ids): another token was written; the array grows.
  async write(state, each) {
    const ids = [...this.ids(state)];
    let isOver = false; // the worker can be ahead
    await this.asking.ask("write", this.writing(state), (part) => {
      if (isOver) return;
      ids.push(part.token);
      each(ids);
      isOver = this.vocabulary.isEnd(ids);
      if (isOver) this.stop("write");
    });
  }

  // The question for `n` tokens after the text.
  writing(state, n = state.sampling.length) {
    const { step, off, sampling } = state;
    return { step, ids: [...this.ids(state)], off, settings: sampling, n };
  }

  // of: the type of the question whose answer is no longer wanted.
  stop(of) {
    return this.asking.ask("stop", { of });
  }

  // What each layer would say after every token: [layer][place] of the most probable [token, probability].
  async lens(state, { asked }) {
    const answer = await this.asking.ask("lens", { ...asked, k: KEPT });
    const named = (top) => top.map(([id, share]) => [this.labels[id], share]);
    return answer?.layers.map((places) => places.map(named));
  }

  // The tokens that can be explained after token `i`, as [id, token], and the `id` of the one that is:
  // `explained`, or the one that is there, or the most probable one (`isWhole`: with all parts on).
  async choices({ place }, reading, explained, isWhole = false) {
    const rows = await this.probabilities({ place }, reading);
    if (!rows) return null;
    if (isWhole) rows.sort((one, other) => (other.before ?? other.now) - (one.before ?? one.now));
    const there = place === null ? [] : [reading.ids[place]];
    const ids = new Set([...there, ...rows.map(({ id }) => id), ...(explained === null ? [] : [explained])]);
    const choices = Array.from(ids, (id) => [id, this.labels[id]]);
    return { choices, id: explained ?? choices[0][0], i: place === null ? reading.ids.length - 1 : place - 1 };
  }

  // What every part adds to the logit of the token that `choices` explains.
  async attribution(state, reading, explained) {
    const found = await this.choices(state, reading, explained);
    const answer = found && (await this.asking.ask("attribution", { ...reading.asked, i: found.i, token: found.id }));
    return answer && { ...found, ...answer };
  }

  // What a head would write if it attended to one token alone.
  async circuit({ layer, head }, { asked }, i) {
    const answer = await this.asking.ask("circuit", { ...asked, layer, head, i, k: KEPT });
    const named = (some) => some.map(([id, value]) => [this.labels[id], value]);
    return answer && { promoted: named(answer.promoted), suppressed: named(answer.suppressed) };
  }

  // The neurons with the largest outputs at token i, and one of them in the text.
  async neurons({ asked }, i, chosen) {
    const answer = await this.asking.ask("neurons", { ...asked, i, chosen, k: SHOWN });
    if (!answer) return null;
    const named = (ids) => ids.map((id) => this.labels[id]);
    const { shown } = answer;
    Object.assign(shown, { raised: named(shown.raised), lowered: named(shown.lowered) });
    return answer;
  }

  // Why a head looks from token i to token j: the terms of the score.
  async score({ layer, head }, { asked }, i, j) {
    return (await this.asking.ask("score", { ...asked, layer, head, i, j }))?.terms;
  }

  // What the model says with every subset of its parts on, as the worker is asked. each({share}): so much is
  // done, in percent; each({found}): all of it.
  subsets(question, each) {
    return this.asking.ask("subsets", question, each);
  }
}

// What the model made of the tokens that it sees. place: {from, begun}, how many it does not see, and how
// many of those that it sees come before the text.
class TextRead {
  constructor({ labels, data, vocabulary }, asked, place, { losses, rows, before }, view, shown) {
    for (const each of [losses, before?.losses]) if (each) vocabulary.ofText(each, place.begun);
    Object.assign(this, { asked, losses, rows, ids: asked.ids }, place);
    this.tokens = asked.ids.map((id) => labels[id]);
    const heads = Array(data.config.n_layers).fill(data.config.n_heads);
    const header = { tokens: this.tokens, heads, note: "", ...namedHeads(data.names[asked.step], heads) };
    this.maps = new LiveMaps(header, shown, view);
    if (before) this.before = { ...before, maps: new LiveMaps(header, before.maps) };
  }
}

// Of a step at which nothing was measured; as in tensorboard_attention/naming.py.
const HOW = "look.py evidence=true measures the best or the last checkpoint";
const UNMEASURED = ["not measured", "", "not measured at this step", HOW, 0];

// What a header of maps says about its heads. names: [label, pattern, headline, details, interest] by
// layer and head, if they are known; of a stranger's run, they may be those of another model.
function namedHeads(names, heads) {
  const fits = names?.length === heads.length && names.every((layer, l) => layer.length === heads[l]);
  const known = fits ? names : heads.map((count) => Array(count).fill(UNMEASURED));
  return {
    roles: known.map((layer) => layer.map(([label, pattern]) => [label, pattern])),
    sentences: known.map((layer) => layer.map(([, , headline, , interest]) => [headline, null, interest])),
    details: known.map((layer) => layer.map(([, , , details]) => details)),
  };
}
