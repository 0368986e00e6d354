// The module that TensorBoard loads for the Attention tab.

import { start } from "./app.js";
import { Logs } from "./source.js";

export function render() {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL("style.css", import.meta.url).href;
  const styled = new Promise((resolve) => link.addEventListener("load", resolve));
  document.head.append(link);
  document.documentElement.lang = "en";
  return styled.then(() => start(new Logs()));
}
