// Texts and tokens of the page: what the model reads of a text, and the text of what it wrote.

import { Tokenizer } from "./tokenizer.js";

export class Vocabulary {
  constructor({ tokenizer }) {
    this.tokenizer = new Tokenizer(tokenizer);
    this.labels = tokenizer.tokens.map((_, id) => this.tokenizer.label(id));
  }

  // A text begins a document, as in inference/writer.py.
  encode(text) {
    return this.tokenizer.startIds.slice(0, this.begun({ text })).concat(this.tokenizer.encode(text));
  }

  // The text of tokens, of which the first `begun` are none of it, without an unfinished character at its end.
  decode(ids, begun) {
    const { eosIds, tokens } = this.tokenizer;
    const letters = ids.slice(begun).map((id) => (eosIds.includes(id) ? "" : tokens[id]));
    const bytes = Uint8Array.from(letters.join(""), (letter) => letter.charCodeAt(0));
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(bytes, { stream: true });
  }

  // How many tokens come before those of a text: the start, also of what the model wrote without a text.
  begun({ text, ids = null }) {
    const { startIds, addsStart } = this.tokenizer;
    const count = startIds.length;
    const isAfter = ids !== null && startIds.every((id, i) => id === ids[i]) && this.decode(ids, count) === text;
    return addsStart || !text || isAfter ? count : 0;
  }

  // The losses of tokens without those of the first `begun`, unless these are the end of a document.
  ofText(losses, begun) {
    return this.tokenizer.addsStart ? losses : losses.fill(NaN, 0, Math.max(0, begun));
  }

  // Whether the document ends with the last of these tokens.
  isEnd(ids) {
    const { eosIds, documentEnd, tokens } = this.tokenizer;
    if (documentEnd === null) return eosIds.includes(ids.at(-1));
    const mark = String.fromCharCode(...new TextEncoder().encode(documentEnd));
    const written = ids.slice(-mark.length).map((id) => tokens[id]).join("");
    return written.lastIndexOf(mark) > written.length - tokens[ids.at(-1)].length - mark.length;
  }
}
