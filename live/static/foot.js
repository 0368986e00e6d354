// The foot of the page: what it holds, and how well that does beside PyTorch.

import { signedText } from "./bars.js";
import { el, table } from "./dom.js";

const FOLLOWS =
  "The weights come from the folder of the run as float16; the page computes with 32 bits. It loads nothing else and sends nothing.";

export function foot({ run, weights, steps, versions }) {
  const measured = steps.filter((step) => run.losses[step]);
  const title = `Loss in nats per token, on the first ${run.scored_tokens.toLocaleString("en")} tokens of the validation text`;
  const names = ["step", "PyTorch, float32", `this page, ${weights}`, "difference"];
  const rows = measured.map((step) => {
    const { float32, page } = run.losses[step];
    return [step.toLocaleString("en"), float32.toFixed(4), page.toFixed(4), signedText(page - float32, 4)];
  });
  return [
    ...(rows.length ? [table(title, names, rows)] : []),
    el("p", {}, "Made with glassgpt. To make such a page of a model of your own:"),
    el("pre", {}, "make train\nsource .venv/bin/activate\npython look.py run=latest html=storyteller.html"),
    el("p", {}, versions ? FOLLOWS : `The page holds the weights as ${weights} and computes with 32 bits. It loads nothing and sends nothing.`),
  ];
}
