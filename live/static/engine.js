// The model again: what model/gpt.py, model/attention.py and model/layers.py build. Reading runs it.
// Whether a model is one of these is checked when its page is written (check_page in live/page.py).

import { Linear, Norm, add, gelu, swiglu } from "./arithmetic.js";

// Twin of GPT. config: the fields of ModelConfig and vocab_size. tensors: {name: Float32Array}, as
// in the state dict, and the means of all heads and MLPs, a row for each. `parametersIn` has checked that
// there is one value for each place in them.
export class Model {
  constructor(config, tensors) {
    this.config = config;
    this.embedding = tensors["token_embedding.weight"];
    this.position = config.position === "learned" ? tensors["position.weight"] : null;
    this.blocks = Array.from({ length: config.n_layers }, (_, i) => {
      return new Block(config, (name) => tensors[`blocks.${i}.${name}`]);
    });
    this.finalNorm = buildNorm(config, (name) => tensors[`final_norm.${name}`]);
    const unembedding = config.tied_embeddings ? this.embedding : tensors["unembedding.weight"];
    this.unembedding = new Linear(unembedding, null, config.d_model);
    this.means = { heads: tensors["means.heads"], mlps: tensors["means.mlps"] };
  }

  // Twin of GPT.embed: the stream before the first block, of tokens from position `start` on.
  embed(ids, start, stream) {
    const { d_model } = this.config;
    ids.forEach((id, row) => {
      stream.set(this.embedding.subarray(id * d_model, (id + 1) * d_model), row * d_model);
    });
    if (this.position) add(stream, 0, this.position, start * d_model, ids.length * d_model);
  }

  // Logits for rows of the stream after the last block.
  logits(stream) {
    return this.unembedding.of(this.finalNorm.of(stream));
  }
}

// Twin of Block and CausalSelfAttention: what they are made of.
class Block {
  constructor(config, take) {
    const { d_model, d_head, n_heads, bias, norm_eps } = config;
    const linear = (name, inputs) =>
      new Linear(take(`${name}.weight`), bias ? take(`${name}.bias`) : null, inputs);
    const norm = (name) => buildNorm(config, (part) => take(`${name}.${part}`));
    const headNorm = (name) => new Norm(take(`attention.${name}.weight`), null, norm_eps);
    this.attentionNorm = norm("attention_norm");
    this.query = linear("attention.query", d_model);
    this.key = linear("attention.key", d_model);
    this.value = linear("attention.value", d_model);
    this.output = linear("attention.output", n_heads * d_head);
    this.headOutputs = Array.from({ length: n_heads }, (_, head) => {
      return this.output.columns(head * d_head, d_head);
    });
    this.queryNorm = config.qk_norm ? headNorm("query_norm") : null;
    this.keyNorm = config.qk_norm ? headNorm("key_norm") : null;
    this.rotate = buildRotary(config);
    this.mlpNorm = norm("mlp_norm");
    Object.assign(this, buildMlp(config, linear));
  }
}

// Twin of build_norm.
function buildNorm({ norm, bias, norm_eps }, take) {
  if (norm === "rmsnorm") return new Norm(take("weight"), null, norm_eps, false);
  return new Norm(take("weight"), bias ? take("bias") : null, norm_eps, true);
}

// Twin of build_mlp, GeluMLP and SwiGLU. neurons: rows of the normed stream -> outputs of the neurons. down:
// the matrix that makes of these what is added to the stream.
function buildMlp({ mlp, d_model, d_mlp }, linear) {
  const up = linear("mlp.up", d_model);
  const down = linear("mlp.down", d_mlp);
  if (mlp === "gelu") return { neurons: (x) => gelu(up.of(x)), down };
  const gate = linear("mlp.gate", d_model);
  return { neurons: (x) => swiglu(gate.of(x), up.of(x)), down };
}

// Twin of build_position and Rotary: rotates all heads of rows from position `start` on, in place.
// Frequencies and angles are rounded to float32, as they are in Python.
function buildRotary({ position, d_head, rope_theta }) {
  if (position === "learned") return () => {};
  const pairs = d_head / 2;
  const frequency = Float32Array.from({ length: pairs }, (_, i) => {
    return rope_theta ** Math.fround((-2 * i) / d_head);
  });
  return (x, width, start) => {
    for (let at = 0; at < x.length; at += d_head) {
      const place = start + Math.floor(at / width);
      for (let i = 0; i < pairs; i++) {
        const angle = Math.fround(place * frequency[i]);
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        const [a, b] = [x[at + i], x[at + pairs + i]];
        x[at + i] = a * cos - b * sin;
        x[at + pairs + i] = b * cos + a * sin;
      }
    }
  };
}
