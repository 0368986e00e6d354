// What is displayed, and the fragment of the page's address that restores it.
//
//   text          what is typed
//   ids           the tokens that the model wrote, where the text would be split into others; or null
//   step          the checkpoint
//   layer, head   the selected head; null until one is chosen
//   token         the position of the selected token, -1 for none; null, or "", until one is chosen
//   place         the token whose place the probabilities are for; null for the next one
//   view          of the maps, see views.js; "change" for the difference that parts make that are off
//   off           parts that are switched off: {by, heads: [[layer, head]], mlps: [layer]}
//   sampling      {temperature, topK, topP, seed, length}
//   zoom          of the map, undefined until one zooms

import { anyOff } from "./edits.js";
import { closest, fragment, readLink, readZoom, whole, zoomText } from "./state.js";

export const SAMPLING = { temperature: 0.8, topK: 0, topP: 0.95, seed: 1, length: 200 }; // of sample.py

export const NEWEST = -2; // as `token`, until the text is read: the last one

export function writeFragment(state) {
  const { text, step, layer, head, token, place, off, sampling } = state;
  const parts = { text, step, layer, head, token, place };
  Object.assign(parts, { ids: state.ids?.join("."), zoom: zoomText(state.zoom) });
  if (state.view !== "weights") parts.view = state.view;
  if (off.heads.length) parts.heads = off.heads.map((each) => each.join(".")).join(",");
  if (off.mlps.length) parts.mlps = off.mlps.join(",");
  if (anyOff(off)) parts.by = off.by;
  for (const [name, value] of Object.entries(SAMPLING))
    if (sampling[name] !== value) parts[name] = sampling[name];
  return `#${fragment(parts)}`;
}

// The state that a fragment describes, as far as this model has it.
export function readFragment(fragment, { config, steps, run }, vocabulary) {
  const link = readLink(fragment, "");
  const { n_layers: layers, n_heads: heads } = config;
  const place = (name) => integerIn(link[name], 0, config.context_length - 1);
  const pairs = list(link.heads).map((each) => each.split(".").map(Number));
  const known = new Set(); // each head once
  const off = {
    by: link.by === "zero" ? "zero" : "mean",
    heads: pairs.filter(
      ([layer, head]) =>
        integerIn(layer, 0, layers - 1) !== null &&
        integerIn(head, 0, heads - 1) !== null &&
        !known.has(`${layer}.${head}`) &&
        known.add(`${layer}.${head}`),
    ),
    mlps: [...new Set(list(link.mlps).map(Number))].filter((each) => integerIn(each, 0, layers - 1) !== null),
  };
  const ids = link.ids?.split(".").map((id) => integerIn(id, 0, config.vocab_size - 1));
  const text = link.text ?? run.prompt;
  const isKnown = ids?.every((id) => id !== null);
  const fits = isKnown && vocabulary.decode(ids, vocabulary.begun({ text, ids })) === text; // another model has others
  return {
    text,
    ids: fits ? ids : null,
    step: closest(steps, whole(link.step, Infinity)),
    layer: integerIn(link.layer, 0, layers - 1),
    head: integerIn(link.head, 0, heads - 1),
    token: link.token === "" ? null : link.token === "-1" ? -1 : (place("token") ?? NEWEST),
    place: place("place"),
    view: ["moved", "change"].includes(link.view) ? link.view : "weights",
    off,
    sampling: readSampling(link),
    zoom: readZoom(link.zoom),
  };
}

// Those of check_sampling in Python, where 0 is greedy or off.
export const RANGES = {
  temperature: { zero: true, min: 1e-6, max: 100 },
  topK: { zero: true, min: 1, max: 2 ** 31 - 1, step: 1 },
  topP: { min: 1e-30, max: 1 },
  seed: { min: 0, max: 2 ** 32 - 1, step: 1 },
  length: { min: 1, max: 10_000, step: 1 },
};

// The value of a setting, or NaN if sampling does not know it.
export function samplingValue(name, text) {
  const { zero, min, max, step } = RANGES[name];
  const value = text === "" ? NaN : Number(text ?? NaN);
  const fits = (value >= min && value <= max) || (zero && value === 0);
  return fits && (!step || Number.isInteger(value)) ? value : NaN;
}

// Other values become the default.
export function readSampling(given) {
  const value = (name) => samplingValue(name, given[name]);
  return Object.fromEntries(
    Object.entries(SAMPLING).map(([name, usual]) => [name, Number.isNaN(value(name)) ? usual : value(name)]),
  );
}

function list(text) {
  return text ? text.split(",") : [];
}

function integerIn(text, least, most) {
  const value = whole(text, NaN);
  return value >= least && value <= most ? value : null;
}
