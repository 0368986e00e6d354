// What changes the text: typing, choosing a token, and the model that writes on.

import { anyOff } from "./edits.js";
import { NEWEST } from "./link.js";

const PAUSE_BETWEEN = 100; // milliseconds in which it only writes

export class Author {
  busy = false; // whether the model writes
  due = 0; // when the page follows again

  constructor(app) {
    this.app = app;
  }

  // token: the selected one.
  typed(typed, token = NEWEST) {
    if (!this.app.state) return; // the model is not there yet, and reads it later
    this.leave();
    const text = typed.replace(/\p{Surrogate}/gu, "\ufffd"); // halves of a character
    return this.app.set({ text, ids: null, place: null, token });
  }

  // Begins with another text, of which the head chooses a token.
  replace(text) {
    this.app.input.value = text;
    return this.typed(text, null);
  }

  // Goes on with a token: after the text, or in the place that is looked at.
  choose(id) {
    const { state, study, reading } = this.app;
    const ids = study.ids(state);
    const kept = state.place === null ? ids : ids.slice(0, reading.from + state.place);
    this.leave();
    return this.#goOn([...kept, id]);
  }

  // The text may be split into other tokens than the model wrote: then these are kept too.
  #goOn(ids) {
    const { vocabulary } = this.app.study;
    const text = vocabulary.decode(ids, vocabulary.begun(this.app.state));
    const same = vocabulary.encode(text).join() === ids.join();
    if (this.app.input.value !== text) this.app.input.value = text;
    return this.app.set({ text, ids: same ? null : ids, place: null, token: NEWEST });
  }

  toggle() {
    return this.busy ? this.stop() : this.write();
  }

  // The text as it was before the model wrote.
  undo() {
    const { text, ids } = this.before;
    this.leave();
    this.app.input.value = text;
    return this.app.set({ text, ids, place: null, token: NEWEST });
  }

  // Whether a part was off when the model wrote the end of the text.
  get wroteBroken() {
    return Boolean(this.before) && anyOff(this.before.off);
  }

  // What was written until now stays.
  stop() {
    if (this.busy) this.app.study.stop("write");
    this.busy = false;
  }

  // The text changes in another way.
  leave() {
    this.stop();
    this.turn = this.before = null;
    this.app.writing.spoken.textContent = "";
    this.app.writing.show(this.app.state.sampling, false, false);
  }

  // Writes on, token by token, until the document ends.
  async write() {
    const { app } = this;
    const { state, writing } = app;
    const { length } = state.text;
    this.before = { text: state.text, ids: state.ids, off: state.off };
    const mine = (this.turn = {});
    let [ids, shown, frame] = [null, null, 0];
    const show = () => {
      frame = 0;
      if (this.turn !== mine || !this.busy) return;
      shown = [...ids];
      this.#write(shown);
    };
    this.busy = true;
    state.place = null;
    writing.show(state.sampling, true, false);
    try {
      await app.study.write(state, (written) => {
        ids = written;
        frame ||= requestAnimationFrame(show); // tokens can come faster than they can be shown
      });
    } catch (error) {
      app.say(error.message);
    }
    if (this.turn !== mine) return;
    const kept = this.busy ? ids : shown; // all, unless it was stopped
    this.busy = false;
    writing.show(state.sampling, false, kept !== null);
    if (!kept) return;
    await this.#goOn(kept);
    writing.spoken.textContent = `Written: ${app.input.value.slice(length)}`;
  }

  // Everything follows what is written, as often as it can be seen.
  #write(ids) {
    const { input, state, study } = this.app;
    input.value = study.vocabulary.decode(ids, study.vocabulary.begun(state));
    input.scrollTop = input.scrollHeight;
    if (performance.now() < this.due) return;
    this.due = Infinity;
    this.#goOn(ids).finally(() => (this.due = performance.now() + PAUSE_BETWEEN));
  }
}
