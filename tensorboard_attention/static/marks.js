// Which cells of a map earn a head its name: those of its pattern, as scores.py marks them.

import { roleOf } from "./naming.js";

const EARNING = 0.1; // weight of a cell that is outlined
const NEARBY = 8;
const PART = 40; // tokens of a longer text that are seen first
const LONG_TEXT = 64;

const textOf = (token) => token.replace(/\\x[89a-f][0-9a-f]|^<.+>$/gs, "").replace(/(?<=[\p{P}\p{S}\p{N}])[\p{M}\p{Cf}]+/gu, "");
const hasWord = (token) => textOf(token).match(/[\p{L}\p{M}]/gu)?.length >= 3;
const hasMark = (token) => /[\p{P}\p{S}]/u.test(textOf(token)) && !/[\p{L}\p{M}\p{N}]/u.test(textOf(token));

const follows = (tokens, query, key) =>
  query > 0 && key > 1 && key <= query && tokens[key - 1] === tokens[query] && tokens[key - 2] === tokens[query - 1];

// Whether a passage that was there before goes on after a query.
const goesOn = (tokens, query) =>
  tokens.some((token, key) => token === tokens[query + 1] && follows(tokens, query, key));

// By name: whether the pattern marks a key for a query, of a causal map of these tokens.
export const PATTERNS = {
  "continues repeats": (tokens, query, key) => follows(tokens, query, key) && goesOn(tokens, query),
  copies: (tokens, query, key) => key <= query && tokens[query + 1] === tokens[key],
  "previous token": (_, query, key) => key === query - 1,
  "first token": (_, query, key) => query > 0 && key === 0,
  nearby: (_, query, key) => query > 2 * NEARBY && query - key <= NEARBY,
  "last word": (tokens, query, key) =>
    key < query && hasWord(tokens[key]) && !tokens.slice(key + 1, query).some(hasWord),
  punctuation: (tokens, _, key) => hasMark(tokens[key]),
};

// A token as a name spells it: the twin of `label` in patterns.py, for all but rare characters.
function spelledInName(token) {
  const text = JSON.stringify(token.trim() || token).slice(1, -1).replaceAll('\\"', '"');
  return text.length <= 24 ? text : `${text.slice(0, 23)}…`;
}

// [query, key, weight] of the marked cells of a head; none if its name is not that of a pattern.
export function earned(maps, layer, head, least = EARNING) {
  const [role, name] = roleOf(maps, layer, head);
  const one = role.match(/'(.+)'/s)?.[1];
  const pattern = name === "one token" ? (tokens, _, key) => spelledInName(tokens[key]) === one : Object.hasOwn(PATTERNS, name) && PATTERNS[name];
  if (!pattern || maps.cross) return [];
  const index = maps.headIndex(layer, head);
  const found = [];
  for (let query = 0; query < maps.n; query++) {
    const length = Math.min(query + 1, maps.row(index, query)[1]);
    for (let key = 0; key < length; key++) {
      const weight = maps.weight(index, query, key);
      if (weight >= least && pattern(maps.tokens, query, key)) found.push([query, key, weight]);
    }
  }
  return found;
}

// [zoom, x, y] of the part of a long map with the most of these cells and the row of a token;
// undefined for the whole map.
export function firstPart({ n, m }, cells, token) {
  if (n !== m || n <= LONG_TEXT || !cells.length) return undefined;
  const starts = Array.from({ length: n - PART + 1 }, (_, start) => start);
  const rows = starts.filter((start) => token < 0 || (start <= token && token < start + PART));
  const inside = (start, place) => start <= place && place < start + PART;
  // The largest value, and the start that has it; of several, the middle.
  const best = (all, value) => {
    const sums = all.map(value);
    const most = Math.max(...sums);
    const having = all.filter((_, i) => sums[i] === most);
    return [most, having[having.length >> 1]];
  };
  const across = (row) => {
    const within = cells.filter(([query]) => inside(row, query));
    return best(starts.filter((start) => start <= row), (start) =>
      within.reduce((sum, [, key, weight]) => sum + (inside(start, key) ? weight : 0), 0));
  };
  const [, row] = best(rows, (start) => across(start)[0]);
  return [n / PART, across(row)[1] / n, row / n];
}
