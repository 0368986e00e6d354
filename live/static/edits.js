// Parts that are switched off (twin of ablate in model/edits.py): what they are and what they write then.
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

// The mean of `size` columns of rows, from column `start` on.
export function meanRow(rows, width, start, size) {
  const sum = new Float64Array(size);
  for (let i = start; i < rows.length; i += width) add(sum, 0, rows, i, size);
  return Float32Array.from(sum, (each) => (each * width) / rows.length);
}

// What the parts that are off write on average over a text, with all of them off: {heads, mlps}, in
// the order of `off`, for its `means`; a head's is before the output matrix. intact: a reading of
// the text with nothing off.
export function* means(intact, { heads, mlps }) {
  const layers = changed({ heads, mlps });
  const off = { by: "mean", heads, mlps };
  const reading = yield* intact.switched(off, Math.min(...layers), Math.max(...layers));
  return reading.means;
}

// The layers of what is off.
export function changed({ heads, mlps }) {
  return [...heads.map(([layer]) => layer), ...mlps];
}
