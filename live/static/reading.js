// A text that a model reads token by token, and everything that it computed for it.

import { add, dot, logSumExp } from "./arithmetic.js";
import { nothingOff, replaceHeads, replaceMlp } from "./edits.js";
import { LayerMemory, grown, triangle } from "./memory.js";

export const AT_ONCE = 32; // tokens, which are read together and whose logits are in memory together

// What was read stays, so another token costs as much as one with a key-value cache (twin of KVCache,
// record_attention and ablate).
//
// off: what is switched off, {by: "zero" or "mean", heads: [[layer, head]], mlps: [layer]}.
export class Reading {
  #losses = new Float32Array(0);
  #scored = 1; // tokens whose loss is known; the first has none

  constructor(model, off = nothingOff()) {
    Object.assign(this, { model, off, tokens: [] });
    this.layers = model.blocks.map(() => new LayerMemory(model.config));
    this.streams = [...model.blocks, null].map(() => new Float32Array(0)); // before each block, at the end
  }

  get length() {
    return this.tokens.length;
  }

  // Reads more tokens, as many as fit the context, in pieces: a caller who stops between two of them has
  // read nothing.
  *read(ids) {
    const [from, to] = [this.length, this.length + ids.length];
    if (!ids.length) return;
    this.#reserve(to);
    this.model.embed(ids, from, this.#stream(0, from, to));
    yield* this.#pass(0, from, to);
    this.tokens.push(...ids);
  }

  // Makes this a reading of `ids`: the tokens that both have at the front stay, the others are read.
  *follow(ids) {
    let same = 0;
    while (same < this.length && this.tokens[same] === ids[same]) same++;
    this.truncate(same);
    yield* this.read(ids.slice(same));
  }

  // Forgets all tokens from position n on.
  truncate(n) {
    this.tokens.length = Math.min(n, this.length);
    this.#scored = Math.max(1, Math.min(n, this.#scored));
  }

  // A reading of the same tokens with `off` instead, which changes no layer before `first`.
  *switched(off, first) {
    const other = this.#known(off, first);
    yield* other.#pass(first, 0, this.length);
    return other;
  }

  copy() {
    return this.#known(this.off, this.layers.length);
  }

  // The same tokens with other edits, of which all is known up to layer `first`.
  #known(off, first) {
    const other = new Reading(this.model, off);
    other.tokens = [...this.tokens];
    this.layers.slice(0, first).forEach((each, i) => other.layers[i].copyOf(each));
    this.streams.slice(0, first + 1).forEach((each, i) => (other.streams[i] = each.slice()));
    other.#reserve(this.length);
    return other;
  }

  #reserve(count) {
    for (const each of this.layers) each.reserve(count);
    this.streams = this.streams.map((each) => grown(each, count * this.model.config.d_model));
  }

  #stream(layer, from, to) {
    const { d_model } = this.model.config;
    return this.streams[layer].subarray(from * d_model, to * d_model);
  }

  // The blocks from layer `first` on, for tokens [from, to), in pieces that take a moment each.
  *#pass(first, from, to) {
    for (let layer = first; layer < this.layers.length; layer++) {
      for (let i = from; i < to; i += AT_ONCE) {
        this.#block(layer, i, Math.min(to, i + AT_ONCE));
        yield;
      }
    }
  }

  // Twin of Block.forward.
  #block(layer, from, to) {
    const { model, off } = this;
    const block = model.blocks[layer];
    const memory = this.layers[layer];
    const x = this.#stream(layer + 1, from, to);
    x.set(this.#stream(layer, from, to));
    memory.attend(block, x, from, to);
    const context = memory.rows("context", from, to);
    replaceHeads(model, off, layer, context);
    add(x, 0, block.output.of(context), 0, x.length);
    const written = block.down.of(block.neurons(block.mlpNorm.of(x)), memory.rows("mlp", from, to));
    replaceMlp(model, off, layer, written);
    add(x, 0, written, 0, x.length);
  }

  // The logits of the token after token i.
  logits(i) {
    return this.model.logits(this.residual(this.layers.length, i));
  }

  // The stream at token i before block `layer`; layer = n_layers: before the final norm.
  residual(layer, i) {
    return this.#stream(layer, i, i + 1);
  }

  // The attention weights, a causal triangle row by row: row i has i + 1, which sum to one.
  weights(layer, head) {
    return this.layers[layer].weights[head].subarray(0, triangle(this.length));
  }

  // What the head adds to the stream where it attends to token j alone (without the output's bias).
  moved(layer, head, j) {
    const at = this.layers[layer].place(head, j);
    const value = this.layers[layer].value.subarray(at, at + this.model.config.d_head);
    return this.model.blocks[layer].headOutputs[head].of(value);
  }

  // The norm of what is moved from each token: times the weight, that of what arrives (Kobayashi et
  // al. 2020, "Attention is Not Only a Weight").
  valueNorms(layer, head) {
    return Float32Array.from(this.tokens, (_, j) => {
      const moved = this.moved(layer, head, j);
      return Math.sqrt(dot(moved, 0, moved, 0, moved.length));
    });
  }

  // What the head adds to the stream at token i (without the output's bias).
  headOutput(layer, head, i) {
    const { d_head } = this.model.config;
    const context = this.layers[layer].rows("context", i, i + 1);
    return this.model.blocks[layer].headOutputs[head].of(context.subarray(head * d_head, (head + 1) * d_head));
  }

  mlpOutput(layer, i) {
    return this.layers[layer].rows("mlp", i, i + 1);
  }

  // The outputs of the neurons of an MLP at tokens [from, to), which its last matrix reads.
  neurons(layer, from, to) {
    const { neurons, mlpNorm, output } = this.model.blocks[layer];
    const x = output.of(this.layers[layer].rows("context", from, to));
    add(x, 0, this.#stream(layer, from, to), 0, x.length);
    return neurons(mlpNorm.of(x));
  }

  // [i]: the loss of token i after those before it, in nats; [0] is NaN.
  losses() {
    this.#losses = grown(this.#losses, this.length);
    this.#losses[0] = NaN;
    for (; this.#scored < this.length; ) {
      const [from, to] = [this.#scored, Math.min(this.length, this.#scored + AT_ONCE)];
      const logits = this.model.logits(this.#stream(this.layers.length, from - 1, to - 1));
      const size = this.model.config.vocab_size;
      for (let i = from; i < to; i++) {
        const at = (i - from) * size;
        this.#losses[i] = logSumExp(logits, at, size) - logits[at + this.tokens[i]];
      }
      this.#scored = to;
    }
    return this.#losses.slice(0, this.length);
  }
}
