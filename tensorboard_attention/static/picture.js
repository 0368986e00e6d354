// The map of one head: queries in rows, keys in columns, with as many token labels as fit. It can be
// zoomed and panned; hovering over a cell shows its weight.

import { el, tokenLabel } from "./dom.js";
import { ZOOM } from "./controls.js";
import { strike } from "./broken.js";

const LABEL = 13; // pixels per label
const FONT = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
const WIDEST = 120; // pixels of a label; canvases condense wider ones
const EDGE = 7; // pixels beyond the map, for half a label
const LEAST_FRAMED = 3; // pixels of a cell
const BESIDE = 300; // pixels of the screen's height for what is above and below the map
const [SMALLEST, LARGEST] = [240, 640]; // pixels of the map's longer side, if it is as wide

export class Picture {
  // point(token, cell): the pointer is over the row of this token and over the cell {query, key};
  // null if it is over none. Over a label of cross attention, which has no such cell, query or key is
  // -1. pick(token, cell): the cell was clicked. moved(): the viewport has changed.
  constructor(viewport, { point, pick, moved }) {
    Object.assign(this, { viewport, point, pick, moved });
    this.canvas = el("canvas", { class: "picture", role: "img" });
    this.readout = el("p", { class: "readout small" });
    this.node = el("div", { class: "map" }, this.canvas, this.readout);
    this.pointers = new Map();
    const types = ["down", "move", "up", "cancel", "leave"].map((each) => `pointer${each}`);
    for (const type of [...types, "wheel", "dblclick"])
      this.canvas.addEventListener(type, (event) => this[`_${type}`](event), { passive: false });
  }

  // outlined: [query, key] of cells.
  show(maps, layer, head, focus, cell, palette, outlined = []) {
    Object.assign(this, { maps, focus, cell, palette, outlined, headIndex: maps.headIndex(layer, head) });
    this.broken = !maps.isFinite(layer, head);
    this.canvas.setAttribute(
      "aria-label",
      `Attention map of layer ${layer}, head ${head}: queries in rows, keys in columns`,
    );
    if (this.labelled !== maps.texts) {
      this.labelled = maps.texts;
      this.labels = maps.texts.map((token) => tokenLabel(token, 12));
      const pen = this.canvas.getContext("2d");
      pen.font = FONT;
      const widest = this.labels.reduce((most, label) => Math.max(most, pen.measureText(label).width), 0);
      this.margin = 8 + Math.min(WIDEST, Math.ceil(widest));
    }
    this.draw();
  }

  draw() {
    const wide = this.node.clientWidth;
    if (!this.maps || !wide) return;
    const { n, m } = this.maps;
    // Cells are squares, unless a row or column would then be too thin for its label.
    const tall = Math.max(SMALLEST, innerHeight - BESIDE - this.margin - EDGE);
    const room = Math.max(80, Math.min(wide - this.margin - EDGE, tall, LARGEST));
    const along = (count) =>
      Math.max((room * count) / Math.max(n, m), Math.min(room, count * LABEL));
    [this.wide, this.high] = [along(m), along(n)];
    const ratio = devicePixelRatio;
    const total = [this.wide, this.high].map((each) => each + this.margin + EDGE);
    for (const [i, name] of ["width", "height"].entries()) {
      const pixels = Math.round(total[i] * ratio);
      if (this.canvas[name] === pixels) continue;
      this.canvas[name] = pixels;
      this.canvas.style[name] = `${total[i]}px`;
    }
    this.canvas.classList.toggle("zoomed", this.viewport.zoom > 1); // touch then pans instead of scrolling
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.palette.ground;
    pen.fillRect(0, 0, ...total);
    const { x, y, zoom } = this.viewport;
    // Cells per pixel, in each direction.
    const across = Math.ceil(m / zoom / (this.wide * ratio));
    const down = Math.ceil(n / zoom / (this.high * ratio));
    const cells = canvasOf(this.maps.image(this.headIndex, across, down, this.palette));
    const [w, h] = [m / across, n / down];
    pen.imageSmoothingEnabled = false;
    const from = [x * w, y * h, w / zoom, h / zoom];
    const at = [this.margin, this.margin, this.wide, this.high];
    pen.drawImage(cells, ...from, ...at);
    if (this.broken) strike(pen, this.palette.from, ...at);
    this.#drawFocus(pen);
    this.#drawLabels(pen);
    this.#describe();
  }

  // Where rows and columns are: their number and size, the first visible one, and the labels.
  #axes() {
    const { n, m, cross } = this.maps;
    const { x, y, zoom } = this.viewport;
    const { labels } = this;
    return {
      rows: { count: n, first: y * n, cell: (this.high * zoom) / n, size: this.high, labels },
      columns: {
        count: m,
        first: x * m,
        cell: (this.wide * zoom) / m,
        size: this.wide,
        labels: cross ? labels.slice(n) : labels,
      },
    };
  }

  #drawFocus(pen) {
    const { rows, columns } = this.#axes();
    pen.save();
    pen.beginPath();
    pen.rect(this.margin - 1, this.margin - 1, this.wide + 2, this.high + 2);
    pen.clip();
    pen.lineWidth = 1.5;
    const at = ({ first, cell }, place) => this.margin + (place - first) * cell;
    this.#outline(pen, (place) => at(rows, place), (place) => at(columns, place), rows.cell, columns.cell);
    const query = this.maps.query(this.focus);
    const key = this.maps.key(this.focus);
    if (query >= 0) {
      pen.strokeStyle = this.palette.to;
      pen.strokeRect(this.margin, at(rows, query), this.wide, rows.cell);
      if (this.cell?.key >= 0)
        pen.strokeRect(at(columns, this.cell.key), this.margin, columns.cell, this.high);
    }
    if (key >= 0 && !this.cell) {
      pen.strokeStyle = this.palette.from;
      pen.setLineDash([4, 3]);
      pen.strokeRect(at(columns, key), this.margin, columns.cell, this.high);
    }
    if (this.cell?.query >= 0 && this.cell.key >= 0)
      this.#markCell(pen, at(columns, this.cell.key), at(rows, this.cell.query), rows, columns);
    pen.restore();
    pen.strokeStyle = this.palette.line;
    pen.strokeRect(this.margin - 0.5, this.margin - 0.5, this.wide + 1, this.high + 1);
  }

  // A frame around each of the cells that earn the head its name; none where they would be all frame.
  #outline(pen, top, left, high, wide) {
    if (Math.min(high, wide) < LEAST_FRAMED) return;
    pen.strokeStyle = this.palette.to;
    pen.lineWidth = 2;
    for (const [query, key] of this.outlined) pen.strokeRect(left(key), top(query), wide, high);
    pen.lineWidth = 1.5;
  }

  // A frame around the cell, in two colours that are seen on any third.
  #markCell(pen, x, y, rows, columns) {
    pen.setLineDash([]);
    for (const [colour, out] of [
      [this.palette.ink, 1],
      [this.palette.ground, 2.5],
    ]) {
      pen.strokeStyle = colour;
      pen.strokeRect(x - out, y - out, columns.cell + 2 * out, rows.cell + 2 * out);
    }
  }

  // Labels as many tokens as fit, always including the one in focus.
  #drawLabels(pen) {
    const { rows, columns } = this.#axes();
    const along = ({ count, first, cell, size, labels }, focused, drawAt) => {
      const every = Math.max(1, Math.ceil(LABEL / cell));
      for (let place = Math.floor(first); place < Math.min(count, first + size / cell); place++) {
        const at = this.margin + (place - first + 0.5) * cell;
        if (at < this.margin || at > this.margin + size) continue;
        const near = focused >= 0 && place !== focused && Math.abs(place - focused) * cell < LABEL;
        if (place !== focused && (near || place % every)) continue;
        pen.font = place === focused ? `bold ${FONT}` : FONT;
        pen.fillStyle = place === focused ? this.palette.ink : this.palette.quiet;
        drawAt(labels[place], at);
      }
    };
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    along(rows, this.cell?.query ?? this.maps.query(this.focus), (label, at) =>
      pen.fillText(label, this.margin - 5, at, WIDEST),
    );
    pen.textAlign = "left";
    along(columns, this.cell?.key ?? this.maps.key(this.focus), (label, at) => {
      pen.save();
      pen.translate(at, this.margin - 5);
      pen.rotate(-Math.PI / 2);
      pen.fillText(label, 0, 0, WIDEST);
      pen.restore();
    });
  }

  #describe() {
    const { n, m, cross } = this.maps;
    const { query = -1, key = -1 } = this.cell ?? {};
    // In a comparison, the cell may be from a longer text.
    if (query < 0 || key < 0 || query >= n || key >= m) {
      this.readout.textContent = "Row: the token that attends. Column: the token it attends to.";
      return;
    }
    const what = this.maps.describe(this.headIndex, query, key);
    const attended = this.labels[cross ? n + key : key];
    this.readout.textContent = `${query} ${this.labels[query]} → ${key} ${attended}: ${what}`;
  }

  // The pointer's position, as fractions of the visible part.
  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left - this.margin) / this.wide,
      y: (event.clientY - box.top - this.margin) / this.high,
    };
  }

  #cellAt(event) {
    const { n, m, cross } = this.maps;
    const at = this.#at(event);
    const query = Math.floor((this.viewport.y + at.y / this.viewport.zoom) * n);
    const key = Math.floor((this.viewport.x + at.x / this.viewport.zoom) * m);
    // Over a label: the row or column of its token.
    if (at.x < 0 && at.y >= 0 && at.y < 1) return { query, key: cross ? -1 : query };
    if (at.y < 0 && at.x >= 0 && at.x < 1) return { query: cross ? -1 : key, key };
    return at.x >= 0 && at.x < 1 && at.y >= 0 && at.y < 1 ? { query, key } : null;
  }

  // The token of the row that a cell is in; of a label of a key, that key.
  #tokenOf({ query, key }) {
    return query < 0 ? this.maps.n + key : query;
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
    if (others.length === 1 || this.viewport.zoom > 1) this.moved();
  }

  _pointerup(event) {
    this.pointers.delete(event.pointerId);
    const cell = this.#cellAt(event);
    if (this.dragged || !cell) return;
    this.pick(this.#tokenOf(cell), cell);
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
    this.point(cell ? this.#tokenOf(cell) : null, cell);
  }
}

function canvasOf(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
