// Twin of model/circuit.py: what a model says with every subset of its heads and MLPs on. What is below a
// layer does not depend on what is off above it, so each layer is computed once for every subset of the
// parts below it.

import { add, logSumExp, softmax } from "./arithmetic.js";
import { replaceHeads, replaceMlp } from "./edits.js";
import { LayerMemory } from "./memory.js";
import { AT_ONCE, Reading } from "./reading.js";

const MAX_SWITCHED = 16; // parts: 65,536 subsets

// Tries all heads and MLPs on and off, or of more than 16, those that matter most when each is left out
// alone. target: the token after `ids` whose probability is a subset's value. by: as in `off` of a Reading.
// Yields {share} of what is done, in percent, undefined between pieces of work, and last {found}, what `summary`
// returns. Throws RangeError if a value is not finite.
export function* tryParts(model, { ids, by, target }) {
  const parts = yield* switchedParts(model, ids, by, target);
  const values = yield* new Subsets(model, parts, ids, by, target).all();
  yield { found: summary(parts, values, by) };
}

// Those that are tried, layer by layer, as {layer, head}; the head of an MLP is null.
function* switchedParts(model, ids, by, target) {
  const parts = model.blocks.flatMap((_, layer) => [
    ...Array.from({ length: model.config.n_heads }, (_, head) => ({ layer, head })),
    { layer, head: null },
  ]);
  if (parts.length <= MAX_SWITCHED) return parts;
  const intact = new Reading(model);
  yield* intact.read(ids);
  const value = (reading) => softmax(reading.logits(ids.length - 1))[target];
  const falls = new Map();
  for (const part of parts) {
    const without = yield* intact.switched(offOf([part], by), part.layer);
    falls.set(part, Math.abs(value(intact) - value(without)));
  }
  const chosen = [...parts].sort((a, b) => falls.get(b) - falls.get(a)).slice(0, MAX_SWITCHED);
  return parts.filter((part) => chosen.includes(part));
}

function offOf(parts, by) {
  return {
    by,
    heads: parts.filter(({ head }) => head !== null).map(({ layer, head }) => [layer, head]),
    mlps: parts.filter(({ head }) => head === null).map(({ layer }) => layer),
  };
}

// Bit i of a subset says whether part i is on.
class Subsets {
  #known = 0;
  #share = 0;

  constructor(model, parts, ids, by, target) {
    Object.assign(this, { model, ids, by, target, values: new Float32Array(2 ** parts.length) });
    const bits = parts.map((part, i) => ({ ...part, bit: 1 << i }));
    this.layers = model.blocks.map((block, layer) => {
      const memory = new LayerMemory(model.config);
      memory.reserve(ids.length);
      const here = bits.filter((part) => part.layer === layer);
      const mlp = here.find(({ head }) => head === null)?.bit ?? 0;
      return { block, memory, heads: here.filter(({ head }) => head !== null), mlp };
    });
  }

  // The values of all subsets.
  *all() {
    const stream = new Float32Array(this.ids.length * this.model.config.d_model);
    this.model.embed(this.ids, 0, stream);
    yield* this.#above(0, stream, 0);
    return this.values;
  }

  // Those of all subsets of the parts from a layer on. stream: before it. below: which parts below it are on.
  *#above(layer, stream, below) {
    const { block, heads, mlp } = this.layers[layer];
    const isLast = layer === this.layers.length - 1;
    const from = isLast ? this.ids.length - 1 : 0; // more is not needed
    const gathered = yield* this.#gathered(layer, stream, from);
    const before = stream.subarray(from * this.model.config.d_model);
    const ways = Array.from({ length: 2 ** heads.length }, (_, way) => below | (way * (heads[0]?.bit ?? 0)));
    while (ways.length) {
      const subsets = ways.splice(0, isLast ? AT_ONCE : 1);
      const x = this.#attended(layer, before, gathered, subsets);
      const written = yield* this.#written(block, x);
      for (const bit of mlp ? [0, mlp] : [0]) {
        const [after, added] = [x.slice(), written.slice()];
        if (mlp && !bit) replaceMlp(this.model, { by: this.by, mlps: [layer] }, layer, added);
        add(after, 0, added, 0, added.length);
        const some = subsets.map((subset) => subset | bit);
        yield* isLast ? this.#measure(after, some) : this.#above(layer + 1, after, some[0]);
      }
    }
  }

  // What the heads of a layer gather at the tokens from `from` on.
  *#gathered(layer, stream, from) {
    const { d_model } = this.model.config;
    const { block, memory } = this.layers[layer];
    const end = this.ids.length;
    for (let i = 0; i < end; i += AT_ONCE) {
      const to = Math.min(end, i + AT_ONCE);
      memory.attend(block, stream.subarray(i * d_model, to * d_model), i, to, from);
      yield;
    }
    return memory.rows("context", from, end);
  }

  // The stream after the attention of a layer, for one subset after the other.
  #attended(layer, before, gathered, subsets) {
    const { block, heads } = this.layers[layer];
    const x = new Float32Array(subsets.length * before.length);
    const contexts = new Float32Array(subsets.length * gathered.length);
    subsets.forEach((subset, i) => {
      x.set(before, i * before.length);
      const rows = contexts.subarray(i * gathered.length, (i + 1) * gathered.length);
      rows.set(gathered);
      const off = heads.filter(({ bit }) => !(subset & bit));
      replaceHeads(this.model, offOf(off, this.by), layer, rows);
    });
    add(x, 0, block.output.of(contexts), 0, x.length);
    return x;
  }

  // What the MLP of a block adds.
  *#written({ neurons, mlpNorm, down }, x) {
    const written = new Float32Array(x.length);
    const size = AT_ONCE * this.model.config.d_model;
    for (let at = 0; at < x.length; at += size) {
      const rows = x.subarray(at, at + size);
      down.of(neurons(mlpNorm.of(rows)), written.subarray(at, at + rows.length));
      yield;
    }
    return written;
  }

  // The values of subsets, given the last token's stream after the last block for each.
  *#measure(streams, subsets) {
    const { values, target } = this;
    const { vocab_size } = this.model.config;
    const logits = this.model.logits(streams);
    subsets.forEach((subset, i) => {
      const at = i * vocab_size;
      values[subset] = Math.exp(logits[at + target] - logSumExp(logits, at, vocab_size));
      if (!Number.isFinite(values[subset])) throw new RangeError("The probability of this token is not finite.");
    });
    this.#known += subsets.length;
    const share = Math.floor((100 * this.#known) / values.length);
    yield share > this.#share ? { share: (this.#share = share) } : undefined;
  }
}

// Twin of Circuit: what its methods return.
//
// best: for each number of parts from 0 on, [which parts, the largest value that so many have, the others as
// what is off].
// shapley, alone: of each part. interactions: of each pair, [part, part, value].
function summary(parts, values, by) {
  const n = parts.length;
  const sizes = new Uint8Array(values.length);
  for (let subset = 1; subset < values.length; subset++) sizes[subset] = sizes[subset >> 1] + (subset & 1);
  const best = Array(n + 1).fill(-1);
  values.forEach((value, subset) => {
    if (!(value <= values[best[sizes[subset]]])) best[sizes[subset]] = subset;
  });
  const of = (subset) => parts.map((_, i) => i).filter((i) => subset & (1 << i));
  const off = (subset) => offOf(of(~subset).map((i) => parts[i]), by);
  const single = chances(n - 1);
  const double = chances(n - 2);
  const [shapley, interactions] = [new Float64Array(n), []];
  for (let i = 0; i < n; i++) {
    const one = 1 << i;
    for (let s = 0; s < values.length; s++)
      if (!(s & one)) shapley[i] += single[sizes[s]] * (values[s | one] - values[s]);
    for (let j = 0; j < i; j++) {
      const other = 1 << j;
      let sum = 0;
      for (let s = 0; s < values.length; s++)
        if (!(s & (one | other)))
          sum += double[sizes[s]] * (values[s | one | other] - values[s | one] - values[s | other] + values[s]);
      interactions.push([j, i, sum]);
    }
  }
  return {
    parts,
    best: best.map((subset) => [of(subset), values[subset], off(subset)]),
    shapley: [...shapley],
    alone: parts.map((_, i) => values.at(-1) - values[values.length - 1 - (1 << i)]),
    interactions,
  };
}

// How probable each subset of n parts is where first its size is drawn, and then its parts: by size.
function chances(n) {
  let count = 1; // of the subsets of a size
  return Array.from({ length: n + 1 }, (_, size) => {
    const chance = 1 / ((n + 1) * count);
    count = (count * (n - size)) / (size + 1);
    return chance;
  });
}
