// The parts of the page and their places.

import { field, Picker, copyLink } from "./controls.js";
import { el } from "./dom.js";
import { foot } from "./foot.js";
import { keyList } from "./keys.js";
import { writeFragment } from "./link.js";
import { NextTokens } from "./next.js";
import { Player } from "./play.js";
import { Ranking } from "./ranking.js";
import { charts } from "./saved.js";
import { Scores } from "./scores.js";
import { Surprise } from "./surprise.js";
import { Switches } from "./switches.js";
import { Understanding } from "./understanding.js";
import { Writing } from "./writing.js";

const LEAD =
  "A language model runs in this page. Type, and it reads along: what surprises it, what it expects next, what each of its heads looks at. Switch parts off to find out what they do.";

// Every part reports to the page what was done, and knows no other part.
export function buildParts(app) {
  const say = (text) => app.say(text);
  const menus = charts(app, say);
  const steps = new Picker("Training", ({ step }) => app.set({ step }));
  return {
    ...textParts(app, menus),
    steps,
    player: new Player([steps], { maps: async () => {} }), // whose maps are computed, not loaded
    view: el("select", { oninput: ({ target }) => app.set({ view: target.value }) }),
    meaning: el("p", { class: "note small" }),
    scores: new Scores(() => {}),
    ranking: new Ranking(app.study, () => app.ranked(), say),
    switches: new Switches((off) => app.set({ off })),
    understanding: new Understanding(app.study, menus, () => app.explain()),
  };
}

function textParts(app, menus) {
  const { author } = app;
  const input = el("textarea", {
    rows: 3,
    spellcheck: "false",
    "aria-label": "Text",
    placeholder: "Type a text, such as: Once there was a hen named Ida. Or let the model write one.",
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
  return {
    input,
    grow,
    next: new NextTokens(
      { choose: (id) => author.choose(id), back: () => app.set({ place: null }) },
      menus.next,
    ),
    surprise: new Surprise((place) => app.look(place), menus.losses),
    writing: new Writing({
      start: () => author.toggle(),
      stop: () => author.toggle(),
      undo: () => author.undo(),
      another: () => author.another(),
      change: (sampling) => app.set({ sampling }),
    }),
    seen: el("p", { class: "note small" }),
  };
}

export function arrange(app) {
  const text = [app.input, app.writing.node, app.seen, app.surprise.node];
  app.main.replaceChildren(
    el("p", { class: "lead" }, LEAD),
    app.steps.node,
    app.notice,
    el("div", { class: "columns top" }, el("section", { class: "typing", "aria-label": "Your text" }, ...text), app.next.node),
    columns(app),
    app.understanding.node,
    el("footer", {}, linkButton(app), ...foot(app.data)),
  );
}

function columns(app) {
  const scores = el(
    "details",
    { class: "allscores", open: innerWidth > 1000 },
    el("summary", {}, "Scores of this head"),
    app.scores.node,
  );
  const shown = field("Show", app.view);
  return el(
    "div",
    { class: "columns" },
    el(
      "div",
      { class: "side" },
      app.overview,
      el("div", { class: "ordering line" }, app.order.node, app.ranking.node),
      app.grid.node,
      app.legend,
      keyList([["x", "switch the head off, or on"]], app.data.steps.length > 1),
    ),
    el(
      "div",
      { class: "chosen" },
      el("div", { class: "views line" }, shown, app.buttons.node, app.meaning),
      app.panels[0].node,
      app.difference.node,
      el("div", { class: "aside" }, app.switches.node, scores),
    ),
  );
}

function linkButton(app) {
  const copied = el("output", { class: "copied" });
  const copy = () => copyLink(window, writeFragment(app.linked()), copied);
  const title = "A link to this text, head, step and what is switched off";
  const button = el("button", { type: "button", onclick: copy, title }, "Copy link");
  return el("div", { class: "line centred" }, button, copied);
}
