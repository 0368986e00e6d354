// Parts that are switched off (twin of ablate in model/hooks.py): what they are and what they write then.
// Reading applies them.

export function nothingOff(by = "mean") {
  return { by, heads: [], mlps: [] };
}

export function anyOff({ heads, mlps }) {
  return heads.length + mlps.length > 0;
}

// Of what the heads of a layer gather, rows of tokens, replaces the heads that are off.
export function replaceHeads({ config, means }, { by, heads }, layer, rows) {
  const { d_head, n_heads } = config;
  for (const [at, head] of heads)
    if (at === layer)
      replace(rows, head * d_head, n_heads * d_head, by, means.heads, layer * n_heads + head, d_head);
}

// Of what the MLP of a layer adds, rows of tokens, replaces all if it is off.
export function replaceMlp({ config, means }, { by, mlps }, layer, rows) {
  const { d_model } = config;
  if (mlps.includes(layer)) replace(rows, 0, d_model, by, means.mlps, layer, d_model);
}

// `size` numbers of each row, from `start` on, by zeros or by a row of the means.
function replace(rows, start, width, by, means, row, size) {
  const value = by === "mean" ? means.subarray(row * size, (row + 1) * size) : new Float32Array(size);
  for (let i = start; i < rows.length; i += width) rows.set(value, i);
}

// The layers of what is off.
export function changed({ heads, mlps }) {
  return [...heads.map(([layer]) => layer), ...mlps];
}
