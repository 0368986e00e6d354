// Where maps come from: TensorBoard's log folder, or the page they are embedded in. Both have
// runs(), maps(run, tag, step) and scores(run, tag); Store caches their results.

import { Maps } from "./maps.js";

export class Logs {
  follows = true; // training may be running: look for new steps

  versions = {}; // by run; a version changes when old steps of the run change
  followed = []; // runs that a live page can follow
  losses = {}; // by run that has losses of tokens: a text that changes with them
  evidence = {}; // the same of what its heads and neurons do
  notes = []; // what is not shown, and why
  complete = true; // false if some of the log is still to be read

  async runs() {
    const { steps, ...rest } = await (await ask("runs")).json();
    Object.assign(this, rest);
    return steps;
  }

  async maps(run, tag, step) {
    const [header, rest] = framed(await (await ask("maps", { run, tag, step })).arrayBuffer());
    return unpack(header, rest);
  }

  async scores(run, tag) {
    const [{ steps, texts, kinds, columns }, rest] = framed(await (await ask("scores", { run, tag })).arrayBuffer());
    const values = new Float32Array(rest.slice().buffer);
    let end = 0;
    return curves(
      steps.map((step, i) => {
        const { names, measured, heads } = columns[kinds[i]];
        const start = end;
        end += names.length * sum(heads);
        return { step, text: texts[i], names, measured, heads, values: values.subarray(start, end) };
      }),
    );
  }

  // [layer, head, layer, head of its twin, overlap] of each head of two views.
  async twins(one, two) {
    const query = { ...one, run2: two.run, tag2: two.tag, step2: two.step };
    return (await ask("twins", query)).json();
  }

  // The "losses" (losses.py) or the "evidence" (evidence.py) of a run, or null.
  async beside(kind, run) {
    if (!Object.hasOwn(this[kind], run)) return null;
    const file = kind === "losses" ? "losses.jsonl" : "evidence.json";
    return (await ask(kind, { run }, async (answer) => `${file} is not read: ${await answer.text()}`)).json();
  }
}

// What a page holds: a log that does not change, and has nothing beside its maps.
export class Embedded extends Logs {
  follows = false;
  beside = async () => null;
  twins = async () => [];

  // entries: with a tag, a step and maps each, whose headers are in the same order.
  constructor({ run, entries }, headers) {
    super();
    this.run = run;
    this.entries = entries.map((each, i) => ({ ...each, header: headers[i] }));
  }

  async runs() {
    const tags = Object.create(null);
    for (const { tag, step } of this.entries) (tags[tag] ??= []).push(step);
    for (const steps of Object.values(tags)) steps.sort((a, b) => a - b);
    return Object.keys(tags).length ? { [this.run]: tags } : {};
  }

  async maps(run, tag, step) {
    const entry = this.entries.find((each) => each.tag === tag && each.step === step);
    return unpack(
      entry.header,
      Uint8Array.from(atob(entry.maps), (c) => c.charCodeAt(0)),
    );
  }

  async scores(run, tag) {
    const entries = this.entries.filter((each) => each.tag === tag).sort((a, b) => a.step - b.step);
    return curves(
      entries.map(({ step, header }) => {
        const { tokens, keys, scores, measured, heads } = header;
        const names = Object.keys(scores);
        return {
          ...{ step, text: JSON.stringify([tokens, keys]), names, heads },
          measured: names.map((name) => measured[name] ?? ""),
          values: Float32Array.from(Object.values(scores).flat(2), (value) => value ?? NaN),
        };
      }),
    );
  }
}

const sum = (numbers) => numbers.reduce((all, each) => all + each, 0);

// The scores of all steps: those of the last step, and those that only earlier ones with as many
// heads have. values: by step, score and head; NaN where a score is missing, of other heads, or
// measured on another text than at the last step that has it.
// found: of each step, its text, the names of its scores, where each was measured, its heads, and
// the values by score and head.
function curves(found) {
  const { heads } = found.at(-1);
  const hasThem = (each) => `${each.heads}` === `${heads}`;
  const places = new Map();
  for (const { names, measured } of found.filter(hasThem).reverse())
    names.forEach((name, i) => places.has(name) || places.set(name, measured[i]));
  const names = [...places.keys()];
  const size = sum(heads);
  const values = new Float32Array(found.length * names.length * size).fill(NaN);
  found.forEach((each, step) => {
    const known = hasThem(each) ? each.names : [];
    known.forEach((name, i) => {
      if (each.measured[i] !== places.get(name)) return;
      const row = step * names.length + names.indexOf(name);
      values.set(each.values.subarray(i * size, (i + 1) * size), row * size);
    });
  });
  return { names, heads, steps: found.map(({ step }) => step), texts: found.map(({ text }) => text), values };
}

const MOST_BYTES = 256e6;

export class Store {
  #maps = new Map(); // least recently used first
  #scores = new Map();
  #beside = {};
  #twins = null;
  #bytes = 0;

  constructor(source) {
    this.source = source;
  }

  maps({ run, tag, step }) {
    const key = JSON.stringify([run, this.source.versions[run], tag, step]);
    const known = this.#maps.get(key);
    const answer = known ?? this.source.maps(run, tag, step);
    this.#maps.delete(key);
    this.#maps.set(key, answer);
    if (!known) {
      answer.then(
        (maps) => this.#count(maps.bytes.length),
        () => this.#maps.delete(key),
      );
    }
    return answer;
  }

  // The scores of all steps. Loaded again if the steps have changed, or after a failure.
  scores({ run, tag }, steps) {
    const key = JSON.stringify([run, tag]);
    const state = JSON.stringify([this.source.versions[run], steps]);
    if (this.#scores.get(key)?.state !== state) {
      const answer = this.source.scores(run, tag);
      answer.catch(() => this.#scores.delete(key));
      this.#scores.set(key, { state, answer });
    }
    return this.#scores.get(key).answer;
  }

  // The twins of two views of the same text; none if they cannot be had.
  twins(one, two) {
    const state = JSON.stringify([one, two, this.source.versions[one.run], this.source.versions[two.run]]);
    if (this.#twins?.state !== state)
      this.#twins = { state, answer: this.source.twins(one, two).catch(() => []) };
    return this.#twins.answer;
  }

  // The losses or the evidence of a run. Loaded again if they have changed.
  beside(kind, run) {
    const state = `${this.source[kind][run]}`;
    const known = (this.#beside[kind] ??= new Map());
    if (known.get(run)?.state !== state) known.set(run, { state, answer: this.source.beside(kind, run) });
    return known.get(run).answer;
  }

  // The maps of a step, with the evidence if it is of their model, and with those of the step before.
  async completed(view, steps) {
    const maps = await this.maps(view);
    const evidence = await this.beside("evidence", view.run).catch(() => null);
    const fits = evidence && maps.heads().every(([l, h]) => Object.hasOwn(evidence.heads, `L${l}H${h}`));
    const isOf = (step) => fits && evidence.step === step;
    maps.evidence = isOf(view.step) ? evidence : null;
    if (maps.evidence) measureAnew(maps);
    const step = steps.findLast((each) => each < view.step);
    const before = step === undefined ? null : await this.maps({ ...view, step }).catch(() => null);
    const isSame = before && `${before.header.heads}` === `${maps.header.heads}`;
    // Its names alone are kept, and not its maps.
    maps.earlier = isSame ? { step, header: before.header, evidence: isOf(step) ? evidence : null } : null;
    return maps;
  }

  async #count(bytes) {
    this.#bytes += bytes;
    for (const [key, answer] of this.#maps) {
      if (this.#bytes <= MOST_BYTES || this.#maps.size <= 4) return;
      this.#maps.delete(key);
      this.#bytes -= (await answer.catch(() => null))?.bytes.length ?? 0;
    }
  }
}

// Gives the maps the scores of their evidence, which are of more texts than those that were logged.
function measureAnew(maps) {
  const { heads, where, n_tokens } = maps.evidence;
  const known = Object.values(heads);
  const names = new Set(known.flatMap(({ shares }) => Object.keys(shares)));
  for (const name of names) {
    const [, count] = known.find(({ shares }) => Object.hasOwn(shares, name)).shares[name];
    maps.measure(name, (l, h) => heads[`L${l}H${h}`].shares[name]?.[0] ?? null, where, count);
  }
  maps.measure("need", (l, h) => heads[`L${l}H${h}`].need[0], where, n_tokens);
  maps.header.meanings.need ??= "rise of the loss in nats per token without the head";
  maps.header.units.need ??= "nats per token";
}

// The server is down or cannot be reached.
export class Unreachable extends Error {}

// gone: what to say if it is not there.
async function ask(route, query = {}, gone = () => "These maps are no longer in the log.") {
  const answer = await fetch(`${route}?${new URLSearchParams(query)}`).catch(() => {
    throw new Unreachable("TensorBoard does not answer. Is it still running?");
  });
  if (!answer.ok)
    throw new Error(
      answer.status === 404
        ? await gone(answer)
        : `TensorBoard returned HTTP status ${answer.status}.`,
    );
  return answer;
}

function framed(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  return [header, new Uint8Array(buffer, 4 + length)];
}

async function unpack(header, packed) {
  const maps = new Maps(header);
  try {
    maps.bytes = await inflate(packed, maps.count * maps.size);
  } catch {
    throw new Error("The maps of this step are damaged: they do not fit their header.");
  }
  return maps;
}

// Few bytes can inflate to a thousand times as many, and a browser inflates a chunk at once. In small
// chunks, it stops soon after the expected size.
const CHUNK = 16384;

async function inflate(packed, size) {
  const bytes = new Uint8Array(size);
  let [taken, end] = [0, 0];
  const chunks = new ReadableStream({
    pull(controller) {
      if (taken < packed.length) controller.enqueue(packed.subarray(taken, (taken += CHUNK)));
      else controller.close();
    },
  });
  const reader = chunks.pipeThrough(new DecompressionStream("deflate")).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (!done && end + value.length <= size) {
      bytes.set(value, end);
      end += value.length;
    } else if (done && end === size) {
      return bytes;
    } else {
      reader.cancel().catch(() => {});
      throw new Error(`${size} bytes were expected`);
    }
  }
}
