// The Attention tab: holds the state and passes it to the parts, which do not know each other.

import { el } from "./dom.js";
import { Store, Unreachable } from "./source.js";
import { countViews, nearest, readLink, restore } from "./state.js";
import { Picker, copyLink, showPickers } from "./controls.js";
import { emptyNotice } from "./panel.js";
import { HeadCurves } from "./headcurves.js";
import { Wiring } from "./wiring.js";
import { Learned } from "./learned.js";
import { Guesses } from "./guesses.js";
import { Neurons } from "./neurons.js";
import { Induction } from "./induction.js";
import { Order } from "./order.js";
import { ordered } from "./grid.js";
import { Scores, leading } from "./scores.js";
import { Notes } from "./notes.js";
import { Inspector } from "./inspector.js";
import { keyList } from "./keys.js";
import { earned, firstPart } from "./marks.js";
import { Address } from "./address.js";
import { Opening } from "./opening.js";
import { fileName } from "./save.js";
import { Compare, names } from "./compare.js";
import { Player } from "./play.js";

const REFRESH = 10_000; // milliseconds between checks for new steps
const PATIENCE = 60_000; // milliseconds in which a large log is read before its first view

export async function start(source) {
  const main = el("main", { class: "attention" });
  document.body.append(main);
  await new App(source, main).begin();
}

class App extends Inspector {
  constructor(source, main) {
    super();
    this.source = source;
    this.store = new Store(source);
    this.main = main;
    this.notes = new Notes();
    this.runs = {};
    // The window with the address and theme to use: TensorBoard's around this frame, or this one.
    this.host = source.follows ? parent : window;
    this.lost = ""; // why the source does not answer
    this.address = new Address(this);
  }

  async begin() {
    this.follow();
    try {
      do this.runs = await this.source.runs();
      while (!this.source.complete && performance.now() < PATIENCE);
    } catch (error) {
      this.main.replaceChildren(el("p", { class: "notice" }, error.message));
      return;
    } finally {
      if (this.source.follows) setInterval(() => this.#refresh(), REFRESH);
    }
    this.notes.show(this.source.notes);
    if (!Object.keys(this.runs).length) {
      this.notes.node.open = true;
      this.main.replaceChildren(emptyNotice(), this.notes.node);
      this.main.dataset.shown = "empty";
      return;
    }
    this.#build();
    if (this.host !== window) focus(); // so that keys work without a click
    await this.#open({ run: this.source.first, ...readLink(this.host.location.hash) });
    this.host.addEventListener("hashchange", () => this.#openLink());
  }

  // Shows the view of a link.
  async #open(link) {
    this.state = restore(link, this.runs);
    this.opening = new Opening();
    Object.assign(this, { place: this.state.zoom, zoomedTo: "" });
    this.showMore(Boolean(this.state.sort) || this.main.classList.contains("all"));
    const { token, key } = this.state;
    this.choice.pick(key === undefined ? null : { query: token, key });
    const { one, two } = this.state;
    const asked = [[link.run, one.run], [link.tag, one.tag], [link.run2, two?.run], [two && link.tag2, two?.tag]];
    const missing = asked.find(([name, shown]) => name != null && name !== shown);
    await this.show();
    if (missing) this.say(`${missing[0]} is not in this log; this is ${missing[1]}.`);
    if (this.maps) this.grid.reveal(this.state);
  }

  // A link was opened in this window, perhaps to a new probe.
  async #openLink() {
    const { hash } = this.host.location;
    if (!hash.startsWith("#attention&") || hash === this.address.link()) return;
    const link = readLink(hash);
    await this.#refresh();
    await this.#open(link);
  }

  #build() {
    this.pickers = ["one", "two"].map(
      (which, i) =>
        new Picker(i ? "Compared with" : "View", (view) => this.compare.choose(which, view)),
    );
    [this.steps] = this.pickers;
    this.player = new Player(this.pickers, this.store);
    this.build(2);
    this.order = new Order((part) => this.#sortBy(part));
    this.scores = new Scores((step) =>
      this.set({ one: nearest(this.runs, { ...this.state.one, step: Math.round(step) }) }),
    );
    this.guesses = new Guesses((token) => this.pick(token));
    this.learned = new Learned();
    this.neurons = new Neurons();
    this.induction = new Induction((head) => this.turnTo(head), (token, cell) => this.pick(token, cell));
    this.headCurves = new HeadCurves((head) => this.turnTo(head));
    this.wiring = new Wiring((head) => this.turnTo(head), (heads) => this.grid.mark(heads));
    this.compare = new Compare(this);
    this.followLink = el("a", { target: "_blank", rel: "noopener" }, "Your own text");
    this.copied = el("output", { class: "copied" });
    const copied = () => copyLink(this.host, this.address.link(true), this.copied);
    // The address of a file is of no use to others.
    const hidden = !this.host.location.protocol.startsWith("http");
    const copy = el("button", { type: "button", class: "extra", onclick: copied, hidden }, "Copy link");
    this.more = el("button", { type: "button", class: "more", onclick: () => this.showMore(!this.main.classList.contains("all")) }, "More");
    const fields = this.source.follows || countViews(this.runs) > 1 ? this.pickers : []; // a page of one view has nothing to choose
    this.main.replaceChildren(
      el(
        "header",
        { class: "line" },
        ...fields.map(({ node }) => node),
        el(
          "div",
          { class: "line centred" },
          ...this.compare.parts,
          ...[copy, this.copied, this.followLink, this.more],
        ),
      ),
      this.compare.status,
      this.notice,
      (this.columns = el(
        "div",
        { class: "columns" },
        el(
          "div",
          { class: "side" },
          this.overview,
          this.changes,
          this.order.node,
          this.grid.node,
          this.kinds,
          this.induction.node,
          this.headCurves.node,
          this.legend,
          this.spaces,
          keyList([["↑ ↓", "if sorted, previous, next row"], ["c d", "compare; show the difference"]]),
          this.notes.node,
        ),
        el(
          "div",
          { class: "chosen" },
          this.buttons.node,
          ...[...this.panels, this.difference].map(({ node }) => node),
          this.scores.node,
        ),
      )),
      this.guesses.node,
      el("div", { class: "below" }, this.wiring.node),
      this.neurons.node,
      this.learned.node,
    );
    this.listen({ c: () => this.compare.toggle(), d: () => this.compare.toggleDifference() });
  }

  // Shows all controls, or those alone that everyone needs.
  showMore(all) {
    this.main.classList.toggle("all", all);
    this.more.setAttribute("aria-expanded", all);
    this.more.textContent = all ? "Less" : "More";
  }

  set(part) {
    this.change(part);
    return this.show();
  }

  // Sorts the heads, and chooses the first of them.
  async #sortBy(part) {
    const [layer, head] = ordered(this.first, { ...this.state, ...part })[0];
    await this.set({ ...part, layer, head });
    this.grid.reveal(this.state);
  }

  // Shows the state as soon as its maps are loaded.
  async show() {
    const turn = ++this.turn;
    const views = showPickers(this.pickers, this.state, this.runs);
    let maps, twins;
    try {
      maps = await Promise.all(views.map((view) => this.store.completed(view, this.runs[view.run][view.tag])));
      twins = await this.compare.find(views, maps);
    } catch (error) {
      if (turn === this.turn) this.#fail(error);
      return;
    }
    if (turn !== this.turn) return;
    this.say(this.lost);
    this.maps = maps;
    this.compare.twins = twins;
    this.opening.settle(this.state, maps[0]);
    if (!Object.hasOwn(maps[0].header.scores, this.state.sort)) this.state.sort = "";
    this.#zoomToName(maps[0]);
    this.choice.settle(maps[0]);
    this.kept = structuredClone(this.state);
    this.columns.classList.remove("missing");
    this.draw();
    this.main.dataset.shown = JSON.stringify(views.map(({ run, tag, step }) => [run, tag, step]));
    this.player.drawn(views, this.runs);
    this.#drawCurves(turn, views);
    this.address.follow();
  }

  // Of a long text, the part of the map that earns each head its name, until one zooms.
  #zoomToName(maps) {
    const { one, layer, head, token } = this.state;
    const shown = JSON.stringify([one.run, one.tag, layer, head]);
    if (this.zoomed || shown === this.zoomedTo) return;
    this.zoomedTo = shown;
    this.viewport.restore(firstPart(maps, earned(maps, layer, head), maps.query(token)));
  }

  // Without an answer, what was shown before stays. Otherwise these maps cannot be shown.
  #fail(error) {
    this.player.stop();
    if (error instanceof Unreachable && this.kept) {
      this.lost = error.message;
      Object.assign(this.state, structuredClone(this.kept));
      showPickers(this.pickers, this.state, this.runs);
    } else {
      this.columns.classList.add("missing");
    }
    this.say(error.message);
  }

  draw() {
    const { layer, head } = this.state;
    const { run } = this.state.one;
    this.followLink.hidden = !this.source.followed.includes(run);
    this.followLink.href = `follow?${new URLSearchParams({ run })}`;
    this.followLink.title = `What ${run} makes of a text of your own, at every step`;
    this.compare.show(this.state, countViews(this.runs) > 1);
    this.compare.arrange(this.maps);
    this.order.show(Object.keys(this.first.header.scores), this.state);
    this.drawHeads();
    this.guesses.show(this.maps[0].header, this.state.token);
    this.wiring.show(this.maps[0], this.state);
    this.induction.show(this.maps[0]);
    this.legend.lastChild.hidden = !this.maps.some(({ header }) => header.causal); // no future
    this.panels.forEach(({ node, title }, i) => {
      const view = i ? this.state.two : this.state.one;
      node.hidden = !this.maps[i];
      const { one, two } = this.state;
      const probe = two && one.tag !== two.tag ? `, ${view.tag}` : "";
      const which = two ? ` · ${view.run}${probe}, step ${view.step}` : "";
      const [l, h] = this.#headOf(i);
      title.textContent = `L${l}H${h}${which}`;
    });
    this.drawHead();
  }

  fileName(which) {
    const { one, two } = this.state;
    const { run, tag, step } = which === 1 ? two : one;
    const minus = which === 2 ? ["minus", two.run, two.tag, two.step] : [];
    return fileName(run, tag, step, `L${this.#headOf(which).join("H")}`, ...minus);
  }

  // The head that a view shows: that of the second can be the twin of that of the first.
  #headOf(which) {
    const { layer, head } = this.state;
    return which === 1 ? this.compare.twinOf(layer, head) : [layer, head];
  }

  // The parts that depend on the token in focus.
  drawHead() {
    const { layer, head, token } = this.state;
    const { focus, cell } = this.choice.marked(token);
    this.buttons.show(this.viewport);
    this.maps.forEach((maps, i) =>
      this.panels[i].show(maps, ...this.#headOf(i), focus, cell, this.palette),
    );
    const { one, two, difference } = this.state;
    this.difference.node.hidden = this.maps.length < 2 || !difference;
    if (!this.difference.node.hidden)
      this.difference.show(this.maps, names(one, two), this.state, this.#headOf(1), focus, cell, this.palette);
  }

  // Curves need the scores of every step, so they are drawn after the maps.
  async #drawCurves(turn, views) {
    const { layer, head } = this.state;
    const steps = views.map(({ run, tag }) => this.runs[run][tag]);
    const draw = (curves) => {
      const leads = this.#leads(layer, head);
      this.headCurves.show(this.maps[0], curves[0], this.state.sort || leads[0], this.state, views[0].step);
      this.scores.show(
        views.map(({ step }, i) => {
          const [l, h] = this.#headOf(i);
          return { maps: this.maps[i], layer: l, head: h, step, steps: steps[i].length, curves: curves[i] };
        }),
        leads,
      );
    };
    const curves = Promise.all(
      views.map((view, i) => this.store.scores(view, steps[i]).catch(() => null)),
    );
    if (!this.scores.leading.childElementCount) draw([null, null]);
    const come = await curves;
    if (turn === this.turn) draw(come);
    const reasons = [];
    const [losses, evidence] = await Promise.all(
      ["losses", "evidence"].map((kind) =>
        this.store.beside(kind, views[0].run).catch((error) => void reasons.push(error.message)),
      ),
    );
    if (turn !== this.turn) return;
    this.learned.show(losses ?? null);
    this.neurons.show(evidence ?? null);
    if (reasons.length) this.say(reasons.join(" "));
  }

  // The scores that lead: those of the step at which a head was chosen, until another is.
  #leads(layer, head) {
    const { run, tag } = this.state.one;
    const chosen = JSON.stringify([run, tag, layer, head]);
    const there = ([name]) => Object.hasOwn(this.maps[0].header.scores, name);
    if (this.leads?.chosen !== chosen || !there(this.leads.names))
      this.leads = { chosen, names: leading(this.maps[0], layer, head) };
    return this.leads.names;
  }

  // Loads new runs and steps. A view of a run's last step moves to its new last step.
  async #refresh() {
    if (document.hidden || !innerWidth) return; // another tab is open
    const known = JSON.stringify([this.runs, this.source]);
    let lost = "";
    const runs = await this.source.runs().catch((error) => void (lost = error.message));
    if (lost !== this.lost) this.say(lost);
    this.lost = lost;
    if (runs) this.notes.show(this.source.notes);
    if (!runs || JSON.stringify([runs, this.source]) === known) return;
    const before = this.runs;
    this.runs = runs;
    if (!this.state || !Object.keys(runs).length) return location.reload(); // the first runs appeared, or all are gone
    const moved = (view) => {
      const wasLast = view.step === before[view.run][view.tag].at(-1);
      return nearest(runs, wasLast ? { ...view, step: null } : view);
    };
    const { one, two } = this.state;
    const gone = [one, two].filter((view) => view && !Object.hasOwn(runs, view.run));
    await this.set({ one: moved(one), two: two && moved(two) });
    if (gone.length) this.notice.textContent = `${gone[0].run} is no longer in the log.`;
  }
}
