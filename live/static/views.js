// The maps of the text at hand, with exact weights, in one of the views: weights; weights times the
// norm of what is moved; scores before the softmax. The text below a map always shows shares: in the
// view of what is moved, those of all that is moved to a token.

import { formatNumber } from "./dom.js";
import { onScale } from "./difference.js";
import { Maps } from "./maps.js";

// The name of each view, what it means, and the title of its legend.
export const VIEWS = {
  weights: ["weights", "How each token shares out its attention.", "Attention weight"],
  moved: [
    "weights × what is moved",
    "Attention that rests on a token of which the head moves little fades; what is left is moved.",
    "Weight × norm of what is moved",
  ],
  scores: [
    "scores before softmax",
    "How well each token matches, before the softmax turns the scores of a row into shares.",
    "Score before softmax",
  ],
};
const MARKS = [0, 0.05, 0.25, 0.5, 1]; // of the largest value, in the legend
const SIGNED_MARKS = [-1, -0.25, 0, 0.25, 1];

export class LiveMaps extends Maps {
  // weights: of all heads, one triangle after the other. view, values: what is shown of them.
  constructor(header, weights, view = "weights", values = weights) {
    super({ ...header, causal: true, not_finite: brokenHeads(header, weights) });
    Object.assign(this, { weights, view, shown: values });
    this.bytes = Uint8Array.from(weights, (each) => Math.round(255 * root(Math.min(1, each))));
    this.columns = view === "weights" ? ["weight"] : ["weight", view === "moved" ? "moved" : "score"];
    if (view !== "weights") this.#shade();
  }

  // Where each value is on the scale of the view.
  #shade() {
    this.signed = this.view === "scores";
    this.largest = this.shown.reduce((most, each) => Math.max(most, Math.abs(each) || 0), 0) || 1;
    const place = this.signed
      ? (value) => 510 * onScale(value / this.largest)
      : (value) => 255 * root(value / this.largest);
    this.places = Uint16Array.from(this.shown, (value) => Math.round(place(value)));
  }

  // A share of the row, for the text and its lines.
  weight(headIndex, query, key) {
    if (key > query) return null;
    const [start, length] = this.row(headIndex, query);
    if (this.view !== "moved") return this.weights[start + key];
    const all = this.shown.subarray(start, start + length).reduce((sum, each) => sum + each, 0);
    return all ? this.shown[start + key] / all : 0;
  }

  isWhole(headIndex, query) {
    const [start, length] = this.row(headIndex, query);
    return this.weights.subarray(start, start + length).every((each) => !Number.isNaN(each));
  }

  describe(headIndex, query, key) {
    const values = this.values(headIndex, query, key);
    if (!values) return super.describe(headIndex, query, key);
    const [weight, value] = values;
    if (this.view === "moved") return `${exact(value)} moved, at a weight of ${exact(weight)}`;
    return this.view === "scores" ? `score ${exact(value)}, weight ${exact(weight)}` : exact(weight);
  }

  values(headIndex, query, key) {
    if (key > query) return null;
    const at = this.row(headIndex, query)[0] + key;
    return this.view === "weights" ? [this.weights[at]] : [this.weights[at], this.shown[at]];
  }

  legend(palette) {
    const [, , title] = VIEWS[this.view];
    if (this.view === "weights") return super.legend(palette);
    const marks = this.signed ? SIGNED_MARKS : MARKS;
    return {
      colours: this.signed ? palette.diverging : palette.colours,
      ticks: marks.map((each) => [
        this.signed ? onScale(each) : Math.sqrt(each),
        each ? (each * this.largest).toPrecision(2).replace("-", "−") : "0",
      ]),
      title,
    };
  }

  // Each pixel shows the value of a block of cells that is furthest from zero.
  image(headIndex, across, down, palette) {
    if (this.view === "weights") return super.image(headIndex, across, down, palette);
    const [wide, high] = [Math.ceil(this.m / across), Math.ceil(this.n / down)];
    const zero = this.signed ? 255 : 0;
    const found = new Int16Array(wide * high).fill(-1);
    for (let query = 0; query < this.n; query++) {
      const [start, length] = this.row(headIndex, query);
      const line = Math.floor(query / down) * wide;
      for (let key = 0; key < length; key++) {
        if (Number.isNaN(this.shown[start + key])) continue;
        const at = line + Math.floor(key / across);
        const place = this.places[start + key];
        if (found[at] < 0 || Math.abs(place - zero) > Math.abs(found[at] - zero)) found[at] = place;
      }
    }
    const colours = this.signed ? palette.diverging : palette.colours;
    const image = new ImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = found[i] < 0 ? palette.future : colours[found[i]];
    return image;
  }
}

function brokenHeads({ tokens, heads }, weights) {
  const size = (tokens.length * (tokens.length + 1)) / 2;
  const found = [];
  let at = 0;
  heads.forEach((count, layer) => {
    for (let head = 0; head < count; head++, at += size)
      if (!weights.subarray(at, at + size).every(Number.isFinite)) found.push([layer, head]);
  });
  return found;
}

function root(value) {
  return Math.sqrt(Math.max(0, value));
}

function exact(value) {
  return Number.isNaN(value) ? "not finite" : Math.abs(value) >= 0.001 || !value ? formatNumber(value) : value.toExponential(1);
}
