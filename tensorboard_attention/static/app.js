// The Attention tab: holds the state, and has every part show it. Parts know nothing of each other.

import { el } from "./dom.js";
import { css, future, scale } from "./colours.js";
import { Store } from "./source.js";
import { linkHash, nearest, readLink, restore } from "./state.js";
import { Picker, field, options } from "./controls.js";
import { Grid } from "./grid.js";
import { Picture, Viewport, zoomButtons } from "./picture.js";
import { Words } from "./words.js";
import { Scores } from "./scores.js";

const AGAIN = 10_000; // milliseconds between looks for new steps while a run trains
const FRAME = 150; // and between steps while playing

const KEYS = [
  ["← →", "head before, after"],
  ["↑ ↓", "layer above, below"],
  [", .", "step before, after (also shift ← →)"],
  ["space", "play through training"],
  ["[ ]", "token before, after"],
  ["c", "compare, or stop comparing"],
  ["+ - 0", "zoom in, out, whole map"],
];

export async function start(source) {
  const main = el("main", { class: "attention" });
  document.body.append(main);
  await new App(source, main).begin();
}

class App {
  constructor(source, main) {
    this.source = source;
    this.store = new Store(source);
    this.main = main;
    this.viewport = new Viewport();
    this.hovered = -1; // the token under the pointer: it goes before the chosen one
    this.cell = null;
    this.turn = 0;
  }

  async begin() {
    this.#followTheme();
    this.runs = await this.source.runs().catch(() => ({}));
    if (this.source.follows) setInterval(() => this.#refresh(), AGAIN);
    if (!Object.keys(this.runs).length) return this.#sayEmpty();
    this.#build();
    this.state = restore(readLink(address().hash), this.runs);
    if (parent !== window) focus(); // so that keys work without a click
    await this.show();
  }

  #sayEmpty() {
    const example = "from tensorboard_attention import add_attention\nadd_attention(writer, \"my probe\", maps, tokens, step)";
    this.main.replaceChildren(
      el("div", { class: "empty" }, el("h2", {}, "No attention maps yet"), el("p", {}, "No run in this log folder has any. A training run logs them as it goes, and any program can:"), el("pre", {}, example)),
    );
    this.main.dataset.shown = "empty";
  }

  #build() {
    const point = (token, cell = null) => this.hover(token ?? -1, cell);
    const pick = (token) => this.set({ token });
    const moved = () => this.panels.forEach(({ picture }) => picture.draw());
    this.pickers = ["one", "two"].map((which, i) => new Picker(i ? "Compared with" : "View", (view) => this.set({ [which]: nearest(this.runs, view) })));
    this.panels = this.pickers.map(() => {
      const title = el("h2");
      const note = el("p", { class: "note" });
      const picture = new Picture(this.viewport, { point, pick, moved });
      const words = new Words({ point, pick });
      return { title, note, picture, words, node: el("section", { class: "panel" }, title, note, picture.node, words.node) };
    });
    this.grid = new Grid((layer, head) => this.set({ layer, head }));
    this.scores = new Scores((step) => this.set({ one: nearest(this.runs, { ...this.state.one, step: Math.round(step) }) }));
    this.sort = el("select", { oninput: () => this.set({ sort: this.sort.value }) });
    this.rising = el("button", { type: "button", onclick: () => this.set({ rising: !this.state.rising }) });
    this.compare = el("button", { type: "button", onclick: () => this.toggleCompare() }, "Compare");
    this.copied = el("output", { class: "copied" });
    const copy = el("button", { type: "button", onclick: () => this.copyLink() }, "Copy link");
    this.bar = el("div", { class: "scale", "aria-hidden": "true" });
    const keys = KEYS.map(([key, what]) => el("li", {}, el("kbd", {}, key), ` ${what}`));
    this.notice = el("p", { class: "notice", role: "status" });
    this.main.replaceChildren(
      el("header", {}, ...this.pickers.map(({ node }) => node), el("div", { class: "actions" }, this.compare, copy, this.copied)),
      this.notice,
      el(
        "div",
        { class: "columns" },
        el("div", { class: "side" }, el("div", { class: "sorting" }, field("Order", this.sort), this.rising), this.grid.node, this.bar, el("details", { class: "keys" }, el("summary", {}, "Keys"), el("ul", {}, ...keys))),
        el("div", { class: "chosen" }, zoomButtons(this.viewport, moved), ...this.panels.map(({ node }) => node), this.scores.node),
      ),
    );
    this.#paintScale();
    addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.panels.forEach(({ picture, words }) => (picture.draw(), words.draw()))).observe(this.main);
  }

  set(part) {
    Object.assign(this.state, part);
    return this.show();
  }

  // Show the state, as soon as its maps are there. Only the newest of several calls draws.
  async show() {
    const turn = ++this.turn;
    const { one, two } = this.state;
    const views = two ? [one, two] : [one];
    this.pickers.forEach((picker, i) => {
      picker.node.hidden = !views[i];
      if (views[i]) picker.show(views[i], this.runs);
    });
    let maps;
    try {
      maps = await Promise.all(views.map((view) => this.store.maps(view)));
    } catch (error) {
      if (turn === this.turn) this.#say(error.message);
      return;
    }
    if (turn !== this.turn) return;
    this.#say("");
    this.maps = maps;
    this.#settle();
    this.#draw();
    this.main.dataset.shown = JSON.stringify(views.map(({ run, tag, step }) => [run, tag, step]));
    views.forEach((view) => this.#prefetch(view));
    this.#playOn();
    this.#drawCurves(turn, views);
  }

  // What the state asks for and the maps lack becomes the nearest there is.
  #settle() {
    const { heads } = this.maps[0].header;
    const within = (value, count) => Math.min(Math.max(0, value), count - 1);
    this.state.layer = within(this.state.layer, heads.length);
    this.state.head = within(this.state.head, heads[this.state.layer]);
    if (this.state.token !== -1) this.state.token = within(this.state.token, this.maps[0].n);
    if (!(this.state.sort in this.maps[0].header.scores)) this.state.sort = "";
  }

  #draw() {
    const { layer, head, sort, rising } = this.state;
    const names = Object.keys(this.maps[0].header.scores);
    options(this.sort, ["", ...names], sort, ["layer by layer", ...names]);
    this.rising.hidden = !sort;
    this.rising.textContent = rising ? "smallest first" : "largest first";
    this.compare.setAttribute("aria-pressed", this.maps.length === 2);
    this.main.classList.toggle("comparing", this.maps.length === 2);
    this.grid.show(this.maps, this.state, this.palette);
    this.panels.forEach(({ node, title, note }, i) => {
      const maps = this.maps[i];
      const view = i ? this.state.two : this.state.one;
      node.hidden = !maps;
      if (!maps) return;
      title.textContent = `Layer ${layer}, head ${head}` + (this.maps.length === 2 ? ` · ${view.run === "." ? "" : `${view.run}, `}step ${view.step}` : "");
      note.textContent = maps.header.note;
    });
    this.#drawHead();
  }

  // What depends on the token in focus.
  #drawHead() {
    const { layer, head } = this.state;
    const focus = this.hovered >= 0 ? this.hovered : this.state.token;
    this.maps.forEach((maps, i) => {
      const { picture, words, note } = this.panels[i];
      const there = head < (maps.header.heads[layer] ?? 0);
      picture.node.hidden = words.node.hidden = !there;
      if (!there) return (note.textContent = "This model has no such head.");
      picture.show(maps, layer, head, focus, this.cell, this.palette);
      words.show(maps, layer, head, focus);
    });
  }

  // Curves need every step's scores: they come after the maps.
  async #drawCurves(turn, views) {
    const { layer, head } = this.state;
    const steps = views.map(({ run, tag }) => this.runs[run][tag]);
    const draw = (curves) => this.scores.show(views.map((view, i) => ({ maps: this.maps[i], step: view.step, curves: curves[i] })), layer, head);
    const curves = Promise.all(views.map((view, i) => this.store.scores(view, steps[i]).catch(() => null)));
    if (!this.scores.node.childElementCount) draw([null, null]);
    const come = await curves;
    if (turn === this.turn) draw(come);
  }

  // The steps beside this one, so that a slider that moves finds them there.
  #prefetch(view) {
    const steps = this.runs[view.run][view.tag];
    const place = steps.indexOf(view.step);
    for (const step of [steps[place + 1], steps[place - 1], steps[place + 2]]) {
      if (step !== undefined) this.store.maps({ ...view, step }).catch(() => {});
    }
  }

  // While playing, every step that is drawn asks for the next.
  #playOn() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      for (const picker of this.pickers) {
        if (picker.playing && !picker.move(1)) picker.setPlaying(false);
      }
    }, FRAME);
  }

  hover(token, cell) {
    this.hovered = token;
    this.cell = cell;
    this.#drawHead();
  }

  toggleCompare() {
    const { one, two } = this.state;
    const steps = this.runs[one.run][one.tag];
    // Most telling beside the end of a run is its start.
    return this.set({ two: two ? null : { ...one, step: one.step === steps[0] ? steps.at(-1) : steps[0] } });
  }

  key(event) {
    const typing = event.target.closest?.("input, select, textarea, summary");
    if (!this.maps || event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing && /^(Arrow|Home|End|Page| )/.test(event.key)) return; // theirs
    const [picker] = this.pickers;
    const turnTo = ([layer, head]) => this.set({ layer, head }).then(() => this.grid.focus(this.state));
    const zoom = (factor) => (this.viewport.by(factor), this.panels.forEach(({ picture }) => picture.draw()));
    const token = (by) => this.set({ token: Math.max(0, this.state.token + by) });
    const { layer, head } = this.state;
    const actions = {
      ArrowLeft: () => (event.shiftKey ? picker.move(-1) : turnTo(this.grid.beside(this.state, -1))),
      ArrowRight: () => (event.shiftKey ? picker.move(1) : turnTo(this.grid.beside(this.state, 1))),
      ArrowUp: () => turnTo([layer - 1, head]),
      ArrowDown: () => turnTo([layer + 1, head]),
      ",": () => picker.move(-1),
      ".": () => picker.move(1),
      " ": () => picker.toggle(),
      "[": () => token(-1),
      "]": () => token(1),
      c: () => this.toggleCompare(),
      "+": () => zoom(1.5),
      "-": () => zoom(1 / 1.5),
      0: () => zoom(0),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    if (event.key === " " && event.target.closest?.("button")) return; // presses it
    event.preventDefault();
    actions[event.key]();
  }

  async copyLink() {
    const place = address();
    place.hash = linkHash(this.state);
    try {
      parent.history.replaceState(null, "", place.href);
      await navigator.clipboard.writeText(place.href);
      this.copied.replaceChildren("copied");
    } catch {
      // No permission for the clipboard: the link stands there to be copied by hand.
      const text = el("input", { readonly: true, value: place.href, "aria-label": "Link to this view" });
      this.copied.replaceChildren(text);
      text.select();
    }
  }

  // New runs and steps. Who looks at the last step of a run stays at its last.
  async #refresh() {
    if (document.hidden || !innerWidth) return; // another tab is open
    const runs = await this.source.runs().catch(() => null);
    if (!runs || JSON.stringify(runs) === JSON.stringify(this.runs)) return;
    const before = this.runs;
    this.runs = runs;
    if (!Object.keys(runs).length) return this.#sayEmpty();
    if (!this.state) return location.reload();
    const moved = (view) => view && nearest(runs, view.step === before[view.run][view.tag].at(-1) ? { ...view, step: null } : view);
    await this.set({ one: moved(this.state.one), two: moved(this.state.two) });
  }

  #say(text) {
    this.notice.textContent = text;
  }

  // Light or dark as TensorBoard is; by itself, as the system is.
  #followTheme() {
    const body = parent !== window ? parent.document.body : null;
    const system = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => {
      const dark = body ? body.classList.contains("dark-mode") : system.matches;
      document.documentElement.dataset.theme = dark ? "dark" : "light";
      const style = getComputedStyle(document.documentElement);
      const names = ["ink", "quiet", "line", "to", "from"];
      this.palette = { colours: scale(dark), future: future(dark) };
      for (const name of names) this.palette[name] = style.getPropertyValue(`--${name}`).trim();
      if (this.maps) (this.#paintScale(), this.#draw());
    };
    if (body) new MutationObserver(follow).observe(body, { attributeFilter: ["class"] });
    else system.addEventListener("change", follow);
    follow();
  }

  #paintScale() {
    const { colours, future } = this.palette;
    const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((byte) => css(colours[byte]));
    const ramp = el("div", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    const ticks = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1].map((weight) => {
      const tick = el("span", {}, `${weight}`.replace(/^0\./, "."));
      tick.style.left = `${100 * Math.sqrt(weight)}%`;
      return tick;
    });
    const grey = el("i");
    grey.style.background = css(future);
    this.bar.replaceChildren(el("div", { class: "ramped" }, ramp, el("div", { class: "ticks" }, ...ticks)), el("div", { class: "unseen" }, grey, "future"));
  }
}

// The address that can be shared: TensorBoard's own, around this frame.
function address() {
  return new URL(parent.location.href);
}
