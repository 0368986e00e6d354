// Which head and token are shown first.

import { earned } from "./marks.js";
import { interestOf } from "./naming.js";

// Fills in what a state leaves open (null): the head with the clearest role, and a token for which it
// shows what it does. As long as no head was chosen, each run has its own, and so has each head as long
// as no token was chosen. Replaces what the maps do not have by the nearest that they have.
export class Opening {
  settle(state, maps) {
    const { heads } = maps.header;
    const within = (value, count) => Math.min(Math.max(0, value), count - 1);
    this.followsRun ||= state.layer === null;
    const opens = state.layer === null || (this.followsRun && state.one.run !== this.run);
    this.run = state.one.run;
    if (opens) state.head = null;
    const [layer, head] = opens ? mostInteresting(maps) : [state.layer, 0];
    state.layer = within(layer, heads.length);
    state.head = within(state.head ?? head, heads[state.layer]);
    const isOpen = state.token === null;
    this.follows ||= isOpen;
    const shown = JSON.stringify([state.one.run, state.one.tag, state.layer, state.head]);
    if (isOpen || (this.follows && shown !== this.shown))
      state.token = bestToken(maps, state.layer, state.head);
    this.shown = shown;
    if (state.token !== -1) state.token = within(state.token, maps.texts.length);
  }

  // What a link leaves open of a state: what would be chosen again.
  open({ layer, head, token }, maps) {
    const first = this.followsRun ? mostInteresting(maps) : [];
    const isFirst = first[0] === layer && first[1] === head;
    const isBest = this.follows && token === bestToken(maps, layer, head);
    return { ...(isFirst && { layer: null, head: null }), ...(isBest && { token: null }) };
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
  const interest = (each) => interestOf(maps, ...each);
  return maps.heads().reduce((best, each) => (interest(each) > interest(best) ? each : best));
}

// The query with the largest weight among the cells that earn the name, or among all cells. Weights
// count less where there are few keys.
function bestToken(maps, layer, head) {
  const cells = earned(maps, layer, head).map(([query, , weight]) => [query, weight]);
  const index = maps.headIndex(layer, head);
  if (!cells.length)
    for (let query = 0; query < maps.n; query++) {
      const [start, length] = maps.row(index, query);
      const bytes = maps.bytes.subarray(start, start + length);
      cells.push([query, (bytes.reduce((most, byte) => Math.max(most, byte), 0) / 255) ** 2]);
    }
  const value = ([query, weight]) => weight * (1 - 1 / maps.row(index, query)[1]);
  return cells.reduce((best, each) => (value(each) > value(best) ? each : best), [maps.n - 1, 0])[0];
}
