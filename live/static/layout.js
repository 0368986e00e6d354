// The parts of the page and their places: three steps (type, see, break), with what comes next beside
// them, and below them the looks inside.

import { field, Picker, copyLink } from "./controls.js";
import { el } from "./dom.js";
import { foot } from "./foot.js";
import { keyList } from "./keys.js";
import { writeFragment } from "./link.js";
import { NextTokens } from "./next.js";
import { Player } from "./play.js";
import { stepTitle } from "./steps.js";
import { Surprise } from "./surprise.js";
import { Switches } from "./switches.js";
import { Tour } from "./tour.js";
import { Understanding } from "./understanding.js";
import { Writing } from "./writing.js";

// Every part reports to the page what was done, and knows no other part.
export function buildParts(app) {
  const steps = new Picker("Training", ({ step }) => app.set({ step }));
  return {
    ...textParts(app),
    steps,
    player: new Player([steps], { maps: async () => {} }), // whose maps are computed, not loaded
    view: el("select", { oninput: ({ target }) => app.set({ view: target.value }) }),
    meaning: el("p", { class: "note small" }),
    switches: new Switches((off) => app.set({ off }), app.data.run.means),
    understanding: new Understanding(app.study, {
      again: () => app.again(),
      cell: () => app.cell(),
      mark: (heads) => app.grid.mark(heads),
      set: (part) => app.set(part),
      isWriting: () => app.author.busy,
    }),
    tour: new Tour(app),
  };
}

function textParts(app) {
  const { author } = app;
  const input = el("textarea", {
    rows: 3,
    spellcheck: "false",
    "aria-label": "Text",
    placeholder: "Type a text, or let the model write one.",
    oninput: () => author.typed(input.value),
    onkeydown: (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      author.toggle();
    },
  });
  // As high as its text, within limits of the style.
  const grow = () => {
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight + 2}px`;
  };
  const surprise = new Surprise((place) => app.look(place));
  const choices = { choose: (id) => author.choose(id), back: () => app.set({ place: null }) };
  return {
    input,
    grow,
    surprise,
    next: new NextTokens(choices, surprise.sum),
    writing: new Writing({
      toggle: () => author.toggle(),
      undo: () => author.undo(),
      change: (sampling) => app.set({ sampling }),
    }),
    seen: el("p", { class: "note small" }),
  };
}

export function arrange(app) {
  app.main.replaceChildren(
    tools(app),
    app.notice,
    app.steps.node,
    el(
      "div",
      { class: "stage" },
      typing(app),
      el("div", { class: "rail" }, app.next.node, app.switches.node),
      seeing(app),
    ),
    app.understanding.node,
    el("footer", {}, ...foot(app.data)),
  );
}

function tools(app) {
  const copied = el("output", { class: "copied" });
  const copy = () => copyLink(window, writeFragment(app.linked()), copied);
  const title = "A link to this text, head, step and what is switched off";
  return el(
    "div",
    { class: "tools line centred" },
    el("button", { type: "button", onclick: () => app.tour.start() }, "Tour"),
    el("button", { type: "button", onclick: copy, title }, "Copy link"),
    copied,
  );
}

function typing(app) {
  return el(
    "section",
    { class: "typing", "aria-label": "Type" },
    stepTitle(1, "Type", "The model reads along, and guesses every next token."),
    app.input,
    app.writing.node,
    examples(app),
    app.seen,
    app.surprise.node,
  );
}

// Texts to begin with: none of them is from the text that the model was trained on.
function examples(app) {
  const { prompt, examples: found } = app.data.run;
  const texts = { "a beginning": prompt, ...found };
  const buttons = Object.entries(texts).map(([name, text]) =>
    el("button", { type: "button", class: "plain", onclick: () => app.author.replace(text) }, name),
  );
  return el("p", { class: "examples line centred small" }, el("span", {}, "Try"), ...buttons);
}

function seeing(app) {
  return el(
    "section",
    { class: "seeing", "aria-label": "See" },
    stepTitle(2, "See", "What each head looks at."),
    app.overview,
    el(
      "div",
      { class: "columns" },
      el(
        "div",
        { class: "side" },
        app.grid.node,
        app.kinds,
        app.legend,
        keyList([["x", "switch the head off, or on"]], app.hasSteps),
      ),
      el(
        "div",
        { class: "chosen" },
        el("div", { class: "views line" }, field("Show", app.view), app.buttons.node, app.meaning),
        app.panels[0].node,
        app.difference.node,
      ),
    ),
  );
}
