// Six looks inside, each behind its heading: why the selected head looks where it looks, what every
// layer would say, which parts write the next token, what the selected head writes, which neurons are
// active, and how few parts say the next token.

import { CircuitLists } from "./circuit.js";
import { el } from "./dom.js";
import { LensTable } from "./lens.js";
import { Activity } from "./activity.js";
import { Reasons } from "./reasons.js";
import { Smallest } from "./smallest.js";
import { Writers } from "./writers.js";

export class Understanding {
  // again(): another look was opened, or another token chosen. cell(): the {query, key} of the map that
  // is looked at. mark(heads): these heads are pointed at, as [layer, head]. set(part): the state is
  // to change. isWriting(): whether the text is about to change.
  constructor(study, { again, cell, mark, set, isWriting }) {
    Object.assign(this, { study, again, cell });
    const explain = (id) => {
      this.explained = id;
      again();
    };
    this.reasons = new Reasons(mark);
    this.lens = new LensTable();
    this.writers = new Writers(explain);
    this.circuit = new CircuitLists();
    this.neurons = new Activity(again, (token) => set({ token }));
    this.smallest = new Smallest(study, explain, set, isWriting);
    const look = (title, part, show) => {
      const summary = el("summary", {}, el("h2", {}, title));
      const ontoggle = ({ target }) => target.open && again();
      return { node: el("details", { ontoggle }, summary, part.node), show };
    };
    this.looks = [
      look("Why this head looks there", this.reasons, this.#showReasons),
      look("What each layer would say", this.lens, this.#showLens),
      look("Which parts write the next token", this.writers, this.#showWriters),
      look("What this head writes", this.circuit, this.#showCircuit),
      look("Which neurons are active", this.neurons, this.#showNeurons),
      look("The smallest part that answers", this.smallest, this.#showSmallest),
    ];
    const nodes = this.looks.map(({ node }) => node);
    this.node = el("section", { class: "looks", "aria-label": "Looks inside" }, ...nodes);
  }

  // Asks for what is open. isNew(): whether this is still what is shown.
  async show(state, reading, isNew) {
    const about = JSON.stringify([reading.ids, state.place]);
    if (about !== this.about) this.explained = null;
    this.about = about;
    for (const { node, show } of this.looks)
      if (node.open && isNew()) await show.call(this, state, reading, isNew);
  }

  async #showReasons(state, reading, isNew) {
    const { query, key } = this.cell();
    const terms = await this.study.score(state, reading, query, key);
    if (terms && isNew()) this.reasons.show(state, [query, key].map((i) => reading.tokens[i]), terms);
  }

  async #showLens(state, reading, isNew) {
    const cells = await this.study.lens(state, reading);
    if (cells && isNew()) this.lens.show(reading.tokens, cells, state.token);
  }

  async #showWriters(state, reading, isNew) {
    const found = await this.study.attribution(state, reading, this.explained);
    if (found && isNew()) this.writers.show(found.choices, found.id, found.parts, found.logit);
  }

  async #showCircuit(state, reading, isNew) {
    const { layer, head, token } = state;
    const place = token < 0 ? reading.ids.length - 1 : token;
    const found = await this.study.circuit(state, reading, place);
    if (!found || !isNew()) return;
    this.circuit.show(reading.tokens[place], layer, head, found.promoted, found.suppressed);
  }

  async #showNeurons({ token }, reading, isNew) {
    const place = token < 0 ? reading.ids.length - 1 : token;
    const found = await this.study.neurons(reading, place, this.neurons.chosen);
    if (found && isNew()) this.neurons.show(reading.tokens, place, found.strongest, found.shown);
  }

  async #showSmallest(state, reading, isNew) {
    const found = await this.study.choices(state, reading, this.explained, true);
    if (!found || !isNew()) return;
    const { step, ids, off } = reading.asked;
    const question = { step, ids: ids.slice(0, found.i + 1), by: off.by, target: found.id };
    this.smallest.show(state, found.choices, question, reading.maps);
  }
}
