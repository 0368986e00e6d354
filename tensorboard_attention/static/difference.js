// What a comparison adds: a map of the differences.

import { el } from "./dom.js";
import { weightText } from "./broken.js";
import { tickText } from "./colours.js";
import { haveSameText } from "./maps.js";
import { Picture } from "./picture.js";
import { saveButtons } from "./save.js";
import { ramp } from "./theme.js";

const SIGNED_TICKS = [-1, -0.25, -0.05, 0, 0.05, 0.25, 1];
const UNKNOWN = "Weights that are not finite (NaN) have no difference.";
const signed = (value, text) => `${value < 0 ? "−" : "+"}${text}`;

// The weights of one view minus those of another. A picture shows it in place of Maps.
export class Difference {
  constructor(one, two) {
    const { tokens, keys, texts, cross, n, m } = one;
    Object.assign(this, { one, two, tokens, keys, texts, cross, n, m });
  }

  // The head of the second view that is compared with a head of the first.
  twinOf = (layer, head) => [layer, head];

  query(token) {
    return this.one.query(token);
  }

  key(token) {
    return this.one.key(token);
  }

  // Why two views have no difference, or "".
  static obstacle(one, two, [layer, head]) {
    if (!haveSameText(one, two)) return "Only maps of the same text have a difference.";
    return head < (two.header.heads[layer] ?? 0) ? "" : "The other model does not have this head.";
  }

  // Of both, as the two may have other heads before this one.
  headIndex(layer, head) {
    return [this.one.headIndex(layer, head), this.two.headIndex(...this.twinOf(layer, head))];
  }

  isFinite(layer, head) {
    return this.one.isFinite(layer, head) && this.two.isFinite(...this.twinOf(layer, head));
  }

  // Null for later keys in causal maps; NaN where a weight was not finite.
  weight([one, two], query, key) {
    const weights = [this.one.weight(one, query, key), this.two.weight(two, query, key)];
    return weights.every((each) => each == null) ? null : weights[0] - weights[1];
  }

  describe(heads, query, key) {
    const weights = [this.one, this.two].map((maps, i) => maps.weight(heads[i], query, key) ?? 0);
    const difference = weights[0] - weights[1];
    const [one, two, apart] = [...weights, Math.abs(difference)].map(weightText);
    return `${one} − ${two} = ${Number.isNaN(difference) ? apart : signed(difference, apart)}`;
  }

  // Each pixel shows the largest difference in a block of cells.
  image(heads, across, down, palette) {
    const [wide, high] = [Math.ceil(this.m / across), Math.ceil(this.n / down)];
    const largest = new Float32Array(wide * high).fill(NaN);
    const lost = [this.one, this.two].map((maps, i) => maps.lostIn(heads[i]));
    for (let query = 0; query < this.n; query++) {
      const [losesOne, losesTwo] = lost.map((queries) => queries?.has(query));
      const [one, ones] = this.one.row(heads[0], query);
      const [two, twos] = this.two.row(heads[1], query);
      const line = Math.floor(query / down) * wide;
      for (let key = 0; key < Math.max(ones, twos); key++) {
        const first = key < ones ? this.one.bytes[one + key] : 0;
        const second = key < twos ? this.two.bytes[two + key] : 0;
        if ((losesOne && !first && key < ones) || (losesTwo && !second && key < twos)) continue;
        const value = (first ** 2 - second ** 2) / 255 ** 2;
        const at = line + Math.floor(key / across);
        if (!(Math.abs(value) <= Math.abs(largest[at]))) largest[at] = value;
      }
    }
    const image = new ImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = Number.isNaN(largest[i]) ? palette.future : shade(largest[i], palette);
    return image;
  }

  legend({ diverging }) {
    const text = (value) => (value ? signed(value, tickText(Math.abs(value))) : "0");
    const ticks = SIGNED_TICKS.map((value) => [onScale(value), text(value)]);
    return { colours: diverging, ticks, title: "difference" };
  }

  get columns() {
    return ["weight", "compared_with", "difference"];
  }

  values(heads, query, key) {
    if (this.weight(heads, query, key) == null) return null;
    const [one, two] = [this.one, this.two].map((each, i) => each.weight(heads[i], query, key) ?? 0);
    return [one, two, one - two];
  }
}

// Where a difference is on its scale, from 0 to 1: by the root, as weights are on theirs.
function onScale(value) {
  return (1 + Math.sign(value) * Math.sqrt(Math.abs(value))) / 2;
}

function shade(value, { diverging }) {
  return diverging[Math.round(onScale(value) * (diverging.length - 1))];
}

// Beside the two views: their difference, with the legend and the numbers of the cell.
export class DifferencePanel {
  constructor(viewport, { point, pick, moved }, name) {
    this.title = el("h2");
    this.note = el("p", { class: "note small" });
    this.picture = new Picture(viewport, { point, pick, moved });
    this.more = el("p", { class: "more apart small" });
    this.scale = el("div", { class: "scale small" });
    this.shown = el("div", {}, this.picture.node, this.scale, this.more);
    this.save = saveButtons(this.picture, name);
    this.view = el("div", { class: "view" }, el("div", { class: "heading apart" }, this.title, this.save), this.note, this.shown);
    this.node = el("section", { class: "panel difference" }, this.view);
  }

  // names: how the two views are told apart. twin: the head of the second view.
  show([one, two], names, { layer, head }, twin, focus, cell, palette) {
    const other = twin[0] === layer && twin[1] === head ? "" : ` L${twin[0]}H${twin[1]} ·`;
    this.title.textContent = `L${layer}H${head} · ${names[0]} minus${other} ${names[1]}`;
    const obstacle = Difference.obstacle(one, two, twin);
    if (this.maps?.one !== one || this.maps.two !== two) this.maps = new Difference(one, two);
    this.maps.twinOf = () => twin;
    this.note.textContent = obstacle || (this.maps.isFinite(layer, head) ? "" : UNKNOWN);
    this.shown.hidden = obstacle !== "";
    this.save.hidden = obstacle !== "";
    if (obstacle) return;
    this.picture.show(this.maps, layer, head, focus, cell, palette);
    const scale = this.maps.legend(palette);
    this.scale.replaceChildren(ramp(scale));
    const texts = [`← more in ${names[1]}`, scale.title, `more in ${names[0]} →`];
    this.more.replaceChildren(...texts.map((text) => el("span", {}, text)));
  }

  draw() {
    this.picture.draw();
  }
}
