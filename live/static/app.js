// The live page: holds the state and passes it to the parts, which do not know each other.

import { Address } from "./address.js";
import { Choice } from "./choice.js";
import { Picker, ZoomButtons, copyLink, field, options } from "./controls.js";
import { DifferencePanel } from "./difference.js";
import { bring, el } from "./dom.js";
import { Grid, ordered } from "./grid.js";
import { keyList, onKey } from "./keys.js";
import { Opening } from "./opening.js";
import { Order } from "./order.js";
import { Panel } from "./panel.js";
import { Player } from "./play.js";
import { SaveMenu, subject } from "./save.js";
import { Scores } from "./scores.js";
import { followTheme, legend } from "./theme.js";
import { Viewport } from "./viewport.js";
import { anyOff, readFragment, writeFragment } from "./link.js";
import { NextTokens } from "./next.js";
import { Ranking } from "./ranking.js";
import { Study } from "./study.js";
import { Surprise } from "./surprise.js";
import { Switches } from "./switches.js";
import { Understanding } from "./understanding.js";
import { foot } from "./foot.js";
import { VIEWS } from "./views.js";
import { Writing } from "./writing.js";
import { charts } from "./saved.js";

const LEAD =
  "This is a language model, and it runs in this page. Type, and watch it read: what surprises it, what it expects next, and what each of its heads looks at. Switch parts off to see what they are for.";
const CHANGE = "what is off, minus before";

export function start(workerSource) {
  const data = JSON.parse(document.getElementById("model").textContent);
  const main = el("main", { class: "attention live" });
  document.body.append(main);
  return new LivePage(data, new Study(data, workerSource), main).begin();
}

class LivePage {
  constructor(data, study, main) {
    Object.assign(this, { data, study, main });
    this.host = window;
    this.runs = { ".": { "": data.steps } }; // as the tab's picker knows them
    this.viewport = new Viewport();
    this.choice = new Choice();
    this.opening = new Opening();
    this.turn = 0;
  }

  async begin() {
    followTheme(window, (palette) => {
      this.palette = palette;
      if (this.maps) this.#draw();
    });
    this.#build();
    this.address = new LiveAddress(this);
    this.say("Unpacking the model …");
    try {
      await this.study.load();
    } catch (error) {
      return this.say(error.message);
    }
    this.main.dataset.ready = "";
    await this.#restore();
    addEventListener("hashchange", () => this.#restore());
  }

  // Shows what the address describes.
  async #restore() {
    this.state = readFragment(location.hash, this.data);
    this.opening = new Opening();
    this.viewport.restore(this.state.zoom);
    this.input.value = this.state.text;
    this.say("");
    await this.read();
    if (this.maps) this.grid.reveal(this.state);
  }

  #build() {
    const acts = {
      point: (token, cell = null) => this.hover(token ?? -1, cell),
      pick: (token, cell) => this.pick(token, cell),
      moved: () => this.zoom(1),
    };
    const say = (text) => this.say(text);
    const menus = charts(this, say);
    this.#buildText(menus);
    this.steps = new Picker("Training", ({ step }) => this.set({ step }));
    this.player = new Player([this.steps], { maps: async () => {} });
    const save = (i) => new SaveMenu(() => subject(this.#saved(), i), say);
    this.panel = new Panel(this.viewport, acts, save(0));
    this.difference = new DifferencePanel(this.viewport, acts, save(2));
    this.zoomButtons = new ZoomButtons((factor) => this.zoom(factor));
    this.view = el("select", { oninput: () => this.set({ view: this.view.value }) });
    this.meaning = el("p", { class: "note" });
    this.grid = new Grid((layer, head) => this.turnTo([layer, head]));
    this.scores = new Scores(() => {});
    this.order = new Order((part) => this.sortBy(part));
    this.ranking = new Ranking(this.study, () => this.ranked(), say);
    this.switches = new Switches((off) => this.set({ off }));
    this.understanding = new Understanding(this.study, menus, () => this.explain());
    this.legend = el("div", { class: "scale", "aria-hidden": "true" });
    this.notice = el("p", { class: "notice", role: "status" });
    this.copied = el("output", { class: "copied" });
    const copy = () => copyLink(window, writeFragment(this.linked()), this.copied);
    this.main.replaceChildren(
      el("p", { class: "lead" }, LEAD),
      this.steps.node,
      this.notice,
      el("div", { class: "top" }, this.typing, this.next.node),
      this.#columns(),
      this.understanding.node,
      el("footer", {}, el("div", { class: "actions" }, el("button", { type: "button", onclick: copy }, "Copy link"), this.copied), ...foot(this.data)),
    );
    addEventListener("keydown", (event) => {
      const keys = { x: () => this.switches.toggleHead() };
      if (this.maps) onKey(event, this, keys);
    });
    new ResizeObserver(() => this.#redraw()).observe(this.main);
    addEventListener("resize", () => this.#redraw());
  }

  #buildText(menus) {
    this.input = el("textarea", {
      rows: 4,
      spellcheck: "false",
      "aria-label": "Text",
      placeholder: "Type here",
      oninput: () => this.typed(this.input.value),
      onkeydown: (event) => {
        if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
        event.preventDefault();
        this.writing.toggle();
      },
    });
    this.next = new NextTokens(
      { choose: (id) => this.choose(id), back: () => this.set({ place: null }) },
      menus.next,
    );
    this.surprise = new Surprise((place) => this.look(place), menus.losses);
    this.writing = new Writing({
      start: () => this.write(),
      stop: () => this.study.stop(),
      change: (sampling) => this.set({ sampling }),
    });
    this.seen = el("p", { class: "note" });
    this.typing = el(
      "section",
      { class: "typing", "aria-label": "Your text" },
      this.input,
      this.writing.node,
      this.seen,
      this.surprise.node,
    );
  }

  #columns() {
    return el(
      "div",
      { class: "columns" },
      el(
        "div",
        { class: "side" },
        el("h2", {}, "Every head"),
        el("div", { class: "ordering" }, this.order.node, this.ranking.node),
        this.grid.node,
        this.legend,
        keyList([["x", "switch the head off, or on"]]),
      ),
      el(
        "div",
        { class: "chosen" },
        el("div", { class: "views" }, field("Show", this.view), this.zoomButtons.node, this.meaning),
        this.panel.node,
        this.difference.node,
        el(
          "div",
          { class: "aside" },
          this.switches.node,
          el("details", { class: "allscores" }, el("summary", {}, "Scores of this head"), this.scores.node),
        ),
      ),
    );
  }

  say(text) {
    this.notice.textContent = text;
  }

  typed(text) {
    this.study.stop();
    return this.set({ text, ids: null, place: null });
  }

  // Shows what could have been in the place of a token.
  look(place) {
    const { begun } = this.study.vocabulary;
    if (place + this.reading.from < Math.max(1, begun)) return;
    return this.set({ place, token: place });
  }

  // Goes on with a token: after the text, or in the place that is looked at.
  choose(id) {
    const { place } = this.state;
    const ids = this.study.ids(this.state);
    const kept = place === null ? ids : ids.slice(0, this.reading.from + place);
    return this.#continue([...kept, id]);
  }

  #continue(ids) {
    const text = this.study.vocabulary.decode(ids);
    const same = JSON.stringify(this.study.vocabulary.encode(text)) === JSON.stringify(ids);
    this.input.value = text;
    return this.set({ text, ids: same ? null : ids, place: null });
  }

  // Writes on, token by token, until the document ends.
  async write() {
    this.busy = true;
    this.state.place = null;
    this.writing.show(this.state.sampling, true);
    try {
      await this.study.write(this.state, (ids, top) => {
        this.input.value = this.study.vocabulary.decode(ids);
        this.input.scrollTop = this.input.scrollHeight;
        this.next.show(this.study.rows(top), null);
        this.written = ids;
      });
    } catch (error) {
      this.say(error.message);
    }
    this.busy = false;
    this.writing.show(this.state.sampling, false);
    if (this.written) await this.#continue(this.written);
    this.written = null;
  }

  set(part) {
    Object.assign(this.state, part);
    if ("token" in part) this.opening.chosen();
    const { token } = this.state;
    if (part.token >= 0) this.viewport.reveal(this.maps, token);
    const reads = ["text", "ids", "step", "off", "view"].some((name) => name in part);
    return reads ? this.read() : this.show();
  }

  // Reads the text and shows the state. Of several calls, only the newest shows something.
  async read() {
    const turn = ++this.turn;
    const { state } = this;
    this.main.setAttribute("aria-busy", "true");
    this.steps.show({ run: ".", tag: "", step: state.step }, this.runs);
    this.steps.node.hidden = this.data.steps.length < 2;
    try {
      const reading = await this.study.read(state);
      if (turn !== this.turn || !reading) return;
      this.reading = reading;
    } catch (error) {
      if (turn === this.turn) this.say(error.message);
      return;
    }
    this.maps = this.reading.maps;
    const last = this.reading.ids.length - 1;
    if (state.place > last) state.place = null;
    if (!anyOff(state.off) && state.view === "change") state.view = "weights";
    this.ranking.follow(state, this.reading.ids);
    await this.show();
  }

  async show() {
    const { turn, state } = this;
    this.main.setAttribute("aria-busy", "true");
    this.ranking.addTo(this.maps.header);
    state.one = { run: this.data.run.name, tag: state.text, step: state.step };
    this.opening.settle(state, this.maps);
    this.#draw();
    this.address.follow();
    await this.explain();
    if (turn !== this.turn) return;
    this.main.setAttribute("aria-busy", "false");
    this.player.drawn([{ run: ".", tag: "", step: state.step }], this.runs);
  }

  // What needs more questions: probabilities in the place of a token, and what is open of the rest.
  async explain() {
    const { turn, state, reading } = this;
    const isNew = () => turn === this.turn && reading === this.reading;
    const instead = state.place === null ? null : this.reading.token(state.place);
    try {
      const rows = await this.study.probabilities(state, reading);
      if (!isNew()) return;
      this.next.show(rows, instead);
      await this.understanding.show(state, reading, isNew);
    } catch (error) {
      if (isNew()) this.say(error.message);
    }
  }

  #draw() {
    const { state, maps, reading } = this;
    const { layer, head } = state;
    const off = anyOff(state.off);
    const isOff = (l, h) => state.off.heads.some(([a, b]) => a === l && b === h);
    this.order.show(Object.keys(maps.header.scores), state);
    this.grid.show([maps], state, this.palette, isOff);
    this.legend.replaceChildren(...legend(maps.legend(this.palette), this.palette));
    const views = Object.entries(VIEWS).map(([name, [text]]) => [name, text]);
    if (off) views.push(["change", CHANGE]);
    options(this.view, views.map(([name]) => name), state.view, views.map(([, text]) => text));
    this.meaning.textContent = VIEWS[state.view]?.[1] ?? "";
    this.main.classList.toggle("differing", state.view === "change");
    this.panel.title.textContent = `Layer ${layer}, head ${head}${isOff(layer, head) ? " (off)" : ""}`;
    this.switches.show(state.off, layer, head, maps.header.heads[layer]);
    this.scores.show([{ maps, step: state.step, steps: 1, curves: null }], layer, head);
    const { losses, before, tokens } = reading;
    const worst = Math.log(this.data.config.vocab_size);
    this.surprise.show(tokens, losses, before?.losses, worst, state.place);
    this.seen.textContent = reading.from
      ? `The model sees the last ${tokens.length} of ${reading.from + tokens.length} tokens: more do not fit its context.`
      : "";
    if (!this.busy) this.writing.show(state.sampling, false);
    this.#drawHead();
  }

  // The parts that depend on the token in focus.
  #drawHead() {
    const { layer, head, token, view, step } = this.state;
    const { focus, cell } = this.choice.marked(token);
    this.zoomButtons.show(this.viewport);
    this.panel.show(this.maps, layer, head, focus, cell, this.palette);
    this.difference.node.hidden = view !== "change";
    if (view !== "change") return;
    const two = [this.maps, this.reading.before.maps];
    this.difference.show(two, ["parts off", "all on"], this.state, focus, cell, this.palette);
  }

  // What the tab's menu saves.
  #saved() {
    const { run } = this.data;
    const { state, maps, palette, difference, reading } = this;
    const one = { run: run.name, tag: state.text.slice(0, 40), step: state.step };
    const two = { ...one, tag: "all parts on" };
    return { state: { ...state, one, two }, maps: [maps, reading.before?.maps], palette, difference };
  }

  hover(token, cell) {
    this.choice.hover(token, cell);
    this.#drawHead();
  }

  pick(token, cell = null) {
    this.choice.pick(cell);
    return this.set({ token });
  }

  // Its map comes into view.
  async turnTo([layer, head]) {
    const last = this.maps.header.heads.length - 1;
    await this.set({ layer: Math.min(last, Math.max(0, layer)), head });
    this.grid.focus(this.state);
    bring((this.state.view === "change" ? this.difference : this.panel).view);
  }

  // Sort the heads, and choose the first of them.
  async sortBy(part) {
    const [layer, head] = ordered(this.maps, { ...this.state, ...part })[0];
    await this.set({ ...part, layer, head });
    this.grid.reveal(this.state);
  }

  // Another head was measured: the heads are shown in the order of what is known.
  ranked() {
    this.ranking.addTo(this.maps.header);
    this.state.sort = this.ranking.name;
    this.state.rising = false;
    this.#draw();
    this.address.follow();
  }

  step(by) {
    if (this.data.steps.length > 1) this.steps.move(by);
  }

  play() {
    this.steps.toggle();
  }

  // In or out at the cell or token that is chosen; 1: the viewport has changed by itself.
  zoom(factor) {
    if (factor !== 1) this.choice.zoom(this.viewport, factor, this.state.token, this.maps);
    [this.difference, this.panel].forEach(({ picture }) => picture.draw());
    this.zoomButtons.show(this.viewport);
    this.address.follow();
  }

  linked() {
    return { ...this.state, zoom: this.viewport.place };
  }

  // Called again when the available space has changed.
  #redraw() {
    [this.difference, this.panel].forEach((panel) => panel.draw());
  }
}

class LiveAddress extends Address {
  link() {
    return writeFragment(this.app.linked());
  }
}
