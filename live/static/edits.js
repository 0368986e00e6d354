// Parts that are switched off (twin of ablate in model/hooks.py): what they are and what they write then.
// Reading applies them.

import { add } from "./arithmetic.js";

export const NOTHING_OFF = { by: "zero", heads: [], mlps: [] };

// Throws RangeError for what the model does not have.
export function checkOff({ n_layers, n_heads }, { by, heads, mlps }) {
  if (!["zero", "mean"].includes(by)) throw new RangeError(`by: ${by} is unknown`);
  const known = (part, count) => Number.isInteger(part) && part >= 0 && part < count;
  for (const [layer, head] of heads)
    if (!known(layer, n_layers) || !known(head, n_heads))
      throw new RangeError(`heads: the model has no head ${layer}.${head}`);
  for (const layer of mlps)
    if (!known(layer, n_layers)) throw new RangeError(`mlps: the model has no layer ${layer}`);
}

// Twin of mean_outputs: the means of the parts that are off over the tokens of a reading with nothing
// off, {heads, mlps}, in the order of `off`, for its `means`; a head's is before the output matrix.
export function means(intact, { heads, mlps }) {
  const { d_head, d_model } = intact.model.config;
  const mean = (layer, name, start, size) => {
    const { widths } = intact.layers[layer];
    const rows = intact.layers[layer].rows(name, 0, intact.length);
    const sum = new Float64Array(size);
    for (let i = start; i < rows.length; i += widths[name]) add(sum, 0, rows, i, size);
    return Float32Array.from(sum, (each) => each / intact.length);
  };
  return {
    heads: heads.map(([layer, head]) => mean(layer, "context", head * d_head, d_head)),
    mlps: mlps.map((layer) => mean(layer, "mlp", 0, d_model)),
  };
}

// The layers of what is off.
export function changed({ heads, mlps }) {
  return [...heads.map(([layer]) => layer), ...mlps];
}
