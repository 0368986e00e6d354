// The live page: holds the state and passes it to the parts, which do not know each other.

import { Address } from "./address.js";
import { Author } from "./author.js";
import { options } from "./controls.js";
import { el } from "./dom.js";
import { anyOff } from "./edits.js";
import { Inspector } from "./inspector.js";
import { arrange, buildParts } from "./layout.js";
import { NEWEST, readFragment, writeFragment } from "./link.js";
import { Opening } from "./opening.js";
import { PerfectReader } from "./perfect.js";
import { fileName } from "./save.js";
import { Study } from "./study.js";
import { VIEWS } from "./views.js";

// worker: the address of its script. Page, Reader: what the page is, and its questions to the worker.
export function start(worker, Page = LivePage, Reader = Study) {
  const data = JSON.parse(document.getElementById("model").textContent);
  const main = el("main", { class: "attention live all" });
  document.body.append(main);
  return new Page(data, new Reader(data, worker), main).begin();
}

// All parts of a page beside those that contain a node.
function beside(node, page) {
  const parts = [];
  for (let at = node; at !== page; at = at.parentElement)
    parts.push(...[...at.parentElement.children].filter((part) => part !== at));
  return parts;
}

export class LivePage extends Inspector {
  constructor(data, study, main) {
    super();
    Object.assign(this, { data, study, main });
    this.host = window;
    this.pending = 0; // reads and questions in progress
    this.runs = { ".": { "": data.steps } }; // as the tab's picker knows them
    this.author = new Author(this);
    this.perfect = new PerfectReader(data, study.vocabulary);
  }

  async begin() {
    this.follow();
    this.build(1, (layer, head) => this.switches.toggle([[layer, head]]));
    Object.assign(this, buildParts(this));
    arrange(this);
    this.listen({ x: () => this.switches.toggleHead() });
    this.address = new LiveAddress(this);
    this.say("Unpacking the model …");
    const wait = (waits) => beside(this.input, this.main).forEach((part) => (part.inert = waits));
    wait(true);
    try {
      await this.study.load();
    } catch (error) {
      return this.say(error.message);
    }
    wait(false);
    this.main.dataset.ready = "";
    await this.#restore();
    if (this.tour.isDue()) await this.tour.start(false);
    // The address that was asked for: what is written meanwhile can have replaced it.
    addEventListener("hashchange", ({ newURL }) => this.#restore(new URL(newURL).hash));
  }

  // Shows what the address describes, and what was typed before the model was there.
  async #restore(hash = location.hash) {
    const typed = this.state ? "" : this.input.value;
    if (this.state) this.author.leave();
    this.state = readFragment(hash, this.data, this.study.vocabulary);
    if (typed) Object.assign(this.state, { text: typed, ids: null });
    this.opening = new Opening();
    this.place = this.state.zoom;
    this.input.value = this.state.text;
    this.say("");
    await this.read();
    if (this.maps) this.grid.reveal(this.state);
  }

  // Whether the page goes through training.
  get hasSteps() {
    return this.data.steps.length > 1;
  }

  // Shows what could have been in the place of a token.
  look(place) {
    if (place < Math.max(1, this.reading.begun)) return;
    return this.set({ place, token: Math.max(0, place - 1) }); // where it was predicted
  }

  set(part) {
    if ("step" in part || "off" in part) this.author.stop();
    this.change(part);
    const reads = ["text", "ids", "step", "off", "view"].some((name) => name in part);
    return reads || !this.reading ? this.read() : this.show();
  }

  // The page is busy until everything in progress has ended, even with an error.
  async whileBusy(work) {
    this.pending += 1;
    this.main.setAttribute("aria-busy", "true");
    try {
      return await work();
    } finally {
      this.pending -= 1;
      if (!this.pending) this.main.setAttribute("aria-busy", "false");
    }
  }

  read() {
    return this.whileBusy(() => this.#read());
  }

  show() {
    return this.whileBusy(() => this.#show());
  }

  again() {
    return this.whileBusy(() => this.explain());
  }

  // Reads the text and shows the state.
  async #read() {
    const turn = ++this.turn;
    const { state } = this;
    this.steps.show({ run: ".", tag: "", step: state.step }, this.runs);
    this.steps.node.hidden = !this.hasSteps;
    try {
      const reading = await this.study.read(state);
      if (turn !== this.turn || !reading) return;
      this.reading = reading;
    } catch (error) {
      if (turn === this.turn) this.say(error.message);
      return;
    }
    this.maps = this.reading.maps;
    this.sure = this.perfect.read(this.reading);
    const last = this.reading.ids.length - 1;
    if (state.place !== null && !(state.place >= 1 && state.place <= last)) state.place = null;
    if (state.token === NEWEST) {
      state.token = last;
      this.choice.hover(-1, null); // the text under a pointer that rests is another
      this.viewport.reveal(this.maps, last);
    }
    if (!anyOff(state.off) && state.view === "change") state.view = "weights";
    await this.show();
  }

  async #show() {
    const { turn, state } = this;
    state.one = { run: this.data.run.name, tag: state.text, step: state.step };
    this.opening.settle(state, this.maps);
    this.draw();
    this.address.follow();
    await this.explain();
    if (turn === this.turn) this.player.drawn([{ run: ".", tag: "", step: state.step }], this.runs);
  }

  // What needs more questions: probabilities in the place of a token, and what is open of the rest.
  async explain() {
    const { turn, state, reading } = this;
    const isNew = () => turn === this.turn && reading === this.reading;
    const { place } = state;
    const instead = place === null ? null : { place, token: reading.tokens[place], id: reading.ids[place] };
    const sure = this.sure?.[(place ?? reading.ids.length) - 1][1];
    try {
      const rows = await this.study.probabilities(state, reading, sure);
      if (!isNew()) return;
      this.next.show(rows, instead, sure);
      await this.understanding.show(state, reading, isNew);
      if (isNew()) await this.tour.show(isNew);
    } catch (error) {
      if (isNew()) this.say(error.message);
    }
  }

  draw() {
    const { state, maps, reading } = this;
    const { layer, head } = state;
    const off = anyOff(state.off);
    const isOff = (l, h) => state.off.heads.some(([a, b]) => a === l && b === h);
    this.drawHeads(isOff);
    const views = Object.keys(VIEWS).filter((name) => off || name !== "change");
    options(this.view, views, state.view, views.map((name) => VIEWS[name][0]));
    [, this.meaning.textContent] = VIEWS[state.view];
    this.main.classList.toggle("differing", state.view === "change");
    this.panels[0].title.textContent = `L${layer}H${head}${isOff(layer, head) ? " (off)" : ""}`;
    this.switches.show(state.off, layer, head, maps.header.heads[layer]);
    const { tokens } = reading;
    const worst = Math.log(this.data.config.vocab_size);
    const floor = this.sure?.map(([nats]) => nats);
    this.surprise.show(reading, worst, state.place, this.author.wroteBroken, floor);
    this.grow();
    const all = reading.from + tokens.length;
    const cut = `The model sees the last ${tokens.length} of ${all} tokens: at most ${this.data.config.context_length} fit its context.`;
    const bytes = "\\x and two digits: a byte that is only part of a character.";
    const hasBytes = tokens.some((token) => /\\x[0-9a-f]{2}/.test(token));
    const unknown = "The perfect reader knows the texts of “Try” alone, and their beginnings; this is another text.";
    const isUnknown = !floor && this.perfect.texts.length;
    const start = "It goes on from the tokens without a colour, which are not of your text.";
    const hasStart = reading.begun > 1 && Number.isNaN(reading.losses[reading.begun - 1]);
    this.seen.textContent = [reading.from && cut, hasStart && start, hasBytes && bytes, isUnknown && unknown].filter(Boolean).join(" ");
    this.main.classList.toggle("blank", !this.input.value && !this.author.busy);
    const { busy, before: undoable } = this.author;
    this.writing.show(state.sampling, busy, !busy && Boolean(undoable));
    this.drawHead();
  }

  // The parts that depend on the token in focus.
  drawHead() {
    const { layer, head, token, view, step } = this.state;
    const { focus, cell } = this.choice.marked(token);
    this.buttons.show(this.viewport);
    this.panels[0].show(this.maps, layer, head, focus, cell, this.palette);
    this.difference.node.hidden = view !== "change";
    if (view !== "change") return;
    const two = [this.maps, this.reading.before.maps];
    this.difference.show(two, ["parts off", "all on"], this.state, [layer, head], focus, cell, this.palette);
  }

  fileName(which) {
    const { step, layer, head } = this.state;
    return fileName(this.data.run.name, step, `L${layer}H${head}`, ...(which ? ["change"] : []));
  }

  // The cell of the map that is chosen, or the one with the largest weight of the token at hand.
  cell() {
    const { maps, state, choice } = this;
    const query = state.token < 0 ? maps.n - 1 : state.token;
    if (choice.picked?.query === query) return choice.picked;
    const [start, length] = maps.row(maps.headIndex(state.layer, state.head), query);
    const weights = maps.weights.subarray(start, start + length);
    return { query, key: weights.reduce((most, each, key) => (each > weights[most] ? key : most), 0) };
  }

  // exact: with the step and the token, also where they are to be chosen anew after a reload.
  linked(exact = true) {
    const { state, maps } = this;
    const { token } = exact ? state : { ...state, ...this.opening.open(state, maps) };
    return { ...state, token: token ?? "", zoom: this.place };
  }
}

class LiveAddress extends Address {
  link() {
    return writeFragment(this.app.linked(false));
  }
}
