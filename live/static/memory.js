// What a layer computed for each token that was read.

import { add, dot, softmax } from "./arithmetic.js";

// Twin of LayerCache, with more than keys and values: rows of tokens by name, of the layer's heads
// side by side. `weights` of each head is a triangle: row i has i + 1 of them.
export class LayerMemory {
  constructor(config) {
    const { d_model, d_head, n_heads, n_kv_heads } = (this.config = config);
    const [all, shared] = [n_heads * d_head, n_kv_heads * d_head];
    this.widths = { query: all, key: shared, value: shared, context: all, mlp: d_model };
    for (const name of Object.keys(this.widths)) this[name] = new Float32Array(0);
    this.weights = Array.from({ length: n_heads }, () => new Float32Array(0));
  }

  // Makes room for `count` tokens.
  reserve(count) {
    for (const [name, width] of Object.entries(this.widths))
      this[name] = grown(this[name], count * width);
    this.weights = this.weights.map((each) => grown(each, triangle(count)));
  }

  rows(name, from, to) {
    const width = this.widths[name];
    return this[name].subarray(from * width, to * width);
  }

  copyOf(other) {
    for (const name of Object.keys(this.widths)) this[name] = other[name].slice();
    this.weights = other.weights.map((each) => each.slice());
  }

  // Twin of CausalSelfAttention.forward, up to what its heads gather: the rows of all but `mlp`, and the
  // weights, for the stream x of tokens [from, to); those of queries from token `first` on alone.
  attend(block, x, from, to, first = from) {
    const { d_model, n_heads } = this.config;
    const start = Math.min(to, Math.max(from, first));
    const normed = block.attentionNorm.of(x);
    const query = block.query.of(normed.subarray((start - from) * d_model), this.rows("query", start, to));
    const key = block.key.of(normed, this.rows("key", from, to));
    block.value.of(normed, this.rows("value", from, to));
    block.queryNorm?.of(query, query);
    block.keyNorm?.of(key, key);
    block.rotate(query, this.widths.query, start);
    block.rotate(key, this.widths.key, from);
    for (let head = 0; head < n_heads; head++)
      for (let i = start; i < to; i++) this.#gather(head, i);
  }

  // Twin of explicit_attention, of one head and one query.
  #gather(head, i) {
    const { d_head } = this.config;
    const weights = this.weights[head].subarray(triangle(i), triangle(i + 1));
    const at = i * this.widths.query + head * d_head;
    for (let j = 0; j <= i; j++)
      weights[j] = dot(this.query, at, this.key, this.place(head, j), d_head) / Math.sqrt(d_head);
    softmax(weights);
    const context = this.rows("context", i, i + 1).subarray(head * d_head, (head + 1) * d_head);
    context.fill(0);
    for (let j = 0; j <= i; j++)
      add(context, 0, this.value, this.place(head, j), d_head, weights[j]);
  }

  // Where the key and the value of token j begin. Adjacent query heads share them.
  place(head, j) {
    const { d_head, n_heads, n_kv_heads } = this.config;
    return (j * n_kv_heads + Math.floor((head * n_kv_heads) / n_heads)) * d_head;
  }
}

// The array with room for `size` numbers, and for more to come.
export function grown(array, size) {
  if (array.length >= size) return array;
  const larger = new Float32Array(Math.max(size, 2 * array.length));
  larger.set(array);
  return larger;
}

// How many weights the first `count` queries have.
export function triangle(count) {
  return (count * (count + 1)) / 2;
}
