// The map of one head: queries in rows, keys in columns, with as many token labels as fit. It can be
// zoomed and panned; hovering over a cell shows its weight.

import { el, formatNumber, tokenLabel } from "./dom.js";
import { ZOOM } from "./controls.js";

const LABEL = 12; // pixels per label
const FONT = '11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const EDGE = 7; // pixels beyond the map, for half a label

// The visible part of a map, shared by pictures side by side. x, y: the first visible key and query,
// as fractions of all.
export class Viewport {
  zoom = 1;
  x = 0;
  y = 0;

  // Zoom by a factor around a point, given as fractions of the visible part.
  by(factor, at = { x: 0.5, y: 0.5 }, most = 64) {
    const zoom = Math.min(most, Math.max(1, this.zoom * factor));
    this.pan(at.x / this.zoom - at.x / zoom, at.y / this.zoom - at.y / zoom, zoom);
  }

  pan(x, y, zoom = this.zoom) {
    this.zoom = zoom;
    const inside = (value) => Math.min(1 - 1 / zoom, Math.max(0, value));
    this.x = inside(this.x + x);
    this.y = inside(this.y + y);
  }

  // Zoom at a point, given as fractions of all. Zooming in centres it if it is not visible.
  towards(factor, { x, y }) {
    const at = () => ({ x: (x - this.x) * this.zoom, y: (y - this.y) * this.zoom });
    const seen = () => Object.values(at()).every((each) => each >= 0 && each <= 1);
    if (factor > 1 && !seen())
      this.pan(x - 0.5 / this.zoom - this.x, y - 0.5 / this.zoom - this.y);
    this.by(factor, seen() ? at() : undefined);
  }

  // Centre a query, given as a fraction of all, if it is not visible.
  reveal(y) {
    if (y < this.y || y > this.y + 1 / this.zoom) this.pan(0, y - 0.5 / this.zoom - this.y);
  }
}

export class Picture {
  // point(token, cell): the pointer is over the row of this query and over the cell {query, key};
  // null if it is over none. pick(token, cell): it was clicked. moved(): the viewport has changed.
  constructor(viewport, { point, pick, moved }) {
    Object.assign(this, { viewport, point, pick, moved });
    this.canvas = el("canvas", { class: "picture", role: "img" });
    this.readout = el("p", { class: "readout" });
    this.node = el("div", {}, this.canvas, this.readout);
    this.pointers = new Map();
    for (const type of [
      "pointerdown",
      "pointermove",
      "pointerup",
      "pointercancel",
      "pointerleave",
      "wheel",
      "dblclick",
    ]) {
      this.canvas.addEventListener(type, (event) => this[`_${type}`](event), { passive: false });
    }
  }

  show(maps, layer, head, focus, cell, palette) {
    Object.assign(this, { maps, focus, cell, palette, headIndex: maps.headIndex(layer, head) });
    this.canvas.setAttribute(
      "aria-label",
      `Attention map of layer ${layer}, head ${head}: queries in rows, keys in columns`,
    );
    if (this.labelled !== maps.tokens) {
      this.labelled = maps.tokens;
      this.labels = maps.tokens.map((token) => tokenLabel(token, 12));
      this.margin = 8 + 6.7 * Math.max(...this.labels.map((label) => Array.from(label).length));
    }
    this.draw();
  }

  draw() {
    const wide = this.node.clientWidth;
    if (!this.maps || !wide) return;
    this.side = Math.max(80, Math.min(wide - this.margin - EDGE, 640));
    const total = this.side + this.margin + EDGE;
    const ratio = devicePixelRatio;
    if (this.canvas.width !== Math.round(total * ratio)) {
      this.canvas.width = this.canvas.height = Math.round(total * ratio);
      this.canvas.style.width = this.canvas.style.height = `${total}px`;
    }
    this.canvas.classList.toggle("zoomed", this.viewport.zoom > 1); // touch then pans instead of scrolling
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, total, total);
    const { n } = this.maps;
    const seen = n / this.viewport.zoom;
    const block = Math.ceil(seen / (this.side * ratio)); // cells per pixel, in each direction
    const cells = canvasOf(this.maps.image(this.headIndex, block, this.palette));
    pen.imageSmoothingEnabled = false;
    const [x, y, part] = [this.viewport.x * n, this.viewport.y * n, seen].map(
      (each) => each / block,
    );
    pen.drawImage(cells, x, y, part, part, this.margin, this.margin, this.side, this.side);
    this.#drawFocus(pen, seen);
    this.#drawLabels(pen, seen);
    this.#describe();
  }

  #drawFocus(pen, seen) {
    const { n } = this.maps;
    const cell = this.side / seen;
    pen.save();
    pen.beginPath();
    pen.rect(this.margin - 1, this.margin - 1, this.side + 2, this.side + 2);
    pen.clip();
    pen.lineWidth = 1.5;
    const bar = (place, first, down) => {
      const at = this.margin + (place - first * n) * cell;
      pen.strokeRect(
        ...(down ? [at, this.margin, cell, this.side] : [this.margin, at, this.side, cell]),
      );
    };
    if (this.focus >= 0 && this.focus < n) {
      pen.strokeStyle = this.palette.to;
      bar(this.focus, this.viewport.y, false);
      if (this.cell) bar(this.cell.key, this.viewport.x, true);
    }
    if (this.focus >= 0 && this.focus < n && !this.cell) {
      pen.strokeStyle = this.palette.from;
      pen.setLineDash([4, 3]);
      bar(this.focus, this.viewport.x, true);
    }
    if (this.cell) this.#markCell(pen, cell);
    pen.restore();
    pen.strokeStyle = this.palette.line;
    pen.strokeRect(this.margin - 0.5, this.margin - 0.5, this.side + 1, this.side + 1);
  }

  // A frame around the cell, in two colours that are seen on any third.
  #markCell(pen, side) {
    const { n } = this.maps;
    const x = this.margin + (this.cell.key - this.viewport.x * n) * side;
    const y = this.margin + (this.cell.query - this.viewport.y * n) * side;
    pen.setLineDash([]);
    for (const [colour, out] of [
      [this.palette.ink, 1],
      [this.palette.ground, 2.5],
    ]) {
      pen.strokeStyle = colour;
      pen.strokeRect(x - out, y - out, side + 2 * out, side + 2 * out);
    }
  }

  // Labels as many tokens as fit, always including the one in focus.
  #drawLabels(pen, seen) {
    const { n } = this.maps;
    const cell = this.side / seen;
    const every = Math.max(1, Math.ceil(LABEL / cell));
    const along = (first, focused, drawAt) => {
      for (let place = Math.floor(first * n); place < Math.min(n, first * n + seen); place++) {
        const at = this.margin + (place - first * n + 0.5) * cell;
        if (at < this.margin || at > this.margin + this.side) continue;
        const near = focused >= 0 && place !== focused && Math.abs(place - focused) * cell < LABEL;
        if (place !== focused && (near || place % every)) continue;
        pen.font = place === focused ? `bold ${FONT}` : FONT;
        pen.fillStyle = place === focused ? this.palette.ink : this.palette.quiet;
        drawAt(this.labels[place], at);
      }
    };
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    along(this.viewport.y, this.cell?.query ?? this.focus, (label, at) =>
      pen.fillText(label, this.margin - 5, at),
    );
    pen.textAlign = "left";
    along(this.viewport.x, this.cell?.key ?? this.focus, (label, at) => {
      pen.save();
      pen.translate(at, this.margin - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(label, 0, 0);
      pen.restore();
    });
  }

  #describe() {
    const { n } = this.maps;
    // In a comparison, the cell may be from a longer text.
    if (!this.cell || this.cell.query >= n || this.cell.key >= n) {
      this.readout.textContent = "Row: the token that attends. Column: the token it attends to.";
      return;
    }
    const { query, key } = this.cell;
    const weight = this.maps.weight(this.headIndex, query, key);
    const what = weight == null ? "a future token, which it cannot attend to" : formatNumber(weight);
    this.readout.textContent = `${query} ${this.labels[query]} → ${key} ${this.labels[key]}: ${what}`;
  }

  // The pointer's position, as fractions of the visible part.
  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left - this.margin) / this.side,
      y: (event.clientY - box.top - this.margin) / this.side,
    };
  }

  #cellAt(event) {
    const { n } = this.maps;
    const at = this.#at(event);
    const query = Math.floor((this.viewport.y + at.y / this.viewport.zoom) * n);
    const key = Math.floor((this.viewport.x + at.x / this.viewport.zoom) * n);
    // Over a label: the row or column of its token.
    if (at.x < 0 && at.y >= 0 && at.y < 1) return { query, key: query };
    if (at.y < 0 && at.x >= 0 && at.x < 1) return { query: key, key };
    return at.x >= 0 && at.x < 1 && at.y >= 0 && at.y < 1 ? { query, key } : null;
  }

  _pointerdown(event) {
    this.pointers.set(event.pointerId, event);
    this.dragged = this.pointers.size > 1;
    this.canvas.setPointerCapture(event.pointerId);
  }

  // A pressed pointer pans a zoomed map, two pinch; a pointer that is not pressed hovers.
  _pointermove(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.#point(this.#cellAt(event));
    const from = this.#at(before);
    const to = this.#at(event);
    const others = [...this.pointers.values()].filter((each) => each.pointerId !== event.pointerId);
    if (
      Math.hypot(event.clientX - before.clientX, event.clientY - before.clientY) < 3 &&
      !this.dragged
    )
      return;
    if (others.length === 1) {
      const other = this.#at(others[0]);
      const spread = (at) => Math.hypot(at.x - other.x, at.y - other.y) || 1e-3;
      this.viewport.by(spread(to) / spread(from), {
        x: (to.x + other.x) / 2,
        y: (to.y + other.y) / 2,
      });
    } else if (this.viewport.zoom > 1) {
      this.viewport.pan((from.x - to.x) / this.viewport.zoom, (from.y - to.y) / this.viewport.zoom);
    }
    this.dragged = true;
    this.pointers.set(event.pointerId, event);
    this.moved();
  }

  _pointerup(event) {
    this.pointers.delete(event.pointerId);
    const cell = this.#cellAt(event);
    if (this.dragged || !cell) return;
    this.pick(cell.query, cell);
  }

  _pointercancel(event) {
    this.pointers.delete(event.pointerId);
  }

  _pointerleave(event) {
    if (event.pointerType === "mouse") this.#point(null);
  }

  _wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    this.viewport.by(Math.exp(-event.deltaY / 200), this.#at(event));
    this.moved();
  }

  _dblclick(event) {
    this.viewport.by(ZOOM * ZOOM, this.#at(event));
    this.moved();
  }

  #point(cell) {
    if (cell?.query === this.cell?.query && cell?.key === this.cell?.key) return;
    this.point(cell ? cell.query : null, cell);
  }
}

function canvasOf(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
