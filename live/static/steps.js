// The titles of the three steps of the page.

import { el } from "./dom.js";

export function stepTitle(number, title, what) {
  const name = el("h2", {}, el("span", { class: "number", "aria-hidden": "true" }, `${number}`), ` ${title}`);
  return el("div", { class: "step" }, name, el("p", { class: "small" }, what));
}
