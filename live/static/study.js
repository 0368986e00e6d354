// The text at hand as the model reads it: questions to the worker, and its answers as the page shows
// them, in texts instead of token ids.

import { Asking } from "./asking.js";
import { anyOff, nothingOff } from "./link.js";
import { describeHeads } from "./patterns.js";
import { LiveMaps } from "./views.js";
import { Vocabulary } from "./vocabulary.js";

const SHOWN = 10; // tokens, as bars
const KEPT = 5; // of a cell of the logit lens, and of an OV circuit

export class Study {
  constructor(data, workerSource) {
    this.data = data;
    this.asking = new Asking(workerSource);
    this.vocabulary = new Vocabulary(data);
    this.labels = this.vocabulary.labels;
  }

  load() {
    const weights = this.data.steps.map((_, i) => document.getElementById(`weights-${i}`).textContent);
    return this.asking.ask("load", { data: this.data, weights });
  }

  // All tokens of a state, also those that no longer fit the context.
  ids(state) {
    return state.ids ?? this.vocabulary.encode(state.text);
  }

  // What the model sees of a text; null if a newer text was read instead.
  async read(state) {
    const all = this.ids(state);
    const from = this.vocabulary.windowStart(all.length);
    const asked = { step: state.step, ids: all.slice(from), off: state.off };
    const answer = await this.asking.ask("read", { ...asked, view: "weights" });
    if (!answer) return null;
    const view = state.view === "change" ? "weights" : state.view;
    const shown = view === "weights" ? answer : await this.asking.ask("read", { ...asked, view });
    return shown && new Reading(this, asked, from, answer, view, shown.maps);
  }

  // The most probable tokens in the place that a state looks at, before and after parts are off.
  async probabilities({ place }, reading) {
    if (place === null) return this.rows(reading.top, reading.before?.top);
    const at = (off) => this.asking.ask("lens", { ...reading.asked, off, i: place - 1, k: SHOWN });
    const now = await at(reading.asked.off);
    const before = reading.before && (await at(nothingOff()));
    return now && this.rows(now.layers.at(-1), before?.layers.at(-1));
  }

  // top: [id, probability] of tokens, largest first.
  rows(top, before) {
    const known = before && new Map(before);
    return top.slice(0, SHOWN).map(([id, now]) => {
      return { id, token: this.labels[id], now, before: known && (known.get(id) ?? 0) };
    });
  }
}

// What the model made of the tokens that it sees. from: how many it does not see.
class Reading {
  constructor({ labels, data }, asked, from, { maps, losses, top, before }, view, shown) {
    Object.assign(this, { asked, from, losses, top, ids: asked.ids });
    this.tokens = asked.ids.map((id) => labels[id]);
    const heads = Array(data.config.n_layers).fill(data.config.n_heads);
    const header = { version: 1, tokens: this.tokens, heads, note: "", causal: true };
    const weights = joined(maps);
    Object.assign(header, describeHeads(this.tokens, heads, weights));
    const values = view === "weights" ? weights : joined(shown);
    this.maps = new LiveMaps(header, weights, view, values);
    if (before) this.before = { ...before, maps: new LiveMaps(header, joined(before.maps)) };
  }

  token(place) {
    return { place, token: this.tokens[place], id: this.ids[place] };
  }
}
