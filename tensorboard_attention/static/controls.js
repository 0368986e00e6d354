// Selects a view: run, probe and step. Each of the two views that can be compared has one.

import { el } from "./dom.js";

export const ZOOM = 1.5; // at one press of a button
const PLAYED = 5_000; // milliseconds in which a whole run is played
const SLOWEST = 1_000; // milliseconds for a step of a short run

export class Picker {
  // change(view) is called with the selected {run, tag, step}.
  constructor(name, change) {
    this.change = change;
    this.run = el("select", { oninput: () => this.choose({ run: this.run.value }) });
    this.tag = el("select", { oninput: () => this.choose({ tag: this.tag.value }) });
    this.slider = el("input", {
      type: "range",
      min: 0,
      step: 1,
      oninput: () => this.choose({ step: this.steps[this.slider.value] }),
    });
    this.step = el("output");
    this.play = el("button", { type: "button", class: "play", onclick: () => this.toggle() });
    this.setPlaying(false);
    const step = field("Step", this.slider);
    this.stepper = el("div", { class: "stepper" }, this.play, step, this.step);
    this.node = el(
      "fieldset",
      { class: "picker line" },
      el("legend", {}, name),
      field("Run", this.run),
      field("Probe", this.tag, "extra"),
      this.stepper,
    );
  }

  choose(part) {
    if (!("step" in part)) {
      this.setPlaying(false);
      // At the last step of a run, stay at the last step of the next one.
      if (this.view.step === this.steps.at(-1)) part = { ...part, step: null };
    }
    this.change({ ...this.view, ...part });
  }

  show(view, runs) {
    this.view = view;
    this.steps = runs[view.run][view.tag];
    options(this.run, Object.keys(runs), view.run);
    options(this.tag, Object.keys(runs[view.run]), view.tag);
    // Where there is no choice, a name is shown, and none for a run that has no name.
    for (const select of [this.run, this.tag]) select.disabled = select.length < 2;
    this.run.parentNode.hidden = Array.from(this.run, ({ value }) => value).join() === ".";
    this.tag.parentNode.hidden = Object.keys(runs[view.run]).join() === "";
    this.slider.max = this.steps.length - 1;
    this.slider.value = this.steps.indexOf(view.step);
    const single = this.steps.length < 2;
    this.slider.hidden = this.play.hidden = single;
    this.stepper.classList.toggle("single", single);
    this.slider.setAttribute("aria-valuetext", `step ${view.step}`);
    const place = ` (${Number(this.slider.value) + 1} of ${this.steps.length})`;
    this.step.textContent = view.step.toLocaleString("en") + (single ? "" : place);
  }

  // Moves by this many logged steps, if there is such a step.
  move(by) {
    const step = this.steps[Number(this.slider.value) + by];
    if (step !== undefined) this.choose({ step });
  }

  toggle() {
    if (this.steps.length < 2) return;
    const again = !this.playing && this.view.step === this.steps.at(-1);
    this.setPlaying(!this.playing);
    this.choose({ step: again ? this.steps[0] : this.view.step });
  }

  // Milliseconds for a step while playing.
  get pace() {
    return Math.min(SLOWEST, PLAYED / (this.steps.length - 1));
  }

  // Milliseconds until the next step.
  due() {
    return Math.max(0, this.began + this.pace - performance.now());
  }

  // Shows the step that is due. Steps that could not be drawn in time are skipped.
  advance() {
    const left = this.steps.length - 1 - this.slider.value;
    this.stride = Math.max(1, Math.floor((performance.now() - this.began) / this.pace));
    this.began += this.stride * this.pace;
    const last = left <= this.stride;
    if (left > 0) this.move(Math.min(left, this.stride));
    if (last) this.setPlaying(false);
  }

  setPlaying(playing) {
    this.began = performance.now();
    this.stride = 1;
    this.playing = playing;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", playing ? "Pause" : "Play through training");
    this.play.title = playing ? "Pause (space)" : "Play through training (space)";
  }
}

// Shows the views of a state. Returns them.
export function showPickers(pickers, { one, two }, runs) {
  const views = two ? [one, two] : [one];
  pickers.forEach((picker, i) => {
    picker.node.hidden = !views[i];
    if (views[i]) picker.show(views[i], runs);
    else picker.setPlaying(false);
  });
  return views;
}

export function field(name, control, more = "") {
  return el("label", { class: `field small ${more}` }, el("span", {}, name), control);
}

export function options(select, values, chosen, texts = values) {
  const same =
    values.length === select.length &&
    values.every((value, i) => select.options[i].value === value && select.options[i].textContent === texts[i]);
  if (!same) select.replaceChildren(...values.map((value, i) => el("option", { value }, texts[i])));
  select.value = chosen;
}

// Copies the address of the view and says so in `copied`; without permission for the clipboard, shows
// it there.
export async function copyLink(host, hash, copied) {
  const place = new URL(host.location.href);
  place.hash = hash;
  const value = place.href;
  try {
    host.history.replaceState(null, "", value);
  } catch {
    // Too often in a short time. The link is right nevertheless.
  }
  try {
    await navigator.clipboard.writeText(value);
    copied.replaceChildren("copied");
  } catch {
    const text = el("input", { readonly: true, value, "aria-label": "Link to this view" });
    copied.replaceChildren(text);
    text.select();
  }
}

export class ZoomButtons {
  // zoom(factor): in or out; 0: the whole map.
  constructor(zoom) {
    const button = (text, name, factor) => {
      const attributes = { type: "button", "aria-label": name, title: name };
      return el("button", { ...attributes, onclick: () => zoom(factor) }, text);
    };
    const more = button("+", "Zoom in (+)", ZOOM);
    this.back = [button("−", "Zoom out (-)", 1 / ZOOM), button("⤢", "Whole map (0)", 0)];
    this.node = el("div", { class: "zoom" }, this.back[0], more, this.back[1]);
  }

  show({ zoom }) {
    for (const each of this.back) each.disabled = zoom === 1;
  }
}
