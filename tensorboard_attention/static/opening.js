// What a head does, as its sentence says, and which head and token are shown first.

// What all heads do, and which of them the loss depends on most, where that was measured.
export function overviewOf(maps) {
  const { overview, scores } = maps.header;
  const value = ([layer, head]) => scores.importance?.[layer]?.[head] ?? -Infinity;
  const heads = maps.heads();
  const [layer, head] = heads.reduce((best, each) => (value(each) > value(best) ? each : best), heads[0]);
  const most = value([layer, head]) > 0 ? `; the loss depends most on L${layer}H${head}` : "";
  return `${overview}${most}.`;
}

export function sentenceOf({ header }, layer, head) {
  return header.sentences[layer]?.[head]?.[0] ?? ""; // of two models, one can lack the head
}

// Fills in what a state leaves open (null): the head with the clearest role, and a token for which it
// shows what it does. As long as no head was chosen, each run has its own, and so has each head as long
// as no token was chosen. Replaces what the maps do not have by the nearest that they have.
export class Opening {
  settle(state, maps) {
    const { heads, scores } = maps.header;
    const within = (value, count) => Math.min(Math.max(0, value), count - 1);
    this.followsRun ||= state.layer === null;
    const opens = state.layer === null || (this.followsRun && state.one.run !== this.run);
    this.run = state.one.run;
    if (opens) state.head = null;
    const [layer, head] = opens ? mostInteresting(maps) : [state.layer, 0];
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

  // A head was chosen.
  chosenHead() {
    this.followsRun = false;
  }
}

function mostInteresting(maps) {
  const interest = ([layer, head]) => maps.header.sentences[layer][head][2];
  return maps.heads().reduce((best, each) => (interest(each) > interest(best) ? each : best));
}

// The query of the example; without one, the query with the largest weight, which counts less where
// there are few keys.
function bestToken(maps, layer, head) {
  const example = maps.header.sentences[layer][head][1];
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
