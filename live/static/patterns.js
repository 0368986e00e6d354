// Scores and sentences of all heads for the text at hand, again what scores.py and sentences.py of
// tensorboard_attention measure: the same names, patterns and words.

// White space for Python.
const SPACES = String.raw`[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+`;
const AROUND = new RegExp(`^${SPACES}|${SPACES}$`, "g");

// Twin of Marks: whether a rule marks a key for a query. mentions: whether each token is a word, of
// three letters or more.
function isMarked({ ids, mentions }, { nearest, farthest, after, key: only, same, word }, query, key) {
  const apart = query - key;
  if (query < after || apart < (nearest ?? -Infinity) || apart > (farthest ?? Infinity)) return false;
  if (only !== null && key !== only) return false;
  if (same === null) return true;
  const [one, two] = [query + same[0], key + same[1]];
  return ids[one] !== undefined && ids[one] === ids[two] && (!word || mentions[one]);
}

// What a header of maps says about its heads. table: see patterns.py. weights: of all heads, one
// causal triangle after the other; heads: how many each layer has.
export function describeHeads(table, tokens, heads, weights) {
  const text = new TextAtHand(table, tokens);
  const size = (tokens.length * (tokens.length + 1)) / 2;
  const count = heads.reduce((sum, each) => sum + each, 0);
  const each = Array.from({ length: count }, (_, i) =>
    text.describe(weights.subarray(i * size, (i + 1) * size)),
  );
  let at = 0;
  const layers = heads.map((length) => each.slice(at, (at += length)));
  const names = Object.keys(table.meanings);
  const byName = (value) => Object.fromEntries(names.map((name) => [name, value(name)]));
  return {
    scores: byName((name) => layers.map((layer) => layer.map(({ scores }) => scores[name]))),
    meanings: { ...table.meanings },
    units: { ...table.units },
    measured: byName(() => table.here),
    counts: byName((name) => text.rules.find(({ score }) => score === name)?.queries ?? tokens.length),
    sentences: layers.map((layer) => layer.map(({ sentence }) => sentence)),
    roles: layers.map((layer) => layer.map(({ role }) => role)),
    overview: tally(table.rules, each.map(({ rule }) => rule?.score)),
  };
}

// How many heads follow each rule. names: the score of the rule of each head.
function tally(rules, names) {
  const total = `of ${names.length} heads `;
  const parts = [];
  for (const { score, verbs } of rules) {
    const count = names.filter((name) => name === score).length;
    if (count) parts.push(`${count} ${parts.length ? "" : total}${verbs[Number(count > 1)]}`);
  }
  return parts.join(", ") || `None ${total}has a pattern that the scores know`;
}

// Where the keys of every pattern are in a text.
class TextAtHand {
  constructor(table, tokens) {
    Object.assign(this, { table, tokens });
    this.n = tokens.length;
    const known = new Map();
    this.ids = tokens.map((token) => known.get(token) ?? known.set(token, known.size).get(token));
    this.words = tokens.map((token) => /\p{L}/u.test(token));
    this.mentions = tokens.map((token) => /(\p{L}.*){3}/su.test(token));
    this.rules = table.rules.map((rule) => ({ ...rule, ...this.#find(rule.marks) }));
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
        if (isMarked(this, marks, query, key)) keys.push(query, key);
      if (keys.length > before) queries++;
      even += (keys.length - before) / 2 / (query + 1);
    }
    return { keys, queries, chance: queries < this.table.few ? 1 : even / queries };
  }

  // The scores of a head and its sentence: [text, its example as [query, key] or null, its interest].
  describe(weights) {
    const scores = {};
    for (const { score, keys, queries } of this.rules) {
      let sum = 0;
      for (let i = 0; i < keys.length; i += 2) sum += weights[flat(keys[i], keys[i + 1])];
      scores[score] = sum / queries;
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
    const { texts, roles, even } = this.table;
    if (Number.isNaN(scores["mean distance"]) || Number.isNaN(scores.entropy))
      return { scores, sentence: [texts.broken, null, 0], role: [roles.broken, ""], rule: null };
    const [rule, interest] = this.#choose(scores);
    const spread = even * this.mostBits;
    if (!rule && 0 < spread && spread <= scores.entropy) {
      const bits = `${scores.entropy.toFixed(2)} of at most ${this.mostBits.toFixed(2)} bits`;
      const sentence = [`${texts.spread}: entropy ${bits}`, null, 0];
      return { scores, sentence, role: [roles.spread, ""], rule };
    }
    const role = rule
      ? [`${rule.role} ${(100 * scores[rule.score]).toFixed(0)}%`, rule.score]
      : [roles.unknown, ""];
    return { scores, sentence: this.#sentence(weights, scores, rule, interest), role, rule };
  }

  // The rule of a head (null for none), and how interesting it is: of the rules whose share, beyond that
  // of even attention, comes close to the largest, the most interesting one.
  #choose(scores) {
    const shares = this.rules.map(({ score, chance, least }) => {
      const beyond = (scores[score] - chance) / (1 - chance);
      return Number.isFinite(beyond) && beyond >= least ? Math.min(1, beyond) : 0;
    });
    const enough = this.table.close * Math.max(...shares);
    let [interest, rule] = [0, null];
    this.rules.forEach((each, i) => {
      const found = shares[i] >= enough ? shares[i] * each.interest : 0;
      if (found > interest) [interest, rule] = [found, each];
    });
    return [rule, interest];
  }

  #sentence(weights, scores, rule, interest) {
    const { texts, partly, mostly, example } = this.table;
    let [text, prefix] = [texts.unknown, "for example, "];
    if (rule) {
      const share = scores[rule.score];
      const degree = share >= mostly ? "Mostly " : share < partly ? "Partly " : "";
      text = `${degree}${rule.phrase}: ${share.toFixed(2)} of its attention${rule.counted}`;
      text = text[0].toUpperCase() + text.slice(1);
      prefix = "";
    }
    const [pair, weight] = this.#example(weights, rule);
    if (weight < example) return [text, null, interest];
    const [query, key] = pair.map((place) => inSentence(this.tokens[place]));
    return [`${text} (${prefix}from '${query}' to '${key}'${rule?.also ?? ""})`, pair, interest];
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
