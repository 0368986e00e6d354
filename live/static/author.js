// What changes the text: typing, choosing a token, and the model that writes on.

export class Author {
  busy = false; // whether the model writes

  constructor(app) {
    this.app = app;
  }

  typed(text) {
    this.stop();
    return this.app.set({ text, ids: null, place: null });
  }

  // Goes on with a token: after the text, or in the place that is looked at.
  choose(id) {
    const { state, study, reading } = this.app;
    const ids = study.ids(state);
    const kept = state.place === null ? ids : ids.slice(0, reading.from + state.place);
    this.stop();
    return this.#goOn([...kept, id]);
  }

  // The text may be split into other tokens than the model wrote: then these are kept too.
  #goOn(ids) {
    const { vocabulary } = this.app.study;
    const text = vocabulary.decode(ids);
    const same = vocabulary.encode(text).join() === ids.join();
    this.app.input.value = text;
    return this.app.set({ text, ids: same ? null : ids, place: null });
  }

  toggle() {
    return this.busy ? this.stop() : this.write();
  }

  stop() {
    if (this.busy) this.app.study.stop();
    this.busy = false;
  }

  // Writes on, token by token, until the document ends. What is typed meanwhile stops it.
  async write() {
    const { app } = this;
    const { study, state, input, next, writing } = app;
    let written = null;
    this.busy = true;
    const mine = (this.turn = {});
    const isMine = () => this.turn === mine && this.busy;
    state.place = null;
    writing.show(state.sampling, true);
    try {
      await study.write(state, (ids, top) => {
        if (!isMine()) return;
        written = ids;
        input.value = study.vocabulary.decode(ids);
        input.scrollTop = input.scrollHeight;
        next.show(study.rows(top), null);
      });
    } catch (error) {
      app.say(error.message);
    }
    if (this.turn !== mine) return;
    const typed = input.value !== (written ? study.vocabulary.decode(written) : state.text);
    this.busy = false;
    writing.show(state.sampling, false);
    if (!written || typed) return;
    writing.spoken.textContent = `Written: ${input.value.slice(state.text.length)}`;
    await this.#goOn(written);
  }
}
