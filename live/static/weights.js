// Weights from the text that live/pack.py wrote, which says how they are laid out.

// The parameters of a checkpoint as {name: Float32Array}. `data`: the page's JSON; `text`: base64.
// Rejects a text that is damaged.
export async function unpack(data, text) {
  return parametersIn(data, await inflated(text));
}

// The same of the bytes in the text. Throws if they are damaged.
export function parametersIn({ parameters, weights }, bytes) {
  const sizes = parameters.map(([, shape]) => shape.reduce((size, axis) => size * axis, 1));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  const values = {
    float32: () => floats(bytes, 0, total),
    float16: () => halves(bytes, total),
    int8: () => scaled(bytes, parameters, sizes),
  }[weights]();
  let at = 0;
  return Object.fromEntries(
    parameters.map(([name], i) => [name, values.subarray(at, (at += sizes[i]))]),
  );
}

async function inflated(text) {
  const binary = atob(text);
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < packed.length; i++) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// `count` values from four planes of bytes that begin at `start`.
function floats(bytes, start, count) {
  check(bytes.length === start + 4 * count);
  const together = new Uint8Array(4 * count);
  for (let plane = 0; plane < 4; plane++) {
    const from = start + plane * count;
    for (let i = 0; i < count; i++) together[4 * i + plane] = bytes[from + i];
  }
  const [view, values] = [new DataView(together.buffer), new Float32Array(count)];
  for (let i = 0; i < count; i++) values[i] = view.getFloat32(4 * i, true);
  return values;
}

function halves(bytes, count) {
  check(bytes.length === 2 * count);
  const known = Float32Array.from({ length: 1 << 16 }, (_, bits) => half(bits));
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = known[bytes[i] | (bytes[count + i] << 8)];
  return values;
}

// The number with these 16 bits (IEEE 754 binary16).
function half(bits) {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -24 * fraction);
}

function scaled(bytes, parameters, sizes) {
  const isMatrix = ([, shape]) => shape.length > 1;
  const count = (kind) => sizes.reduce((n, size, i) => n + (isMatrix(parameters[i]) ? kind(i) : 0), 0);
  const integers = count((i) => sizes[i]);
  const vectors = sizes.reduce((n, size) => n + size, 0) - integers;
  const rest = floats(bytes, integers, count((i) => parameters[i][1][0]) + vectors);
  const values = new Float32Array(integers + vectors);
  let [at, next, place] = [0, 0, 0]; // among the integers, the floats, the values
  parameters.forEach(([, shape], i) => {
    if (!isMatrix(parameters[i])) {
      values.set(rest.subarray(next, (next += sizes[i])), place);
      place += sizes[i];
      return;
    }
    for (let row = 0; row < shape[0]; row++, next++) {
      for (let column = 0; column < shape[1]; column++) {
        values[place++] = ((bytes[at++] << 24) >> 24) * rest[next];
      }
    }
  });
  return values;
}

function check(fits) {
  if (!fits) throw new Error("The weights in this page are damaged.");
}
