// The foot of the page: what it holds, and how well that does beside PyTorch.

import { signedText } from "./bars.js";
import { el } from "./dom.js";

export function foot({ run, weights, steps }) {
  const rows = steps.filter((step) => run.losses[step]);
  const losses = rows.map((step) => run.losses[step]);
  const cells = (name, texts) => texts.map((text) => el(name, {}, text));
  const count = run.scored_tokens.toLocaleString("en");
  const table = el(
    "table",
    {},
    el("caption", {}, `Loss in nats per token, on the first ${count} tokens of the validation text`),
    el("thead", {}, el("tr", {}, ...cells("th", ["step", "PyTorch, float32", `this page, ${weights}`, "difference"]))),
    el(
      "tbody",
      {},
      ...rows.map((step, i) => {
        const { float32, page } = losses[i];
        const texts = [step.toLocaleString("en"), float32.toFixed(4), page.toFixed(4), signedText(page - float32, 4)];
        return el("tr", {}, ...cells("td", texts));
      }),
    ),
  );
  return [
    ...(rows.length ? [table] : []),
    el("p", {}, `The page holds the weights as ${weights} and computes with 32 bits. It loads nothing and sends nothing.`),
  ];
}
