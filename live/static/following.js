// The page of a run in training. Its weights come from TensorBoard, step by step: it shows every new
// step when it comes, as long as it is to follow, and the text, the head and what is off stay.

import { LivePage, start } from "./app.js";
import { el } from "./dom.js";
import { GoingOn } from "./goingon.js";
import { closest } from "./state.js";
import { Study } from "./study.js";
import { meanLoss } from "./surprise.js";

const LOOK_EVERY = 2000; // milliseconds between two looks for new steps
const GONE = "The weights are no longer in the log.";

export function startFollowing(worker) {
  return start(worker, FollowingPage, FollowingStudy);
}

class FollowingStudy extends Study {
  #had = new Map(); // the version of each step whose weights the worker has
  #reads = 0;

  weights() {
    return [];
  }

  async load() {
    const loaded = await super.load();
    await this.#have(this.data.steps.at(-1));
    return loaded;
  }

  // Only the newest read goes on after it has waited for weights.
  async read(state) {
    const mine = ++this.#reads;
    await this.#have(state.step);
    return mine === this.#reads ? super.read(state) : null;
  }

  // The loss of the text at a step, and what the model writes after it; null if another question has
  // taken its place.
  async goOn(state, n) {
    await this.#have(state.step);
    const question = this.writing(state, n);
    const ids = [...question.ids];
    const isEnd = () => ids.length > question.ids.length && this.vocabulary.isEnd(ids);
    const done = await this.asking.ask("goOn", question, ({ token }) => isEnd() || ids.push(token));
    if (!done) return null;
    const begun = this.vocabulary.begun(state);
    const text = this.vocabulary.decode(ids, begun).slice(this.vocabulary.decode(question.ids, begun).length);
    const seen = begun - question.ids.length + done.losses.length;
    return { loss: meanLoss(this.vocabulary.ofText(done.losses, seen)), text };
  }

  // The steps that there are now, with their versions. Returns those that have gone or changed.
  async change(versions) {
    const { data } = this;
    const old = Object.keys(data.versions).filter((step) => versions[step] !== data.versions[step]);
    data.versions = versions;
    data.steps = Object.keys(versions).map(Number).sort((a, b) => a - b);
    const steps = old.map(Number);
    for (const step of steps) this.#had.delete(step);
    if (steps.length) await this.asking.ask("drop", { steps });
    return steps;
  }

  async #have(step) {
    const version = this.data.versions[step];
    if (this.#had.get(step) === version) return;
    const answer = await fetched("weights", { step });
    await this.asking.ask("add", { step, bytes: await answer.arrayBuffer() });
    const names = await fetched("names").then((found) => found.json()).catch(() => ({}));
    Object.assign(this.data.names, names);
    this.#had.set(step, version);
  }
}

class FollowingPage extends LivePage {
  lost = ""; // why there are no steps
  box = el("input", { type: "checkbox", checked: true, onchange: () => this.box.checked && this.set({ step: this.newest }) });

  get newest() {
    return this.data.steps.at(-1);
  }

  get hasSteps() {
    return true;
  }

  async begin() {
    const began = super.begin();
    this.steps.node.append(el("label", { class: "following small" }, this.box, " Follow the training"));
    this.goingOn = new GoingOn(this.study, (step) => this.set({ step }));
    this.surprise.node.after(this.goingOn.node);
    await began;
    if (!this.state) return; // the weights could not be read
    const settle = () => (this.box.checked = this.state.step === this.newest);
    settle();
    addEventListener("hashchange", settle);
    // While the model writes into the text, nothing changes.
    setInterval(() => document.hidden || this.author.busy || this.#look(), LOOK_EVERY);
  }

  set(part) {
    if ("step" in part) this.box.checked = part.step === this.newest;
    return super.set(part);
  }

  // Tokens that the model goes on with need more questions, as explanations do.
  async explain() {
    const { turn, state, reading } = this;
    await super.explain();
    const isNew = () => turn === this.turn && reading === this.reading;
    if (isNew() && this.goingOn && !this.author.busy)
      await this.goingOn.show(state, this.data.steps, isNew).catch((error) => isNew() && this.say(error.message));
  }

  linked(exact) {
    const view = super.linked(exact);
    return !exact && this.box.checked ? { ...view, step: "last" } : view;
  }

  async #look() {
    let lost = "";
    const answer = fetched("steps").then((found) => found.json());
    const versions = await answer.catch((error) => (lost = error.message) && {});
    if (!lost && !Object.keys(versions).length) lost = GONE;
    if (lost !== this.lost) this.say(lost);
    this.lost = lost;
    const isSame = JSON.stringify(versions) === JSON.stringify(this.data.versions);
    if (lost || isSame || this.author.busy) return;
    this.goingOn.forget(await this.study.change(versions));
    this.runs = { ".": { "": this.data.steps } };
    this.say("");
    const { checked } = this.box;
    const step = checked ? this.newest : closest(this.data.steps, this.state.step);
    const shown = this.set({ step });
    this.box.checked = checked;
    await shown;
  }
}

async function fetched(route, query = {}) {
  const place = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(query)) place.set(name, value);
  const answer = await fetch(`follow/${route}?${place}`).catch(() => {
    throw new Error("TensorBoard does not answer. Is it still running?");
  });
  if (!answer.ok) throw new Error(GONE);
  return answer;
}
