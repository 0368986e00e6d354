// What a reading shows of the model: what each layer would say, which part writes a token, what a head
// moves, and what the loss would be without it.

import { dot, softmax } from "./arithmetic.js";
import { Reading, means } from "./reading.js";
import { largest } from "./sampling.js";

// The logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens"): for the stream before each
// block, and at the end, the k most likely tokens after token i as [id, probability].
export function lens(reading, i, k) {
  return reading.streams.map((_, layer) => {
    return largest(softmax(reading.model.logits(reading.residual(layer, i))), k);
  });
}

// Direct logit attribution (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"):
// what each part adds to the logit of `id` after token i. The parts sum to the logit. The final norm
// divides by the scale that it has there; its bias and those of the output matrices are `biases`.
export function attribution(reading, i, id) {
  const { model, layers } = reading;
  const { n_heads, d_model } = model.config;
  const { finalNorm, unembedding } = model;
  const row = unembedding.weight.subarray(id * d_model, (id + 1) * d_model);
  const end = reading.residual(layers.length, i);
  const part = (x) => dot(finalNorm.part(x, end), 0, row, 0, d_model);
  const at = (table, place) => part(table.subarray(place * d_model, (place + 1) * d_model));
  const heads = Array.from({ length: n_heads }, (_, head) => head);
  const biases = model.blocks.map(({ output }) => (output.bias ? part(output.bias) : 0));
  if (finalNorm.bias) biases.push(dot(finalNorm.bias, 0, row, 0, d_model));
  return {
    embedding: at(model.embedding, reading.tokens[i]),
    ...(model.position ? { position: at(model.position, i) } : {}),
    heads: layers.map((_, layer) => heads.map((head) => part(reading.headOutput(layer, head, i)))),
    mlps: layers.map((_, layer) => part(reading.mlpOutput(layer, i))),
    biases: biases.reduce((sum, each) => sum + each, 0),
    logit: reading.logits(i)[id],
  };
}

// The OV circuit of a head (Elhage et al. 2021): what it would add to the logits if it attended to
// token i alone, as [id, logit]; the k largest and the k smallest. Logits are relative to their mean,
// which probabilities do not depend on, and the final norm divides by the scale that it has at token i.
export function circuit(reading, layer, head, i, k) {
  const { finalNorm, unembedding } = reading.model;
  const end = reading.residual(reading.layers.length, i);
  const logits = unembedding.of(finalNorm.part(reading.moved(layer, head, i), end));
  const mean = logits.reduce((sum, each) => sum + each, 0) / logits.length;
  const centred = logits.map((each) => each - mean);
  const suppressed = largest(centred.map((each) => -each), k);
  return { promoted: largest(centred, k), suppressed: suppressed.map(([id, value]) => [id, -value]) };
}

// Twin of losses in observe/importance.py: yields {layer, head, rise} for each head, how much the mean
// loss of `ids` rises without it; and undefined between pieces of work. by: "zero", or "mean" over the
// text `reference`.
export function* rank(model, ids, by, reference) {
  if (ids.length < 2) throw new RangeError("One token alone has no loss.");
  const [intact, other] = [new Reading(model), new Reading(model)];
  yield* intact.pieces(ids);
  if (by === "mean") yield* other.pieces(reference);
  const loss = meanLoss(intact);
  for (let layer = 0; layer < model.config.n_layers; layer++) {
    for (let head = 0; head < model.config.n_heads; head++) {
      const off = { by, heads: [[layer, head]], mlps: [] };
      if (by === "mean") off.means = yield* means(other, off);
      const without = yield* intact.switched(off, layer);
      yield { layer, head, rise: meanLoss(without) - loss };
    }
  }
}

function meanLoss(reading) {
  const losses = reading.losses().subarray(1);
  return losses.reduce((sum, each) => sum + each, 0) / losses.length;
}
