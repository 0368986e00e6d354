// A placeholder that unpacks the weights.

import { unpack } from "./weights.js";

onmessage = async ({ data: { id, data, weights } }) => {
  const tensors = await unpack(data, weights[0]);
  const parameters = Object.values(tensors).reduce((sum, each) => sum + each.length, 0);
  postMessage({ id, ready: true, parameters });
};
