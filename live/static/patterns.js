// Scores and sentences of all heads for the text at hand, again what scores.py and sentences.py of
// tensorboard_attention measure: the same names, patterns and words.

const NEAR = 8; // tokens
const PARTLY = 0.4; // of these shares, a head does what its sentence says partly, or does little else
const MOSTLY = 0.7;
const FEW = 3; // queries; a pattern that fewer can show may be chance
const EVEN = 0.8; // of the largest entropy: attention is spread almost evenly
const EXAMPLE = 0.1; // the least weight of an example

// White space for Python.
const SPACES = String.raw`[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+`;
const AROUND = new RegExp(`^${SPACES}|${SPACES}$`, "g");

const HERE_MEASURED = "this text";
const UNKNOWN_PATTERN = "No pattern that the scores know";
const SPREAD = "Spreads its attention almost evenly over the tokens";
const NOT_NUMBERS = "Has weights that are not finite";

// Shares of attention, in the order of their sentences. marks(ids, query, key, mentions): whether the
// key counts for the query; mentions: whether each token is a word, of three letters or more; the others as in RULES of scores.py.
export const SHARES = [
  {
    name: "copy",
    meaning:
      "share of attention on earlier mentions of the word that comes next, from tokens before such a word",
    phrase: "looks back at earlier mentions of the word that comes next",
    interest: 0.99, // induction is one way to copy, and tells more
    counted: " from tokens before such a word",
    also: ", which comes next",
    marks: (ids, query, key, mentions) => mentions[query + 1] && ids[query + 1] === ids[key],
  },
  {
    name: "induction",
    meaning:
      "share of attention on tokens that followed earlier occurrences of the same token, from tokens that occurred before",
    phrase: "looks at what followed earlier occurrences of the same token",
    counted: " from tokens that occurred before",
    interest: 1,
    marks: (ids, query, key) => key > 0 && ids[key - 1] === ids[query],
  },
  {
    name: "duplicate token",
    meaning:
      "share of attention on earlier occurrences of the same token, from tokens that occurred before",
    phrase: "looks back at earlier occurrences of the same token",
    counted: " from tokens that occurred before",
    interest: 1,
    marks: (ids, query, key) => key < query && ids[key] === ids[query],
  },
  {
    name: "previous token",
    meaning: "share of attention on the token directly before",
    phrase: "looks at the token before",
    interest: 0.7,
    marks: (ids, query, key) => key === query - 1,
  },
  {
    name: "first token",
    meaning: "share of attention on the first token (attention sink)",
    phrase: "rests on the first token",
    interest: 0.3,
    marks: (ids, query, key) => key === 0 && query > 0,
  },
  {
    name: "same token",
    meaning: "share of attention on the query's own position",
    phrase: "looks at the token itself",
    interest: 0.4,
    marks: (ids, query, key) => key === query,
  },
  {
    name: "nearby",
    meaning: `share of attention on tokens at most ${NEAR} away, from tokens at more than ${2 * NEAR} from the first`,
    phrase: `looks nearby, at most ${NEAR} tokens away`,
    counted: ` from tokens at more than ${2 * NEAR} from the first`,
    interest: 0.2,
    least: MOSTLY,
    marks: (ids, query, key) => query > 2 * NEAR && query - key <= NEAR,
  },
];
const LEAST_SHARE = 0.25; // beyond that of even attention
const AVERAGES = {
  entropy: ["spread of attention in bits; 0 if all is on a single token", "bits"],
  "mean distance": ["mean distance in tokens from a query to what it attends to", "tokens"],
};

// What a header of maps says about its heads. weights: of all heads, one causal triangle after the
// other; heads: how many each layer has.
export function describeHeads(tokens, heads, weights) {
  const text = new TextAtHand(tokens);
  const size = (tokens.length * (tokens.length + 1)) / 2;
  const count = heads.reduce((sum, each) => sum + each, 0);
  const each = Array.from({ length: count }, (_, i) =>
    text.describe(weights.subarray(i * size, (i + 1) * size)),
  );
  let at = 0;
  const layers = heads.map((length) => each.slice(at, (at += length)));
  const names = [...SHARES.map(({ name }) => name), ...Object.keys(AVERAGES)];
  const byName = (value) => Object.fromEntries(names.map((name) => [name, value(name)]));
  const meanings = Object.fromEntries(SHARES.map(({ name, meaning }) => [name, meaning]));
  for (const [name, [meaning]] of Object.entries(AVERAGES)) meanings[name] = meaning;
  return {
    scores: byName((name) => layers.map((layer) => layer.map(({ scores }) => scores[name]))),
    meanings,
    units: Object.fromEntries(Object.entries(AVERAGES).map(([name, [, unit]]) => [name, unit])),
    measured: byName(() => HERE_MEASURED),
    sentences: layers.map((layer) => layer.map(({ sentence }) => sentence)),
  };
}

// Where the keys of every pattern are in a text.
class TextAtHand {
  constructor(tokens) {
    this.tokens = tokens;
    this.n = tokens.length;
    const known = new Map();
    this.ids = tokens.map((token) => known.get(token) ?? known.set(token, known.size).get(token));
    this.words = tokens.map((token) => /\p{L}/u.test(token));
    this.mentions = tokens.map((token) => /(\p{L}.*){3}/su.test(token));
    this.shares = SHARES.map((share) => ({ ...share, ...this.#find(share.marks) }));
    this.mostBits = mean(this.n, (query) => Math.log2(query + 1));
  }

  // keys: query and key of every mark, two numbers each; queries: how many have a mark; chance: the
  // share of even attention, 1 where only a few queries can show the pattern.
  #find(marks) {
    const keys = [];
    let [queries, even] = [0, 0];
    for (let query = 0; query < this.n; query++) {
      const before = keys.length;
      for (let key = 0; key <= query; key++)
        if (marks(this.ids, query, key, this.mentions)) keys.push(query, key);
      if (keys.length > before) queries++;
      even += (keys.length - before) / 2 / (query + 1);
    }
    return { keys, queries, chance: queries < FEW ? 1 : even / queries };
  }

  // The scores of a head and its sentence: [text, its example as [query, key] or null, how much it tells].
  describe(weights) {
    const scores = {};
    for (const { name, keys, queries } of this.shares) {
      let sum = 0;
      for (let i = 0; i < keys.length; i += 2) sum += weights[flat(keys[i], keys[i + 1])];
      scores[name] = sum / queries;
    }
    scores.entropy = mean(this.n, (query) => {
      let bits = 0;
      for (let at = flat(query, 0); at <= flat(query, query); at++)
        if (weights[at]) bits -= weights[at] * Math.log2(weights[at]);
      return bits;
    });
    scores["mean distance"] = mean(this.n, (query) => {
      let distance = 0;
      for (let key = 0; key < query; key++) distance += weights[flat(query, key)] * (query - key);
      return distance;
    });
    return { scores, sentence: this.#sentence(weights, scores) };
  }

  #sentence(weights, scores) {
    if (Number.isNaN(scores["mean distance"]) || Number.isNaN(scores.entropy))
      return [NOT_NUMBERS, null, 0];
    let [tells, rule] = [0, null];
    for (const each of this.shares) {
      const beyond = (scores[each.name] - each.chance) / (1 - each.chance);
      const has = Number.isFinite(beyond) && beyond >= (each.least ?? LEAST_SHARE);
      const told = has ? Math.min(1, beyond) * each.interest : 0;
      if (told > tells) [tells, rule] = [told, each];
    }
    const even = EVEN * this.mostBits;
    if (!rule && 0 < even && even <= scores.entropy) {
      const most = this.mostBits.toFixed(2);
      return [`${SPREAD}: entropy ${scores.entropy.toFixed(2)} of at most ${most} bits`, null, 0];
    }
    let [text, prefix] = [UNKNOWN_PATTERN, "for example, "];
    if (rule) {
      const share = scores[rule.name];
      const degree = share >= MOSTLY ? "Mostly " : share < PARTLY ? "Partly " : "";
      text = `${degree}${rule.phrase}: ${share.toFixed(2)} of its attention${rule.counted ?? ""}`;
      text = text[0].toUpperCase() + text.slice(1);
      prefix = "";
    }
    const [pair, weight] = this.#example(weights, rule);
    if (weight < EXAMPLE) return [text, null, tells];
    const [query, key] = pair.map((place) => inSentence(this.tokens[place]));
    return [`${text} (${prefix}from '${query}' to '${key}'${rule?.also ?? ""})`, pair, tells];
  }

  // The largest weight of a rule's pattern, or of all. Weights count less where there are few keys to
  // attend to. Words that are apart are easier to read.
  #example(weights, rule) {
    let [pair, weight, best] = [null, 0, 0];
    const look = (query, key) => {
      const there = weights[flat(query, key)];
      const words = 1 + (this.words[query] && this.words[key]);
      const value = there * (1 - 1 / (query + 1)) * words * (query - key > 1 ? 4 : 1);
      if (value > best) [pair, weight, best] = [[query, key], there, value];
    };
    if (rule) for (let i = 0; i < rule.keys.length; i += 2) look(rule.keys[i], rule.keys[i + 1]);
    else
      for (let query = 0; query < this.n; query++)
        for (let key = 0; key <= query; key++) look(query, key);
    return [pair, weight];
  }
}

// Where a weight is in a causal triangle.
function flat(query, key) {
  return (query * (query + 1)) / 2 + key;
}

function mean(count, value) {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += value(i);
  return sum / count;
}

// A token within a sentence, without the white space around it.
function inSentence(token) {
  const text = token.replace(AROUND, "") || token;
  const shown = Array.from(text)
    .slice(0, 25)
    .map((c) => (/[\p{C}\p{Z}]/u.test(c) && c !== " " ? escaped(c) : c))
    .join("");
  const letters = Array.from(shown);
  return letters.length <= 24 ? shown : `${letters.slice(0, 23).join("")}…`;
}

// As Python writes it.
function escaped(character) {
  const names = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const code = character.codePointAt(0);
  const [letter, digits] = code < 256 ? ["x", 2] : code < 65536 ? ["u", 4] : ["U", 8];
  return names[character] ?? `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}
