// Keyboard shortcuts, and the list that explains them.

import { el } from "./dom.js";

const KEYS = [
  ["← →", "previous, next head"],
  ["↑ ↓", "previous, next layer"],
  ["[ ]", "previous, next token"],
  ["esc", "choose no token"],
  ["+ - 0", "zoom in, out, whole map"],
];
const TRAINING = [
  [", .", "previous, next step (also shift ← →)"],
  ["space", "play through training"],
];

// more: keys of one page alone, as in KEYS. hasSteps: whether there is more than one step to show.
export function keyList(more, hasSteps = true) {
  const rows = [...KEYS, ...(hasSteps ? TRAINING : []), ...more].map(([key, what]) => el("li", {}, el("kbd", {}, key), ` ${what}`));
  return el("details", { class: "keys small" }, el("summary", {}, "Keys"), el("ul", {}, ...rows));
}

// more: what keys of one page alone do, by key.
export function onKey(event, app, more) {
  const at = (selector) => event.target.closest?.(selector);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Controls handle their own keys. Space would only choose again the head that is chosen.
  if (at("select, textarea, input:not([type=range], [type=checkbox])")) return;
  if (at("[type=range]") && event.key.startsWith("Arrow")) return;
  const pressed = "button:not(.head[aria-pressed=true]), summary, [type=checkbox]";
  if (at(pressed) && event.key === " ") return;
  const { token } = app.state;
  const { shiftKey } = event;
  const actions = {
    ArrowLeft: () => (shiftKey ? app.steps.move(-1) : app.turnTo(app.grid.beside(app.state, -1))),
    ArrowRight: () => (shiftKey ? app.steps.move(1) : app.turnTo(app.grid.beside(app.state, 1))),
    ArrowUp: () => app.turnTo(app.grid.row(app.state, -1)),
    ArrowDown: () => app.turnTo(app.grid.row(app.state, 1)),
    ",": () => app.steps.move(-1),
    ".": () => app.steps.move(1),
    ...(app.steps.steps.length > 1 && { " ": () => app.steps.toggle() }), // else the page scrolls
    "[": () => app.set({ token: Math.max(0, token - 1) }),
    "]": () => app.set({ token: Math.min(app.first.texts.length - 1, token + 1) }),
    Escape: () => app.pick(-1),
    "+": () => app.zoom(1.5),
    "-": () => app.zoom(1 / 1.5),
    0: () => app.zoom(0),
    ...more,
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}
