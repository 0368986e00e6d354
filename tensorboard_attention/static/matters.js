// The passages in which a head matters most: a token whose loss rises without it, and what it looked
// at there.

import { el, tokenLabel } from "./dom.js";

const SHOWN_BEFORE = 7; // tokens that are shown before the one whose loss rises
const SHOWN_BESIDE = 1; // and beside one that was looked at
const LOOKED_AT = 0.1; // weight of a token that is marked

// The tokens of a passage, with the places between them left out as "…".
// marks: by place, the attributes of its token. from, to: how much is shown before and after a place.
export function passage({ windows, ids, spelled }, at, marks = new Map([[at, { class: "rises" }]])) {
  let [first, end] = [0, 0];
  for (const length of windows) {
    [first, end] = [end, end + length];
    if (at < end) break;
  }
  const wanted = new Set();
  for (const place of marks.keys()) {
    const before = place === at ? SHOWN_BEFORE : SHOWN_BESIDE;
    for (let i = Math.max(first, place - before); i <= Math.min(end - 1, place + SHOWN_BESIDE); i++) wanted.add(i);
  }
  const places = [...wanted].sort((a, b) => a - b);
  return places.flatMap((place, i) => {
    const text = tokenLabel(spelled[ids[place]]).replaceAll("·", " ");
    const gap = place - 1 !== (places[i - 1] ?? first - 1) ? ["… "] : [];
    return [...gap, marks.has(place) ? el("mark", marks.get(place), text) : text];
  });
}

export class Matters {
  constructor() {
    this.list = el("ol", {});
    const about = "By how many nats the loss of the framed token rises when this head is replaced by its mean over all measured tokens. Blue: what the head looked at to predict it.";
    this.about = el("p", { class: "small" }, about);
    this.node = el("section", { class: "matters" }, el("h3", {}, "Where this head matters"), this.about, this.list);
  }

  show({ evidence }, layer, head) {
    const found = evidence?.heads[`L${layer}H${head}`];
    this.node.hidden = !found?.passages.length;
    if (this.node.hidden || this.shown === found) return;
    this.shown = found;
    this.list.replaceChildren(
      ...found.passages.map(([at, rise, attended]) => {
        const looked = attended.filter(([, weight]) => weight >= LOOKED_AT);
        const marks = new Map(looked.map(([place, weight]) => [place, lookedAt(weight)]));
        marks.set(at, { class: "rises" });
        return el("li", {}, el("b", {}, `+${rise.toFixed(2)}`), el("span", {}, ...passage(evidence, at, marks)));
      }),
    );
  }
}

function lookedAt(weight) {
  return { class: "looked", style: `--to-share: ${(100 * weight).toFixed(0)}%`, title: `${(100 * weight).toFixed(0)}% of its attention` };
}
