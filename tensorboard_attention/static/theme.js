// The light or dark theme, and the colour legend.

import { el } from "./dom.js";
import { TICKS, css, diverging, future, scale, tickText } from "./colours.js";

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

export function legend({ colours, future }) {
  const stops = [0, 32, 64, 96, 128, 160, 192, 224, 255].map((byte) => css(colours[byte]));
  const ramp = el("div", { class: "ramp" });
  ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const ticks = TICKS.map((weight) => {
    const tick = el("span", {}, tickText(weight));
    tick.style.left = `${100 * Math.sqrt(weight)}%`;
    return tick;
  });
  const grey = el("i");
  grey.style.background = css(future);
  return [
    el("div", { class: "ramped" }, el("p", {}, "Attention weight"), ramp, el("div", { class: "ticks" }, ...ticks)),
    el("div", { class: "unseen" }, grey, "future"),
  ];
}
