// What the tab and the live page have in common: a head, a token and a cell of maps are chosen, and the
// parts of the page show them. A page has `main`, `host`, `state`, `maps`, `address`, `opening`, and `steps`, a Picker.

import { Choice } from "./choice.js";
import { ZoomButtons } from "./controls.js";
import { DifferencePanel } from "./difference.js";
import { bring, el, whiteSpaceKey } from "./dom.js";
import { Grid } from "./grid.js";
import { onKey } from "./keys.js";
import { changesOf, overviewOf, roleOf } from "./naming.js";
import { Panel } from "./panel.js";
import { followTheme, kindsKey, legend } from "./theme.js";
import { Viewport } from "./viewport.js";

export class Inspector {
  viewport = new Viewport();
  choice = new Choice();
  turn = 0; // of several calls, only the newest draws

  // The events that a picture or a text reports to the page.
  acts = {
    point: (token, cell = null) => this.hover(token ?? -1, cell),
    pick: (token, cell) => this.pick(token, cell),
    moved: () => this.zoom(1),
  };

  // The parts that both have. count: of views side by side. toggle(layer, head): switches a head off,
  // or on. `fileName(which)` is of what is saved of a view, or of the difference (2).
  build(count, toggle = null) {
    const panel = (_, which) => new Panel(this.viewport, this.acts, () => this.fileName(which));
    this.panels = Array.from({ length: count }, panel);
    this.difference = new DifferencePanel(this.viewport, this.acts, () => this.fileName(2));
    this.buttons = new ZoomButtons((factor) => this.zoom(factor));
    this.grid = new Grid((layer, head) => this.turnTo([layer, head]), toggle);
    this.overview = el("p", { class: "overview" });
    this.changes = el("p", { class: "changes small" });
    this.kinds = kindsKey();
    this.legend = el("div", { class: "scale small", "aria-hidden": "true" });
    this.spaces = el("p", { class: "small" });
    this.notice = el("p", { class: "notice", role: "status" });
  }

  drawHeads(isOff) {
    const { first, palette, state } = this;
    this.overview.textContent = overviewOf(first);
    this.changes.textContent = changesOf(first);
    this.kinds.hidden = !first.heads().some((each) => roleOf(first, ...each)[1]);
    this.grid.show([this.maps].flat(), state, palette, isOff);
    this.legend.replaceChildren(...legend(first.legend(palette), palette));
    this.spaces.textContent = whiteSpaceKey(first.texts);
  }

  // The maps whose heads are shown.
  get first() {
    return [this.maps].flat()[0];
  }

  follow() {
    followTheme(this.host, (palette) => {
      this.palette = palette;
      if (this.maps) this.draw();
    });
  }

  // keys: what keys of this page alone do.
  listen(keys) {
    const redraw = () => this.#pictures.forEach((panel) => panel.draw());
    addEventListener("keydown", (event) => this.maps && onKey(event, this, keys));
    new ResizeObserver(redraw).observe(this.main);
    addEventListener("resize", redraw);
  }

  get #pictures() {
    return [this.difference, ...this.panels];
  }

  say(text) {
    if (this.notice) this.notice.textContent = text;
  }

  change(part) {
    Object.assign(this.state, part);
    if ("token" in part) this.opening.chosen();
    if ("head" in part) this.opening.chosenHead();
    if (part.token >= 0) this.viewport.reveal(this.first, part.token);
  }

  hover(token, cell) {
    this.choice.hover(token, cell);
    this.drawHead();
  }

  pick(token, cell = null) {
    this.choice.pick(cell);
    return this.set({ token });
  }

  // Its map comes into view.
  async turnTo([layer, head]) {
    const last = this.first.header.heads.length - 1;
    await this.set({ layer: Math.min(last, Math.max(0, layer)), head });
    this.grid.focus(this.state);
    const { view, picture } = this.main.classList.contains("differing") ? this.difference : this.panels[0];
    bring(view, picture.node);
  }

  // What a link keeps of the zoom: the whole map too, but nothing until one zooms.
  get place() {
    const { zoom, x, y } = this.viewport;
    return this.zoomed ? [zoom, x, y] : undefined;
  }

  set place(place) {
    this.zoomed = Boolean(place);
    this.viewport.restore(place);
  }

  // In or out at the cell or token that is chosen; 1: the viewport has changed by itself.
  zoom(factor) {
    this.zoomed = true;
    if (factor !== 1) this.choice.zoom(this.viewport, factor, this.state.token, this.first);
    this.#pictures.forEach(({ picture }) => picture.draw());
    this.buttons.show(this.viewport);
    this.address.follow();
  }
}
