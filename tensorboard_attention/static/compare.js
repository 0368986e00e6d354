// Comparing two views, their difference, and the twins of heads.

import { Difference } from "./difference.js";
import { el } from "./dom.js";
import { haveSameText } from "./maps.js";
import { nearest } from "./state.js";

export class Compare {
  twins = [];

  constructor(app) {
    this.app = app;
    const button = (text, title, onclick) => el("button", { type: "button", class: "extra", title, onclick }, text);
    this.button = button("Compare", "Two steps or runs side by side (c)", () => this.toggle());
    const title = "The weights of the first view minus those of the other (d)";
    this.difference = button("Difference", title, () => this.toggleDifference());
    this.follow = el("input", { type: "checkbox", oninput: () => app.set({ twins: this.follow.checked }) });
    const alike = "Show the head of the other view whose map overlaps most";
    this.alike = el("label", { class: "both line centred", title: alike }, this.follow, "Twins");
    this.parts = [this.button, this.difference, this.alike];
    this.status = el("p", { class: "note small", role: "status" });
  }

  // The twins of the heads of two views, if they show the same text.
  async find(views, maps) {
    return maps.length === 2 && haveSameText(...maps) ? this.app.store.twins(...views) : [];
  }

  // Whether the second view follows the twin: by default that of another run. In the same run, a head
  // stays the same.
  get follows() {
    const { one, two, twins } = this.app.state;
    return this.twins.length > 0 && (twins ?? one.run !== two.run);
  }

  // The head of the second view beside a head of the first.
  twinOf(layer, head) {
    const twin = this.follows ? this.#find(layer, head) : null;
    return twin ? twin.slice(2, 4) : [layer, head];
  }

  #find(layer, head) {
    return this.twins.find((twin) => twin[0] === layer && twin[1] === head);
  }

  // possible: whether there is another view to compare with.
  show({ two, difference }, possible) {
    this.button.hidden = !possible;
    this.button.setAttribute("aria-pressed", !!two);
    this.difference.setAttribute("aria-pressed", difference);
    this.difference.hidden = !two;
    this.alike.hidden = !two || !this.twins.length;
    this.follow.checked = !!two && this.follows;
    const { layer, head } = this.app.state;
    const twin = two && this.#find(layer, head);
    this.status.textContent = twin
      ? `Its twin, the head of the other view with the most similar attention, is L${twin[2]}H${twin[3]}: ${(100 * twin[4]).toFixed(0)}% of the attention is the same.`
      : "";
  }

  // Makes room for one view, for two, or for the difference of two.
  arrange(maps) {
    const { layer, head, difference } = this.app.state;
    const differ = maps.length === 2 && difference && !Difference.obstacle(...maps, this.twinOf(layer, head));
    this.app.main.classList.toggle("comparing", maps.length === 2);
    this.app.main.classList.toggle("differing", differ);
  }

  toggle() {
    if (this.button.hidden) return;
    const { one, two } = this.app.state;
    const steps = this.app.runs[one.run][one.tag];
    // Compare with the start of the run; the start itself with the end.
    return this.app.set({
      two: two ? null : { ...one, step: one.step === steps[0] ? steps.at(-1) : steps[0] },
    });
  }

  toggleDifference() {
    const { two, difference } = this.app.state;
    if (two) this.app.set({ difference: !difference });
  }

  // Shows another run, probe or step of a view ("one" or "two"). Another run to compare with is shown at
  // its last step.
  choose(which, view) {
    const other = which === "two" && view.run !== this.app.state.two.run;
    this.app.set({ [which]: nearest(this.app.runs, other ? { ...view, step: null } : view) });
  }
}

// How two views are told apart.
export function names(one, two) {
  const of = ({ run, tag, step }) => [
    ...(one.run === two.run ? [] : [run]),
    ...(one.tag === two.tag ? [] : [tag]),
    `step ${step}`,
  ];
  return [of(one).join(", "), of(two).join(", ")];
}
