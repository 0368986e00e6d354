// What a head does, as its sentence says, and which head and token are shown first.

// By which heads are chosen in older logs, which have no sentences.
const PATTERNS = ["copy", "induction", "duplicate token", "previous token"];

export function sentenceOf({ header }, layer, head) {
  return header.sentences?.[layer]?.[head]?.[0] ?? "";
}

// Fills in what a state leaves open (null): the most interesting head, and a token for which it shows
// what it does. As long as no token was chosen, each head has its own. Replaces what the maps do not
// have by the nearest that they have.
export class Opening {
  settle(state, maps) {
    const { heads, scores } = maps.header;
    const within = (value, count) => Math.min(Math.max(0, value), count - 1);
    const [layer, head] = state.layer === null ? mostInteresting(maps) : [state.layer, 0];
    state.layer = within(layer, heads.length);
    state.head = within(state.head ?? head, heads[state.layer]);
    this.follows ||= state.token === null;
    const shown = JSON.stringify([state.one.run, state.one.tag, state.layer, state.head]);
    if (this.follows && shown !== this.shown) state.token = bestToken(maps, state.layer, state.head);
    this.shown = shown;
    if (state.token !== -1) state.token = within(state.token, maps.texts.length);
    if (!Object.hasOwn(scores, state.sort)) state.sort = "";
  }

  // A token was chosen, or none.
  chosen() {
    this.follows = false;
  }
}

function mostInteresting(maps) {
  const { sentences } = maps.header;
  const interest = ([layer, head]) =>
    sentences
      ? sentences[layer][head][2]
      : Math.max(...PATTERNS.map((name) => maps.score(name, layer, head) || 0));
  const heads = maps.heads();
  const found = heads.map(interest);
  return heads[found.indexOf(found.reduce((most, each) => Math.max(most, each)))];
}

// The query of the example; without one, the query with the largest weight, which counts less where
// there are few keys.
function bestToken(maps, layer, head) {
  const example = maps.header.sentences?.[layer]?.[head]?.[1];
  if (example) return example[0];
  let [best, most] = [maps.n - 1, 0];
  for (let query = 0; query < maps.n; query++) {
    const [start, length] = maps.row(maps.headIndex(layer, head), query);
    for (let key = 0; key < length; key++) {
      const weight = maps.bytes[start + key] ** 2 * (1 - 1 / length);
      if (weight > most) [best, most] = [query, weight];
    }
  }
  return best;
}
