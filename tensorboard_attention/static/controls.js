// Selects a view: run, probe and step. Each of the two views that can be compared has one.

import { el } from "./dom.js";

export const ZOOM = 1.5; // at one press of a button

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
    this.node = el(
      "fieldset",
      { class: "picker" },
      el("legend", {}, name),
      field("Run", this.run),
      field("Probe", this.tag),
      el("div", { class: "stepper" }, this.play, field("Step", this.slider), this.step),
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
    this.slider.max = this.steps.length - 1;
    this.slider.value = this.steps.indexOf(view.step);
    this.slider.disabled = this.play.disabled = this.steps.length < 2;
    this.slider.setAttribute("aria-valuetext", `step ${view.step}`);
    this.step.textContent = `${view.step.toLocaleString("en")} (${Number(this.slider.value) + 1} of ${this.steps.length})`;
  }

  // Moves by this many logged steps. Returns false if there is no such step.
  move(by) {
    const place = Number(this.slider.value) + by;
    if (place < 0 || place >= this.steps.length) return false;
    this.choose({ step: this.steps[place] });
    return true;
  }

  toggle() {
    const again = !this.playing && this.view.step === this.steps.at(-1);
    this.setPlaying(!this.playing);
    this.choose({ step: again ? this.steps[0] : this.view.step });
  }

  setPlaying(playing) {
    this.playing = playing;
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", playing ? "Pause" : "Play through training");
    this.play.title = playing ? "Pause (space)" : "Play through training (space)";
  }
}

export function field(name, control) {
  return el("label", { class: "field" }, el("span", {}, name), control);
}

export function options(select, values, chosen, texts = values) {
  const same =
    values.length === select.length &&
    values.every((value, i) => select.options[i].value === value);
  if (!same) select.replaceChildren(...values.map((value, i) => el("option", { value }, texts[i])));
  select.value = chosen;
}

// Copies the address of the view, or shows it in `copied` without permission for the clipboard.
export async function copyLink(host, hash, copied) {
  const place = new URL(host.location.href);
  place.hash = hash;
  try {
    host.history.replaceState(null, "", place.href);
    await navigator.clipboard.writeText(place.href);
    copied.replaceChildren("copied");
  } catch {
    const text = el("input", {
      readonly: true,
      value: place.href,
      "aria-label": "Link to this view",
    });
    copied.replaceChildren(text);
    text.select();
  }
}

export function zoomButtons(zoom) {
  const button = (text, name, factor) =>
    el(
      "button",
      {
        type: "button",
        "aria-label": name,
        title: name,
        onclick: () => zoom(factor),
      },
      text,
    );
  return el(
    "div",
    { class: "zoom" },
    button("−", "Zoom out (-)", 1 / ZOOM),
    button("+", "Zoom in (+)", ZOOM),
    button("⤢", "Whole map (0)", 0),
  );
}
