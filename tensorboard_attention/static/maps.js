// The attention maps of one probe at one step, for all heads: one byte per weight, as packed by
// summary.py.

import { weightText } from "./broken.js";
import { TICKS, tickText } from "./colours.js";

const MOST_WEIGHTS = 512e6; // of one step; more than that would be too much for a page

export class Maps {
  evidence = null; // what the heads of this model do over many texts (evidence.py), if that is known
  earlier = null; // {step, header, evidence} of the logged step before

  // bytes: count * size of them, set once they are inflated.
  constructor(header) {
    this.header = header;
    this.tokens = header.tokens;
    this.n = header.tokens.length; // queries
    // Keys are the same tokens, except in cross attention. There, tokens are counted on: the first key
    // is the token after the last query.
    this.cross = header.keys !== undefined;
    this.keys = header.keys ?? header.tokens;
    this.m = this.keys.length;
    this.texts = this.cross ? [...header.tokens, ...header.keys] : header.tokens;
    this.size = header.causal ? (this.n * (this.n + 1)) / 2 : this.n * this.m;
    this.count = header.heads.reduce((sum, heads) => sum + heads, 0);
    if (!(this.count * this.size <= MOST_WEIGHTS))
      throw new Error(
        `The maps of this step are too large: ${this.count} heads with ${this.texts.length} tokens.`,
      );
    const broken = header.not_finite ?? [];
    this.broken = new Set(broken.map(([layer, head]) => this.headIndex(layer, head)));
    this.lost = new Map(); // what lostIn found
  }

  // The row of a token, and its column; -1 if it has none.
  query(token) {
    return token < this.n ? token : -1;
  }

  key(token) {
    const key = this.cross ? token - this.n : token;
    return key < this.m ? Math.max(-1, key) : -1;
  }

  // Where a token is in its text.
  placeOf(token) {
    return token < this.n ? token : token - this.n;
  }

  // The index of a head among the heads of all layers.
  headIndex(layer, head) {
    return this.header.heads.slice(0, layer).reduce((sum, heads) => sum + heads, 0) + head;
  }

  // [layer, head] of every head.
  heads() {
    return this.header.heads.flatMap((heads, layer) =>
      Array.from({ length: heads }, (_, head) => [layer, head]),
    );
  }

  score(name, layer, head) {
    return this.header.scores[name]?.[layer]?.[head] ?? NaN;
  }

  // Gives a score the values that were measured elsewhere, over so many queries.
  measure(name, value, where, count) {
    const { header } = this;
    header.scores[name] = header.heads.map((n, layer) => Array.from({ length: n }, (_, head) => value(layer, head)));
    header.measured[name] = where;
    header.counts[name] = count;
  }

  // What a score means, if the log says so.
  meaning(name) {
    const { meanings } = this.header;
    return Object.hasOwn(meanings, name) ? meanings[name] : "";
  }

  // Where the row of a query starts, and how many keys it has.
  row(headIndex, query) {
    const start = headIndex * this.size;
    return this.header.causal
      ? [start + (query * (query + 1)) / 2, query + 1]
      : [start + query * this.m, this.m];
  }

  // The weight of a key for a query; null for later keys in a causal map; NaN if it was not finite.
  weight(headIndex, query, key) {
    const [start, length] = this.row(headIndex, query);
    if (key >= length) return null;
    const byte = this.bytes[start + key];
    return !byte && this.lostIn(headIndex)?.has(query) ? NaN : (byte / 255) ** 2;
  }

  // The queries with weights that were not finite. Undefined for a head without such weights.
  lostIn(headIndex) {
    if (!this.broken.has(headIndex)) return undefined;
    if (!this.lost.has(headIndex)) {
      const queries = Array.from({ length: this.n }, (_, query) => query);
      this.lost.set(headIndex, new Set(queries.filter((each) => !this.isWhole(headIndex, each))));
    }
    return this.lost.get(headIndex);
  }

  // Whether all weights of a query were finite. Others are stored as 0, so that the sum is not one, but
  // for the rounding to bytes and to bfloat16.
  isWhole(headIndex, query) {
    const [start, length] = this.row(headIndex, query);
    let [sum, rounding] = [0, 0.01];
    for (const byte of this.bytes.subarray(start, start + length)) {
      sum += (byte / 255) ** 2;
      rounding += byte / 255 ** 2;
    }
    return Math.abs(sum - 1) <= rounding;
  }

  // The same in words.
  describe(headIndex, query, key) {
    const weight = this.weight(headIndex, query, key);
    return weight == null ? "a future token, which it cannot attend to" : weightText(weight);
  }

  // Whether all weights of a head were numbers when they were logged.
  isFinite(layer, head) {
    const there = head < this.header.heads[layer];
    return !there || !this.broken.has(this.headIndex(layer, head));
  }

  legend({ colours }) {
    return { colours, ticks: TICKS.map((each) => [Math.sqrt(each), tickText(each)]), title: this.title };
  }

  title = "Attention weight";

  columns = ["weight"]; // what is saved of it

  values(headIndex, query, key) {
    const weight = this.weight(headIndex, query, key);
    return weight == null ? null : [weight];
  }

  // The map as an image. Each pixel shows the largest weight of a block of cells, `across` keys by
  // `down` queries, so that thin lines stay visible.
  image(headIndex, across, down, { colours, future }) {
    const wide = Math.ceil(this.m / across);
    const high = Math.ceil(this.n / down);
    const largest = new Int16Array(wide * high).fill(-1);
    const lost = this.lostIn(headIndex);
    for (let query = 0; query < this.n; query++) {
      const [start, length] = this.row(headIndex, query);
      const line = Math.floor(query / down) * wide;
      const least = lost?.has(query) ? 1 : 0; // 0 is then no weight
      for (let key = 0; key < length; key++) {
        const place = line + Math.floor(key / across);
        const byte = this.bytes[start + key];
        if (byte > largest[place] && byte >= least) largest[place] = byte;
      }
    }
    const image = new ImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = largest[i] < 0 ? future : colours[largest[i]];
    return image;
  }
}

export function haveSameText(one, two) {
  const texts = ({ tokens, keys }) => JSON.stringify([tokens, keys]);
  return texts(one) === texts(two);
}
