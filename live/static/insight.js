// What a reading shows of the model: what each layer would say, which part writes a token, and what a
// head moves.

import { add, dot, softmax } from "./arithmetic.js";
import { largest } from "./sampling.js";

// The logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens"): for the stream after each
// block, the k most likely tokens after token i as [id, probability].
export function lens(reading, i, k) {
  return reading.layers.map((_, layer) => {
    return largest(softmax(reading.model.logits(reading.residual(layer + 1, i))), k);
  });
}

// Direct logit attribution (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"):
// what each part adds to the logit of `id` after token i, as [name, value]; they sum to the logit. The final
// norm divides by the scale that it has there; its bias and those of the output matrices are "biases".
export function attribution(reading, i, id) {
  const { model, layers } = reading;
  const { bias, d_model } = model.config;
  const { finalNorm, unembedding } = model;
  const row = unembedding.weight.subarray(id * d_model, (id + 1) * d_model);
  const end = reading.residual(layers.length, i);
  const added = (x) => dot(finalNorm.part(x, end), 0, row, 0, d_model);
  const parts = streamParts(reading, layers.length, i).map(([name, x]) => [name, added(x)]);
  if (bias) {
    const biases = model.blocks.map(({ output }) => added(output.bias));
    if (finalNorm.bias) biases.push(dot(finalNorm.bias, 0, row, 0, d_model));
    parts.push(["biases", biases.reduce((sum, each) => sum + each, 0)]);
  }
  return { parts, logit: reading.logits(i)[id] };
}

// Twin of explain_score: the scaled score of a head for tokens i and j as terms {query, key, value} that
// sum to it, of what a part wrote into the query and what another wrote into the key.
export function scoreTerms(reading, layer, head, i, j) {
  const { config, blocks } = reading.model;
  const { d_head, n_heads, n_kv_heads } = config;
  const { query, key, queryNorm, keyNorm } = blocks[layer];
  const shared = Math.floor(head / (n_heads / n_kv_heads));
  const queries = writers(reading, layer, query.rows(head * d_head, d_head), query.bias, queryNorm, head, i);
  const keys = writers(reading, layer, key.rows(shared * d_head, d_head), key.bias, keyNorm, shared, j);
  return queries.flatMap(([from, x]) =>
    keys.map(([to, y]) => ({ query: from, key: to, value: dot(x, 0, y, 0, d_head) / Math.sqrt(d_head) })),
  );
}

// [name, what it has written] for each part of the query or the key of a head at token i. What the
// parts before the layer do not sum to are the biases on the way.
function writers(reading, layer, matrix, bias, norm, head, i) {
  const { attentionNorm, rotate } = reading.model.blocks[layer];
  const { d_head } = reading.model.config;
  const stream = reading.residual(layer, i);
  const parts = streamParts(reading, layer, i).map(([name, x]) => [name, matrix.of(attentionNorm.part(x, stream))]);
  const whole = matrix.of(attentionNorm.of(stream));
  if (bias) add(whole, 0, bias, head * d_head, d_head);
  const rest = whole.slice();
  for (const [, x] of parts) add(rest, 0, x, 0, d_head, -1);
  if (reading.model.config.bias) parts.push(["biases", rest]);
  return parts.map(([name, x]) => {
    const shown = norm ? norm.part(x, whole) : x;
    rotate(shown, d_head, i);
    return [name, shown];
  });
}

// [name, row] of what has written the stream at token i before a layer, without biases.
function streamParts(reading, layer, i) {
  const { model } = reading;
  const { d_model, n_heads } = model.config;
  const row = (table, place) => table.subarray(place * d_model, (place + 1) * d_model);
  const parts = [["embedding", row(model.embedding, reading.tokens[i])]];
  if (model.position) parts.push(["position", row(model.position, i)]);
  for (let l = 0; l < layer; l++) {
    for (let h = 0; h < n_heads; h++) parts.push([`L${l}H${h}`, reading.headOutput(l, h, i)]);
    parts.push([`L${l} MLP`, reading.mlpOutput(l, i)]);
  }
  return parts;
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

// The k neurons of all layers whose outputs are largest in size at token i, as {layer, neuron, value}.
export function strongest(reading, i, k) {
  const all = reading.layers.flatMap((_, layer) =>
    Array.from(reading.neurons(layer, i, i + 1), (value, neuron) => ({ layer, neuron, value })),
  );
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, k);
}

// A neuron in the text: its outputs by token, and the k tokens whose logits it raises and lowers most where
// its output is largest in size, by the direct path.
export function neuronInText(reading, layer, neuron, k) {
  const { finalNorm, unembedding, blocks } = reading.model;
  const { down } = blocks[layer];
  const values = reading.neurons(layer, 0, reading.length).filter((_, at) => at % down.inputs === neuron);
  const place = values.reduce((most, each, i) => (Math.abs(each) > Math.abs(values[most]) ? i : most), 0);
  const written = down.columns(neuron, 1).weight.map((each) => each * values[place]);
  const logits = unembedding.of(finalNorm.part(written, reading.residual(reading.layers.length, place)));
  const ids = (some) => largest(some, k).map(([id]) => id);
  return { layer, neuron, values, raised: ids(logits), lowered: ids(logits.map((each) => -each)) };
}
