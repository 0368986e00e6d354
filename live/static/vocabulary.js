// Texts and tokens of the page: what the model reads of a text, and the text of what it wrote.

import { Tokenizer } from "./tokenizer.js";

export class Vocabulary {
  constructor({ tokenizer }) {
    this.tokenizer = new Tokenizer(tokenizer);
    this.labels = tokenizer.tokens.map((_, id) => this.tokenizer.label(id));
  }

  // A text begins a document, as in inference/writer.py.
  encode(text) {
    const { startIds, addsStart } = this.tokenizer;
    const start = addsStart || !text ? startIds : [];
    return start.concat(this.tokenizer.encode(text));
  }

  // The text of tokens that `encode` began, without an unfinished character at its end.
  decode(ids) {
    const { eosIds, tokens } = this.tokenizer;
    const letters = ids.slice(this.begun).map((id) => (eosIds.includes(id) ? "" : tokens[id]));
    const bytes = Uint8Array.from(letters.join(""), (letter) => letter.charCodeAt(0));
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(bytes, { stream: true });
  }

  // How many tokens come before those of a text.
  get begun() {
    const { startIds, addsStart } = this.tokenizer;
    return addsStart ? startIds.length : 0;
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
