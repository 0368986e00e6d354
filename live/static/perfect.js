// A perfect reader of the page's own tales, who knows their grammar: what it says was computed when the
// page was written (live/texts.py).

export class PerfectReader {
  constructor({ run }, vocabulary) {
    const texts = Object.entries(run.reader ?? {});
    this.texts = texts.map(([text, places]) => [vocabulary.encode(text), places]);
  }

  // [place]: the information of the token in nats, and [id, probability] of those that can follow it. Of other
  // texts than the beginnings of these tales, nothing. from: how many tokens the model does not see.
  read({ from, ids }) {
    return this.texts.find(([known]) => !from && ids.every((id, i) => id === known[i]))?.[1];
  }
}
