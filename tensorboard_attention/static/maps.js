// The attention maps of one probe at one step: all heads, a byte a weight, as summary.py packs them.

export class Maps {
  constructor(header, bytes) {
    if (header.version !== 1)
      throw new Error(`the maps have version ${header.version}, this tab reads version 1`);
    this.header = header;
    this.bytes = bytes;
    this.tokens = header.tokens;
    this.n = header.tokens.length;
    this.size = header.causal ? (this.n * (this.n + 1)) / 2 : this.n * this.n;
    this.count = header.heads.reduce((sum, heads) => sum + heads, 0);
    if (bytes.length !== this.count * this.size)
      throw new Error("the maps of this step are damaged");
  }

  // The number of a head among those of all layers.
  number(layer, head) {
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

  // Where the row of a query begins, and how many keys it has.
  row(number, query) {
    const start = number * this.size;
    return this.header.causal
      ? [start + (query * (query + 1)) / 2, query + 1]
      : [start + query * this.n, this.n];
  }

  // The weight of a key for a query; null in the future of a causal map.
  weight(number, query, key) {
    const [start, length] = this.row(number, query);
    return key < length ? (this.bytes[start + key] / 255) ** 2 : null;
  }

  // The map as pixels, each of which shows the largest weight of a block of cells: thin lines stay
  // visible.
  image(number, block, { colours, future }) {
    const side = Math.ceil(this.n / block);
    const largest = new Int16Array(side * side).fill(-1);
    for (let query = 0; query < this.n; query++) {
      const [start, length] = this.row(number, query);
      const line = Math.floor(query / block) * side;
      for (let key = 0; key < length; key++) {
        const place = line + Math.floor(key / block);
        const byte = this.bytes[start + key];
        if (byte > largest[place]) largest[place] = byte;
      }
    }
    const image = new ImageData(side, side);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = largest[i] < 0 ? future : colours[largest[i]];
    return image;
  }
}
