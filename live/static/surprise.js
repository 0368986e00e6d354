// The text again, token by token: how much each one surprised the model is its background.

import { signedText } from "./bars.js";
import { el } from "./dom.js";
import { TokenText } from "./text.js";

export class Surprise {
  // pick(place): show what else could have been there.
  constructor(pick) {
    this.text = new TokenText("Loss of every token", pick, { class: "text losses" });
    this.sum = el("p", { class: "sum" });
    this.most = el("span");
    const ramp = el("i", { class: "ramp", "aria-hidden": "true" });
    const scale = el("p", { class: "small" }, "0 ", ramp, this.most);
    const hint = "Click a token to see what else it could have been.";
    const title = el("h2", {}, "How surprising each token is");
    this.node = el(
      "section",
      { class: "surprise" },
      title,
      this.text.node,
      el("div", { class: "under apart" }, el("p", { class: "note small" }, hint), scale),
    );
  }

  // losses, before: nats by token, NaN for the first; before is null if nothing is off. worst: the
  // loss of a guess among all tokens. place: the token that was picked, or null.
  show(tokens, losses, before, worst, place) {
    const now = meanLoss(losses);
    const change = before ? now - meanLoss(before) : 0;
    this.sum.replaceChildren(
      ...(Number.isNaN(now)
        ? [tokens.length < 2 ? "The loss is known from the second token on." : "The loss is not finite."]
        : before
          ? [
              `Loss ${meanLoss(before).toFixed(3)} → `,
              el("b", {}, now.toFixed(3)),
              ` nats a token: ${signedText(change)} since parts are off`,
            ]
          : ["Loss ", el("b", {}, now.toFixed(3)), " nats a token, of this text"]),
    );
    this.most.textContent = `${worst.toFixed(1)} nats: a blind guess`;
    this.text.write(tokens);
    this.text.mark(place, tokens.length - 1);
    this.text.shade((i) => [losses[i] / worst, lossText(losses[i], before?.[i])]);
  }
}

// Of all tokens whose loss is known.
export function meanLoss(losses) {
  const known = losses.filter((each) => !Number.isNaN(each));
  return known.reduce((sum, each) => sum + each, 0) / known.length;
}

function lossText(loss, before) {
  if (Number.isNaN(loss)) return "no loss, as nothing is before it";
  const was = before === undefined ? "" : `, before ${before.toFixed(3)}`;
  return `loss ${loss.toFixed(3)} nats${was}`;
}
