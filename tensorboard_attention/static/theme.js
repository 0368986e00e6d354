// The light or dark theme, and the legends of colours.

import { el } from "./dom.js";
import { css, diverging, future, scale } from "./colours.js";

// Follows the theme of the host (TensorBoard), or of the system in a page of its own. Calls
// changed(palette) now and at every change, with the scale and the colours of later tokens, lines
// and text.
export function followTheme(host, changed) {
  const body = host !== window ? host.document.body : null;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const forced = matchMedia("(forced-colors: active)");
  const follow = () => {
    const dark = body && !forced.matches ? body.classList.contains("dark-mode") : system.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    const style = getComputedStyle(document.documentElement);
    const palette = { colours: scale(dark), future: future(dark), diverging: diverging(dark) };
    for (const name of ["ground", "ink", "quiet", "line", "to", "from"]) {
      palette[name] = style.getPropertyValue(`--${name}`).trim();
    }
    changed(palette);
  };
  if (body) new MutationObserver(follow).observe(body, { attributeFilter: ["class"] });
  for (const media of [system, forced]) media.addEventListener("change", follow);
  follow();
}

// The colours of a scale and its ticks, from what maps say of themselves.
export function ramp({ colours, ticks }) {
  const bar = el("div", { class: "ramp" });
  const stops = Array.from(colours.filter((_, i) => i % 17 === 0), css); // both ends, and zero
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const marks = ticks.map(([at, text]) => {
    const tick = el("span", {}, text);
    tick.style.left = `${100 * at}%`;
    return tick;
  });
  return el("div", { class: "ramped" }, bar, el("div", { class: "ticks" }, ...marks));
}

export function legend(scale, { future }) {
  const grey = el("i", { class: "ramp" });
  grey.style.background = css(future);
  const ramped = ramp(scale);
  ramped.prepend(el("p", {}, scale.title));
  return [ramped, el("div", { class: "unseen" }, grey, "future")];
}

// What the colours of the names of heads mean.
export function kindsKey() {
  const kinds = [
    ["repeats", "repeats", "copies, or continues a repeat"],
    ["near", "near", "looks at the tokens just before"],
    ["rests", "rests", "rests on one token, or one kind of token"],
    ["", "mixed", "no pattern"],
  ];
  const key = ([kind, text, title]) => el("span", { "data-kind": kind, title }, text);
  return el("p", { class: "kinds small" }, "Names:", ...kinds.map(key));
}
