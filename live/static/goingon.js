// How the model goes on after the text, at every step: one line a step.

import { el } from "./dom.js";

export const LENGTH = 32; // tokens

export class GoingOn {
  #lines = new Map(); // {loss, text} by step
  #about = ""; // the text, what is off and how tokens are drawn

  // choose(step): show this step.
  constructor(study, choose) {
    Object.assign(this, { study, choose });
    this.list = el("ol", { "aria-label": "Steps" });
    const hint = "For each step: the loss of your text in nats a token, and what the model writes after it.";
    this.node = el(
      "section",
      { class: "goingon" },
      el("h2", {}, "How it goes on, while it trains"),
      el("p", { class: "note small" }, hint),
      this.list,
    );
  }

  // The step that is shown comes first, and then the others while nothing else is shown, from the newest
  // on; this does not wait for them. isNew(): whether this is still what is shown.
  async show(state, steps, isNew) {
    const about = JSON.stringify([this.study.ids(state), state.off, state.sampling]);
    if (about !== this.#about) this.#lines.clear();
    this.#about = about;
    if (await this.#add(state, state.step, isNew)) this.#fill(state, steps, isNew).catch(() => {}); // a step has gone
  }

  async #fill(state, steps, isNew) {
    for (const step of [...steps].reverse()) if (!(await this.#add(state, step, isNew))) return;
  }

  // Whether the line of the step is there.
  async #add(state, step, isNew) {
    if (!this.#lines.has(step)) {
      const line = await this.study.goOn({ ...state, step }, LENGTH);
      if (line === null || !isNew()) return false;
      this.#lines.set(step, line);
    }
    this.#draw(state.step);
    return true;
  }

  // These steps have gone, or have other weights.
  forget(steps) {
    for (const step of steps) this.#lines.delete(step);
  }

  #draw(shown) {
    const steps = [...this.#lines.keys()].sort((a, b) => b - a);
    this.list.replaceChildren(
      ...steps.map((step) => {
        const { loss, text } = this.#lines.get(step);
        const number = step.toLocaleString("en");
        const name = `Step ${number}`;
        return el(
          "li",
          { "aria-current": step === shown ? "step" : null },
          el("button", { type: "button", title: `Show step ${number}`, onclick: () => this.choose(step) }, name),
          el("span", { class: "loss" }, Number.isNaN(loss) ? "–" : loss.toFixed(2)),
          el("span", { class: "written", dir: "auto" }, text),
        );
      }),
    );
  }
}
