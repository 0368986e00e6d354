// Keyboard shortcuts, and the list that explains them.

import { el } from "./dom.js";

const KEYS = [
  ["← →", "previous, next head"],
  ["↑ ↓", "previous, next layer; if sorted, row"],
  [", .", "previous, next step (also shift ← →)"],
  ["space", "play through training"],
  ["[ ]", "previous, next token"],
  ["esc", "choose no token"],
  ["c d", "compare; show the difference"],
  ["+ - 0", "zoom in, out, whole map"],
];

export function keyList() {
  const rows = KEYS.map(([key, what]) => el("li", {}, el("kbd", {}, key), ` ${what}`));
  return el("details", { class: "keys" }, el("summary", {}, "Keys"), el("ul", {}, ...rows));
}

export function onKey(event, app) {
  const at = (selector) => event.target.closest?.(selector);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Controls handle their own keys.
  if (at("select, input:not([type=range])")) return;
  if (at("input") && event.key.startsWith("Arrow")) return;
  if (at("button, summary") && event.key === " ") return;
  const { token } = app.state;
  const { shiftKey } = event;
  const actions = {
    ArrowLeft: () => (shiftKey ? app.step(-1) : app.turnTo(app.grid.beside(app.state, -1))),
    ArrowRight: () => (shiftKey ? app.step(1) : app.turnTo(app.grid.beside(app.state, 1))),
    ArrowUp: () => app.turnTo(app.grid.row(app.state, -1)),
    ArrowDown: () => app.turnTo(app.grid.row(app.state, 1)),
    ",": () => app.step(-1),
    ".": () => app.step(1),
    " ": () => app.play(),
    "[": () => app.set({ token: Math.max(0, token - 1) }),
    "]": () => app.set({ token: token + 1 }),
    Escape: () => app.pick(-1),
    c: () => app.compare.toggle(),
    d: () => app.compare.toggleDifference(),
    "+": () => app.zoom(1.5),
    "-": () => app.zoom(1 / 1.5),
    0: () => app.zoom(0),
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}
