// What changes the text: typing, choosing a token, and the model that writes on.

const PAUSE_BETWEEN = 100; // milliseconds in which it only writes

export class Author {
  busy = false; // whether the model writes
  due = 0; // when the page follows again

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
    if (this.app.input.value !== text) this.app.input.value = text;
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
    const { study, input, state, writing } = app;
    const { text } = state;
    const mine = (this.turn = {});
    let written = null;
    this.busy = true;
    state.place = null;
    writing.show(state.sampling, true);
    try {
      await study.write(state, (ids) => {
        if (this.turn !== mine || !this.busy) return;
        written = ids;
        input.value = study.vocabulary.decode(ids);
        input.scrollTop = input.scrollHeight;
        this.#follow(ids);
      });
    } catch (error) {
      app.say(error.message);
    }
    if (this.turn !== mine) return;
    const typed = written && input.value !== study.vocabulary.decode(written);
    this.busy = false;
    writing.show(state.sampling, false);
    if (!written || typed) return;
    writing.spoken.textContent = `Written: ${input.value.slice(text.length)}`;
    await this.#goOn(written);
  }

  // Everything follows what is written, as often as it can be seen.
  #follow(ids) {
    if (performance.now() < this.due) return;
    this.due = Infinity;
    this.#goOn(ids).finally(() => (this.due = performance.now() + PAUSE_BETWEEN));
  }
}
