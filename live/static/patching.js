// Activation patching (Vig et al. 2020, "Investigating Gender Bias in Language Models Using Causal
// Mediation Analysis"): a part of the model gets the values that it has on another text of as many tokens,
// and how much of the answer of that text comes over is measured.

import { largest } from "./sampling.js";

// Two texts, and the most probable token after token i of each: their answers.
export class TextPair {
  // ours, theirs: readings of as many tokens.
  constructor(ours, theirs, i) {
    Object.assign(this, { ours, theirs, i });
    this.answers = [ours, theirs].map((each) => largest(each.logits(i), 1)[0][0]);
    [this.none, this.all] = [ours, theirs].map((each) => this.#difference(each));
  }

  // The logit of their answer minus that of ours (Wang et al. 2022, "Interpretability in the Wild").
  #difference(reading) {
    const logits = reading.logits(this.i);
    const [ours, theirs] = this.answers;
    return logits[theirs] - logits[ours];
  }

  // Our text with values of theirs. parts: {kind, layer, head, places}, as Reading takes patches.
  patched(parts) {
    return this.ours.patched(parts.map((part) => ({ ...part, source: this.theirs })));
  }

  // How much of their answer a reading has: 0 as much as our text, 1 as much as theirs (the normalized
  // logit difference of Zhang and Nanda 2024, "Towards Best Practices of Activation Patching in Language
  // Models"). NaN if the answers are the same token.
  share(reading) {
    return (this.#difference(reading) - this.none) / (this.all - this.none);
  }

  // Yields {at, share} for each of the parts, patched alone, and undefined between pieces of work.
  *each(parts) {
    for (const [at, part] of parts.entries()) yield { at, share: this.share(yield* this.patched([part])) };
  }
}
