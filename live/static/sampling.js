// Choosing tokens, and writing on.

import { softmax } from "./arithmetic.js";
import { windowStart } from "./window.js";

// Twin of sampling_probabilities: softmax(logits / temperature), truncated and renormalised. topK 0, topP 1: off.
export function probabilities(logits, { temperature, topK, topP }) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  // Shifted so that the largest is 0: a tiny temperature can then only underflow.
  const shifted = logits.map((each) => each - most).map((each) => each / Math.fround(temperature));
  if (topK && topK < logits.length) {
    const least = shifted.slice().sort()[logits.length - topK];
    for (let i = 0; i < shifted.length; i++) if (shifted[i] < least) shifted[i] = -Infinity;
  }
  const found = softmax(shifted);
  return topP < 1 ? nucleus(found, topP) : found;
}

// The smallest set of the most likely tokens whose probability reaches `most`, renormalised.
function nucleus(found, most) {
  const order = Uint32Array.from(found, (_, id) => id).sort((a, b) => found[b] - found[a]);
  const kept = new Float32Array(found.length);
  let sum = 0;
  for (const id of order) {
    if (sum >= most) break;
    sum += kept[id] = found[id];
  }
  return kept.map((each) => each / sum);
}

// The k largest values, largest first, as [index, value].
export function largest(values, k) {
  const found = [];
  values.forEach((value, i) => {
    if (found.length === k && value <= found[k - 1][1]) return;
    let at = found.length;
    while (at && found[at - 1][1] < value) at--;
    found.splice(at, 0, [i, value]);
    found.length = Math.min(found.length, k);
  });
  return found;
}

// Uniform numbers in [0, 1): sfc32 of Chris Doty-Humphrey's PractRand, with its seeding from an
// integer of up to 53 bits.
export class Random {
  #a = 0;
  #b;
  #c;
  #counter = 1;

  constructor(seed) {
    [this.#b, this.#c] = [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0];
    for (let i = 0; i < 12; i++) this.next();
  }

  next() {
    const sum = (this.#a + this.#b + this.#counter) >>> 0;
    this.#counter = (this.#counter + 1) >>> 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) >>> 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) >>> 0;
    return sum / 2 ** 32;
  }
}

// A token; with temperature 0 the most likely one.
export function choose(logits, settings, random) {
  if (settings.temperature === 0) return largest(logits, 1)[0][0];
  const found = probabilities(logits, settings);
  let rest = random.next();
  let last = 0;
  for (let id = 0; id < found.length; id++) {
    if (!found[id]) continue;
    if (rest < found[id]) return id;
    rest -= found[id];
    last = id;
  }
  return last; // rounding left a little
}

// Twin of generate: goes on after `ids`, token by token. Yields {token, top}, the k most likely tokens
// there; and undefined between pieces of work. `reading` becomes one of what the model sees.
export function* generate(reading, ids, count, settings, k) {
  const all = [...ids];
  const random = new Random(settings.seed);
  for (let i = 0; i < count; i++) {
    const start = windowStart(all.length, reading.model.config.context_length);
    yield* reading.follow(all.slice(start));
    const logits = reading.logits(reading.length - 1);
    const token = choose(logits, settings, random);
    all.push(token);
    yield { token, top: largest(softmax(logits), k) };
  }
}
