// Byte pair encoding, as tiktoken does it (data/tokenizer.py): a pattern cuts a text into pieces, and
// in each piece the two neighbours are merged that are the token of the lowest id, again and again.
// live/tokenizer.py writes what the constructor reads.

const MOST_PIECES = 20000;
const BRACKETS = /[<[][^<>[\]]*[>\]]/g; // all names have this form

export class Tokenizer {
  #ids = new Map(); // by bytes, as strings of one letter a byte
  #names; // ids of tokens such as <think>, which are found in a text first
  #pieces = new Map(); // ids of pieces that were met
  #utf8 = new TextEncoder();

  constructor({ pattern, classes, tokens, names, ...ids }) {
    Object.assign(this, { startIds: ids.start_ids, addsStart: ids.adds_start });
    Object.assign(this, { eosIds: ids.eos_ids, documentEnd: ids.document_end });
    this.tokens = tokens.map((each) => atob(each));
    this.#names = new Map(Object.entries(names));
    this.tokens.forEach((bytes, id) => bytes && this.#ids.set(bytes, id));
    this.pattern = new RegExp(
      pattern.replace(/\\p\{(\w+)\}/g, (_, name) => ranges(classes[name])),
      "gu",
    );
  }

  // The ids of a text: the same as those of Tokenizer.encode in Python.
  encode(text) {
    const found = [];
    let start = 0;
    for (const { 0: name, index } of text.matchAll(BRACKETS)) {
      if (!this.#names.has(name)) continue;
      this.#encodePart(text.slice(start, index), found);
      found.push(this.#names.get(name));
      start = index + name.length;
    }
    this.#encodePart(text.slice(start), found);
    return found;
  }

  #encodePart(text, found) {
    for (const [piece] of text.matchAll(this.pattern)) {
      let ids = this.#pieces.get(piece);
      if (!ids) {
        if (this.#pieces.size >= MOST_PIECES) this.#pieces.clear();
        this.#pieces.set(piece, (ids = this.#encodePiece(piece)));
      }
      for (const id of ids) found.push(id); // push(...ids) has a limit
    }
  }

  // The text of one token; bytes that are not UTF-8 are escaped, as by Python's backslashreplace.
  label(id) {
    const bytes = Uint8Array.from(this.tokens[id], byteOf);
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const [lead] = bytes.subarray(at);
      const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      try {
        text += STRICT.decode(bytes.subarray(at, at + length));
        at += length;
      } catch {
        text += `\\x${lead.toString(16)}`;
        at += 1;
      }
    }
    return text;
  }

  #encodePiece(piece) {
    const bytes = Array.from(this.#utf8.encode(piece), (byte) => String.fromCharCode(byte));
    const whole = this.#ids.get(bytes.join(""));
    return whole === undefined ? this.#merge(bytes).map((part) => this.#ids.get(part)) : [whole];
  }

  #rank(left, right) {
    return right === undefined ? Infinity : (this.#ids.get(left + right) ?? Infinity);
  }

  // Merges neighbours until no two are a token. All pairs of the lowest rank are merged on one way
  // through the parts, unless a new pair has a lower one.
  #merge(parts) {
    let ranks = parts.map((part, i) => this.#rank(part, parts[i + 1]));
    for (;;) {
      const lowest = ranks.reduce((least, rank) => Math.min(least, rank), Infinity);
      if (lowest === Infinity) return parts;
      const [merged, after] = [[], []];
      let still = true;
      for (let i = 0; i < parts.length; i++) {
        if (!still || ranks[i] !== lowest) {
          merged.push(parts[i]);
          after.push(ranks[i]);
          continue;
        }
        const [last, part] = [merged.length - 1, parts[i] + parts[++i]];
        const next = this.#rank(part, parts[i + 1]);
        if (last >= 0) after[last] = this.#rank(merged[last], part);
        merged.push(part);
        after.push(next);
        still = next >= lowest && (last < 0 || after[last] >= lowest);
      }
      [parts, ranks] = [merged, after];
    }
  }
}

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function byteOf(letter) {
  return letter.charCodeAt(0);
}

// "41-5a 61-7a" as the inside of a class in a regular expression.
function ranges(text) {
  return text.replace(/(\w+)-(\w+) ?/g, "\\u{$1}-\\u{$2}");
}
