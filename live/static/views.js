// The maps of the text at hand, with exact weights, in one of the views: weights; shares of what is moved,
// which is a weight times the norm of what the head moves from there; or if parts are off, their change.

import { Maps } from "./maps.js";

// The name of each view, and what it means.
export const VIEWS = {
  weights: ["weights", "How each token shares out its attention."],
  moved: [
    "weights × what is moved",
    "Attention that rests on a token of which the head moves little fades; what is left is moved.",
  ],
  change: [
    "change by what is off",
    "Weights with parts off, minus those before. Only heads of later layers can change.",
  ],
};

export class LiveMaps extends Maps {
  // weights: of all heads, one triangle after the other; in the view `moved`, the shares.
  constructor(header, weights, view = "weights") {
    super({ ...header, causal: true, not_finite: brokenHeads(header, weights) });
    this.weights = weights;
    this.bytes = Uint8Array.from(weights, (each) => Math.round(255 * Math.sqrt(Math.min(1, each))));
    if (view === "moved") Object.assign(this, { title: "Share of what is moved", columns: ["moved"] });
  }

  weight(headIndex, query, key) {
    return key > query ? null : this.weights[this.row(headIndex, query)[0] + key];
  }

  isWhole(headIndex, query) {
    const [start, length] = this.row(headIndex, query);
    return this.weights.subarray(start, start + length).every((each) => !Number.isNaN(each));
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
