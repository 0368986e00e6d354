// What a layer computed for each token that was read.

// Twin of LayerCache, with more than keys and values: rows of tokens by name, of the layer's heads
// side by side. `weights` of each head is a triangle: row i has i + 1 of them.
export class LayerMemory {
  constructor({ d_model, d_head, n_heads, n_kv_heads }) {
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
