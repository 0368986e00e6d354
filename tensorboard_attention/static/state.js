// What is displayed, and the link that restores it.
//
//   one, two      {run, tag, step}; two is null unless two views are compared
//   layer, head   the selected head
//   token         the position of the selected token, -1 for none
//   key           the key of the selected cell, in the row of the token; undefined for none
//   difference    whether the difference of two views is shown
//   twins         whether the second of two views shows the twin of the head; undefined: of another run
//   zoom          [zoom, x, y] of the visible part of the map, undefined until one zooms
//   sort, rising  the order of heads: a score's name, or "" for layer by layer; smallest first or not

const PREFIX = "p.attention."; // TensorBoard keeps keys with this prefix in its address

// The parts of a fragment whose keys begin with a prefix, by the rest of their keys.
export function readLink(hash, prefix = PREFIX) {
  const found = Object.create(null);
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at <= prefix.length || !part.startsWith(prefix)) continue;
    try {
      found[part.slice(prefix.length, at)] = decodeURIComponent(part.slice(at + 1));
    } catch {
      // The link was cut within a character. Its other parts may still be valid.
    }
  }
  return found;
}

// steps: what stands for the steps of the two views.
export function linkHash(state, steps = [state.one.step, state.two?.step]) {
  const { one, two, layer, head, token, key, sort, rising } = state;
  const parts = { run: one.run, tag: one.tag, step: steps[0], layer, head, token, key, zoom: zoomText(state.zoom) };
  if (sort) Object.assign(parts, { sort, rising: Number(rising) });
  if (two) Object.assign(parts, { run2: two.run, tag2: two.tag, step2: steps[1] });
  if (two && state.difference) parts.difference = 1;
  if (two && state.twins !== undefined) parts.twins = Number(state.twins);
  return `#attention&${fragment(parts, PREFIX)}`;
}

export function fragment(parts, prefix = "") {
  const pairs = Object.entries(parts).filter(([, value]) => value != null);
  return pairs.map(([key, value]) => `${prefix}${key}=${encodeURIComponent(value)}`).join("&");
}

export function zoomText(zoom) {
  return zoom?.map((each) => +each.toFixed(4)).join();
}

// The state that a link describes, as far as it exists in these runs.
export function restore(link, runs) {
  const one = nearest(runs, { run: link.run, tag: link.tag, step: link.step });
  return {
    one,
    two:
      "run2" in link ? nearest(runs, { run: link.run2, tag: link.tag2, step: link.step2 }) : null,
    layer: whole(link.layer, null), // opening.js chooses
    head: whole(link.head, null),
    token: whole(link.token, null),
    key: whole(link.key, undefined),
    sort: link.sort ?? "",
    rising: link.rising === "1",
    difference: link.difference === "1",
    twins: { 0: false, 1: true }[link.twins],
    zoom: readZoom(link.zoom),
  };
}

// The requested view, or the nearest one. Defaults: the last run (the newest, if runs are named by
// time), its first probe, its last step.
export function nearest(runs, { run, tag, step }) {
  if (!Object.hasOwn(runs, run)) run = Object.keys(runs).at(-1);
  const tags = runs[run];
  if (!Object.hasOwn(tags, tag)) tag = Object.keys(tags)[0];
  return { run, tag, step: closest(tags[tag], whole(step, Infinity)) };
}

// The step that is nearest to one; the last of several.
export function closest(steps, wanted) {
  const distance = (step) => Math.abs(step - wanted);
  return steps.reduce((best, step) => (distance(step) <= distance(best) ? step : best));
}

// How many views there are to choose from.
export function countViews(runs) {
  return Object.values(runs).flatMap((tags) => Object.values(tags).flat()).length;
}

export function readZoom(text = "") {
  const numbers = text.split(",").map(Number);
  return numbers.length === 3 && numbers.every(Number.isFinite) ? numbers : undefined;
}

export function whole(text, otherwise) {
  const value = Number(text);
  return text != null && text !== "" && Number.isInteger(value) ? value : otherwise;
}
