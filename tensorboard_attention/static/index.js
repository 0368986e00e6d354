// The module that TensorBoard loads for the Attention tab.

import { start } from "./app.js";
import { el } from "./dom.js";
import { Logs } from "./source.js";

export function render() {
  const { href } = new URL("style.css", import.meta.url);
  const link = (onload) => el("link", { rel: "stylesheet", href, onload });
  const styled = new Promise((resolve) => document.head.append(link(resolve)));
  document.documentElement.lang = "en";
  if (parent === window) {
    // TensorBoard's address of this page alone, as for a phone.
    const viewport = { name: "viewport", content: "width=device-width, initial-scale=1" };
    document.head.append(el("meta", viewport));
    document.title = "Attention";
  }
  return styled.then(() => start(new Logs()));
}
