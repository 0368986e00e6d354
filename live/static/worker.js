// The only place that holds a model: answers the messages of the page.
//
// Each question has an id and a type, and its answer has the id: parts of answers that come one by
// one have `part`; one that a newer question of its type has replaced is {cancelled}; one that failed
// {error}. Work is done in pieces, and between two of them a newer question is seen. Questions about
// the text at hand come before writing and trying every subset of parts.

import { softmax } from "./arithmetic.js";
import { anyOff, changed, nothingOff } from "./edits.js";
import { Model } from "./engine.js";
import { attribution, circuit, lens, neuronInText, scoreTerms, strongest } from "./insight.js";
import { triangle } from "./memory.js";
import { Reading } from "./reading.js";
import { generate, largest } from "./sampling.js";
import { tryParts } from "./subsets.js";
import { windowStart } from "./window.js";
import { parametersIn, unpack } from "./weights.js";

const KEPT = 6; // readings
const SHOWN = 10; // most likely tokens
const CANCELLED = new Error("A newer question has taken its place.");

const newest = {}; // the id of the newest question of each type
const readings = new Map(); // the last that were used, the newest at the end
const models = new Map(); // promises of them, by step
let page; // {data, weights}
let turn = Promise.resolve(); // of the questions about the text at hand: one after the other
let waiting = 0; // such questions

onmessage = async ({ data: { id, type, ...question } }) => {
  newest[type] = id;
  try {
    postMessage({ id, ...(await ANSWERS[type](question, id)) });
  } catch (error) {
    postMessage({ id, ...(error === CANCELLED ? { cancelled: true } : { error: error.message }) });
  }
};

const ANSWERS = {
  async load({ data, weights }) {
    page = { data, weights };
    if (weights.length) await modelAt(data.steps.at(-1));
    return { ready: true };
  },

  // Weights that come later: as bytes, of a new step or of one that has changed.
  add({ step, bytes }) {
    const tensors = parametersIn(page.data, new Uint8Array(bytes));
    ANSWERS.drop({ steps: [step] });
    models.set(step, Promise.resolve(new Model(page.data.config, tensors)));
    return { done: true };
  },

  // Steps that there are no longer.
  drop({ steps }) {
    for (const step of steps) models.delete(step);
    readings.clear();
    return { done: true };
  },

  read: (question, id) => inTurn(() => read(question, () => newest.read !== id)),

  next: (question) => inTurn(async () => ({ rows: await next(question) })),

  lens: (question) =>
    inTurn(async () => {
      const reading = await readingOf(question);
      const columns = [];
      for (let place = 0; place < reading.length; place++) {
        columns.push(lens(reading, place, question.k));
        await breath();
      }
      return { layers: reading.layers.map((_, layer) => columns.map((each) => each[layer])) };
    }),

  attribution: (question) =>
    inTurn(async () => attribution(await readingOf(question), question.i, question.token)),

  circuit: (question) =>
    inTurn(async () => {
      const { layer, head, i, k } = question;
      return circuit(await readingOf(question), layer, head, i, k);
    }),

  // chosen: the neuron that is shown in the text; null for the strongest one.
  neurons: (question) =>
    inTurn(async () => {
      const reading = await readingOf(question);
      const found = strongest(reading, question.i, question.k);
      const { layer, neuron } = question.chosen ?? found[0];
      return { strongest: found, shown: neuronInText(reading, layer, neuron, question.k) };
    }),

  score: (question) =>
    inTurn(async () => {
      const { layer, head, i, j } = question;
      return { terms: scoreTerms(await readingOf(question), layer, head, i, j) };
    }),

  async write({ step, ids, off, settings, n }, id, type = "write") {
    const reading = await inTurn(async () => (await readingOf({ step, off, ids: seen(ids) })).copy());
    return stream(type, id, generate(reading, ids, n, settings, SHOWN));
  },

  // Writes beside the text, of which it gives the losses: `stop` does not end it.
  async goOn({ step, ids, off, ...how }, id) {
    const losses = await inTurn(async () => (await readingOf({ step, off, ids: seen(ids) })).losses());
    return { ...(await ANSWERS.write({ step, ids, off, ...how }, id, "goOn")), losses };
  },

  // What the model says of the token `target` after a text with every subset of its parts on.
  async subsets({ step, ...question }, id) {
    return stream("subsets", id, tryParts(await modelAt(step), question));
  },

  // of: the type of the question whose answer is no longer wanted.
  stop({ of }) {
    newest[of] = null;
    return { done: true };
  },
};

// The tokens that the model sees when it goes on after a text.
function seen(ids) {
  return ids.slice(windowStart(ids.length, page.data.config.context_length));
}

// The k most likely tokens after token i, with the likeliest one before parts were off and the one
// that is there, and `more`.
async function next({ step, ids, off, i, k, more = [] }, cancelled) {
  const after = async (parts) =>
    softmax((await readingOf({ step, ids, off: parts }, cancelled)).logits(i));
  const now = await after(off);
  const before = anyOff(off) ? await after(nothingOff()) : undefined;
  const shown = largest(now, k).concat(before ? largest(before, 1) : []).map(([id]) => id);
  const unique = new Set(shown.concat(ids.slice(i + 1, i + 2), more));
  return Array.from(unique, (id) => ({ id, now: now[id], before: before?.[id] }));
}

// Everything that the page shows of a text. view: "weights" or "moved".
async function read({ step, ids, off, view }, cancelled) {
  const of = (reading) => ({ maps: mapsOf(reading, view), losses: reading.losses() });
  const answer = of(await readingOf({ step, ids, off }, cancelled));
  if (anyOff(off)) answer.before = of(await readingOf({ step, ids }, cancelled));
  const rows = await next({ step, ids, off, i: ids.length - 1, k: SHOWN }, cancelled);
  return { ...answer, rows };
}

// The triangles of all heads, one after the other, layer by layer.
function mapsOf(reading, view) {
  const { n_layers, n_heads } = page.data.config;
  const size = triangle(reading.length);
  const maps = new Float32Array(n_layers * n_heads * size);
  for (let i = 0; i < n_layers * n_heads; i++) {
    const [layer, head] = [Math.floor(i / n_heads), i % n_heads];
    const map = maps.subarray(i * size, (i + 1) * size);
    map.set(reading.weights(layer, head));
    if (view === "moved") toShares(map, reading.valueNorms(layer, head));
  }
  return maps;
}

// Makes weights the shares of what is moved to each token: of weights times the norm of what is moved.
function toShares(weights, norms) {
  for (let [i, at] = [0, 0]; i < norms.length; at += ++i) {
    let sum = 0;
    for (let j = 0; j <= i; j++) sum += weights[at + j] *= norms[j];
    for (let j = 0; j <= i; j++) weights[at + j] /= sum || 1;
  }
}

// The parts of an answer, one by one, while nothing is asked about the text at hand.
async function stream(type, id, pieces) {
  for (const part of pieces) {
    if (part) postMessage({ id, part: true, ...part });
    do await breath();
    while (waiting);
    if (newest[type] !== id) throw CANCELLED;
  }
  return { done: true };
}

// A reading of `ids` by the model of a step, of which only what is new is read.
async function readingOf({ step, ids, off = nothingOff() }, cancelled = () => false) {
  if (!ids.length) throw new RangeError("There is no token to read.");
  const intact = await kept([step], async () => new Reading(await modelAt(step)));
  await run(intact.follow(ids), cancelled);
  if (!anyOff(off)) return intact;
  const { by, heads, mlps } = off;
  const reading = await kept([step, by, heads, mlps], () =>
    run(intact.switched(off, Math.min(...changed(off))), cancelled),
  );
  await run(reading.follow(ids), cancelled);
  return reading;
}

async function kept(about, make) {
  const key = JSON.stringify(about);
  const found = readings.get(key) ?? (await make());
  readings.delete(key);
  readings.set(key, found);
  if (readings.size > KEPT) readings.delete(readings.keys().next().value);
  return found;
}

function modelAt(step) {
  if (!models.has(step)) models.set(step, unpacked(step));
  return models.get(step);
}

async function unpacked(step) {
  const { data, weights } = page;
  const at = data.steps.indexOf(step);
  if (at < 0) throw new RangeError(`This page has no step ${step}.`);
  return new Model(data.config, await unpack(data, weights[at]));
}

// What a generator returns that works in pieces; a newer question is seen between two of them.
async function run(pieces, cancelled) {
  for (;;) {
    if (cancelled()) throw CANCELLED;
    const { done, value } = pieces.next();
    if (done) return value;
    await breath();
  }
}

function inTurn(answer) {
  waiting++;
  const done = turn.then(answer).finally(() => waiting--);
  turn = done.catch(() => {});
  return done;
}

// Lets messages in. A timer would wait for milliseconds.
const channel = new MessageChannel();
const held = []; // breaths
channel.port1.onmessage = () => held.shift()();
function breath() {
  return new Promise((resolve) => {
    held.push(resolve);
    channel.port2.postMessage(null);
  });
}
