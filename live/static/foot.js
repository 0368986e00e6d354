// The foot of the page: what it holds, and how to make another one.

import { el } from "./dom.js";

const FOLLOWS =
  "The weights come from the folder of the run as float16; the page computes with 32 bits. It loads nothing else and sends nothing.";

export function foot({ weights, versions }) {
  return [
    el("p", {}, "Made with glassgpt. To make such a page of a model of your own:"),
    el("pre", {}, "make train\nsource .venv/bin/activate\npython look.py run=latest html=storyteller.html"),
    el("p", {}, versions ? FOLLOWS : `The page holds the weights as ${weights} and computes with 32 bits. It loads nothing and sends nothing.`),
  ];
}
