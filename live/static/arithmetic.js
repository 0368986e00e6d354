// What the model is computed of, on rows of numbers: a Float32Array holds one row after the other.
// Sums are taken in double precision; what is stored is float32.

// A matrix, and a bias or none (twin of nn.Linear).
export class Linear {
  // weight: one row for each output.
  constructor(weight, bias, inputs) {
    Object.assign(this, { weight, bias, inputs, outputs: weight.length / inputs });
  }

  // The part for `count` inputs from `start` on, without the bias.
  columns(start, count) {
    const { weight, inputs, outputs } = this;
    const part = new Float32Array(outputs * count);
    for (let o = 0; o < outputs; o++)
      part.set(weight.subarray(o * inputs + start, o * inputs + start + count), o * count);
    return new Linear(part, null, count);
  }

  // The part of `count` outputs from `start` on, without the bias.
  rows(start, count) {
    const { weight, inputs } = this;
    return new Linear(weight.subarray(start * inputs, (start + count) * inputs), null, inputs);
  }

  // x W^T + b, of every row of x. Four outputs at a time: each number of x is loaded once for all.
  of(x, y = new Float32Array((x.length / this.inputs) * this.outputs)) {
    const { weight, bias, inputs, outputs } = this;
    const rows = x.length / inputs;
    for (let o = 0; o + 4 <= outputs; o += 4) {
      const [first, second, third] = [(o + 1) * inputs, (o + 2) * inputs, (o + 3) * inputs];
      for (let row = 0; row < rows; row++) {
        let [a, b, c, d] = bias ? [bias[o], bias[o + 1], bias[o + 2], bias[o + 3]] : [0, 0, 0, 0];
        const at = row * inputs;
        for (let i = 0; i < inputs; i++) {
          const each = x[at + i];
          a += each * weight[o * inputs + i];
          b += each * weight[first + i];
          c += each * weight[second + i];
          d += each * weight[third + i];
        }
        const to = row * outputs + o;
        y[to] = a;
        y[to + 1] = b;
        y[to + 2] = c;
        y[to + 3] = d;
      }
    }
    for (let o = outputs - (outputs % 4); o < outputs; o++)
      for (let row = 0; row < rows; row++)
        y[row * outputs + o] = dot(x, row * inputs, weight, o * inputs, inputs) + (bias?.[o] ?? 0);
    return y;
  }
}

// The product of `count` numbers of x, from `i` on, with those of y from `j` on.
export function dot(x, i, y, j, count) {
  let sum = 0;
  for (let k = 0; k < count; k++) sum += x[i + k] * y[j + k];
  return sum;
}

// y += factor x, for `count` numbers of x from `i` on and of y from `j` on.
export function add(y, j, x, i, count, factor = 1) {
  for (let k = 0; k < count; k++) y[j + k] += factor * x[i + k];
}

// A norm over rows as wide as its gain (twin of nn.LayerNorm, nn.RMSNorm). `centred`: LayerNorm.
export class Norm {
  constructor(gain, bias, eps, centred) {
    Object.assign(this, { gain, bias, eps, centred, width: gain.length });
  }

  of(x, y = new Float32Array(x.length)) {
    const { bias, width } = this;
    for (let at = 0; at < x.length; at += width) {
      const row = x.subarray(at, at + width);
      this.#scaled(row, this.#scale(row), y, at);
      if (bias) add(y, at, bias, 0, width);
    }
    return y;
  }

  // What a part of the row x becomes, at the scale of x and without the bias: of parts that sum to x,
  // these sum to the norm of x without its bias.
  part(part, x) {
    const y = new Float32Array(part.length);
    this.#scaled(part, this.#scale(x), y, 0);
    return y;
  }

  #scaled(row, scale, y, at) {
    const { gain, width } = this;
    const mean = this.#mean(row);
    for (let i = 0; i < width; i++) y[at + i] = ((row[i] - mean) / scale) * gain[i];
  }

  #scale(row) {
    const mean = this.#mean(row);
    const square = row.reduce((sum, each) => sum + (each - mean) ** 2, 0) / this.width;
    return Math.sqrt(square + this.eps);
  }

  #mean(row) {
    return this.centred ? row.reduce((sum, each) => sum + each, 0) / this.width : 0;
  }
}

// Turns `count` scores, from `at` on, into weights that sum to one.
export function softmax(x, at = 0, count = x.length) {
  let [most, sum] = [-Infinity, 0];
  for (let i = at; i < at + count; i++) most = Math.max(most, x[i]);
  for (let i = at; i < at + count; i++) sum += x[i] = Math.exp(x[i] - most);
  for (let i = at; i < at + count; i++) x[i] /= sum;
  return x;
}

// The logarithm of the sum of the exponentials of `count` logits from `at` on.
export function logSumExp(x, at = 0, count = x.length) {
  let [most, sum] = [-Infinity, 0];
  for (let i = at; i < at + count; i++) most = Math.max(most, x[i]);
  for (let i = at; i < at + count; i++) sum += Math.exp(x[i] - most);
  return most + Math.log(sum);
}

// The tanh approximation of GELU (twin of F.gelu(approximate="tanh")), in place.
export function gelu(x) {
  const factor = Math.sqrt(2 / Math.PI);
  for (let i = 0; i < x.length; i++) {
    const each = x[i];
    x[i] = 0.5 * each * (1 + Math.tanh(factor * (each + 0.044715 * each ** 3)));
  }
  return x;
}

// silu(gate) times up, in place of gate.
export function swiglu(gate, up) {
  for (let i = 0; i < gate.length; i++) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
  return gate;
}
