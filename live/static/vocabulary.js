// Texts and tokens of the page: what the model reads of a text, and the text of what it wrote.

import { Tokenizer } from "./tokenizer.js";

export class Vocabulary {
  constructor({ tokenizer }) {
    this.tokenizer = new Tokenizer(tokenizer);
    this.labels = tokenizer.tokens.map((_, id) => this.tokenizer.label(id));
  }

  // A text begins a document, as in inference/writer.py.
  encode(text) {
    const { bosId, addsBos, documentEnd } = this.tokenizer;
    if (documentEnd !== null) return this.tokenizer.encode(documentEnd + text);
    if (bosId !== null && (addsBos || !text))
      return [bosId, ...this.tokenizer.encode(text)];
    return this.tokenizer.encode(text || "\n");
  }

  // The text of tokens that `encode` began, without an unfinished character at its end.
  decode(ids) {
    const { bosId, eosIds, documentEnd, tokens } = this.tokenizer;
    const marks = new Set([bosId, ...eosIds]);
    const letters = ids.map((id) => (marks.has(id) ? "" : tokens[id])).join("");
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const begun = documentEnd === null ? 0 : new TextEncoder().encode(documentEnd).length;
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return decoder.decode(bytes.subarray(begun), { stream: true });
  }

  // How many tokens come before those of a text.
  get begun() {
    const { bosId, documentEnd } = this.tokenizer;
    return documentEnd === null ? Number(bosId !== null) : this.encode("").length;
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
