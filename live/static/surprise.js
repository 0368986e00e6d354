// The text again, token by token: how much each one surprised the model is its background, or where that
// is known, how much of it a perfect reader would have avoided.

import { signedText } from "./bars.js";
import { el, whiteSpaceKey } from "./dom.js";
import { TokenText } from "./text.js";

const AVOIDABLE = 1; // nats above the floor, or below it, from which on a token has the full colour

export class Surprise {
  // pick(place): show what else could have been there.
  constructor(pick) {
    this.text = new TokenText("Loss of every token", pick, { class: "text losses" });
    this.sum = el("p", { class: "sum" });
    this.least = el("span");
    this.most = el("span");
    this.ramp = el("i", { class: "ramp", "aria-hidden": "true" });
    const scale = el("p", { class: "small" }, this.least, this.ramp, this.most);
    this.hint = el("p", { class: "note small" });
    const title = el("h2", {}, "How surprising each token is");
    this.node = el(
      "section",
      { class: "surprise" },
      title,
      this.text.node,
      el("div", { class: "under line" }, this.hint, scale),
    );
  }

  // losses: nats by token, NaN where the text begins. before: with all parts on, if some are off.
  // worst: the loss of a guess among all tokens. place: the token that was picked, or null. wroteBroken:
  // whether the model wrote the end of the text with parts off. floor: the losses of a perfect reader, if known.
  show({ tokens, losses, before, begun }, worst, place, wroteBroken, floor) {
    const avoidable = floor && losses.map((loss, i) => loss - floor[i]);
    const now = meanLoss(losses);
    const unknown = tokens.length <= Math.max(1, begun) ? "The loss is known from the second token on." : "The loss is not finite.";
    const written = wroteBroken ? ", whose end it wrote with parts off" : "";
    const about = before
      ? ` nats a token with parts off, ${meanLoss(before.losses).toFixed(3)} with all on, of the same text${written}`
      : ` nats a token${floor ? "" : ", of this text"}`;
    const known = ["Loss ", el("b", {}, now.toFixed(3)), about];
    if (floor) known.push(", avoidable ", el("b", {}, signedText(meanLoss(avoidable))));
    this.sum.replaceChildren(...(Number.isNaN(now) ? [unknown] : known));
    this.ramp.classList.toggle("signed", Boolean(floor));
    this.least.textContent = floor ? `−${AVOIDABLE} ` : "0 ";
    this.most.textContent = floor
      ? `+${AVOIDABLE} nat or more`
      : `${(2 * worst).toFixed(1)} nats or more; a blind guess: ${worst.toFixed(1)}`;
    const colour = floor ? "Avoidable surprise: the loss less that of a perfect reader (blue: below 0). " : "";
    this.hint.textContent = `${colour}Click a token to see what else it could have been. ${whiteSpaceKey(tokens)}`;
    this.text.write(tokens);
    this.text.mark(place, tokens.length - 1);
    this.text.shade((i) => [
      floor ? avoidable[i] / AVOIDABLE : losses[i] / (2 * worst),
      lossText(losses[i], before?.losses[i], avoidable?.[i]),
    ]);
  }
}

// Of all tokens whose loss is known.
export function meanLoss(losses) {
  const known = losses.filter((each) => !Number.isNaN(each));
  return known.reduce((sum, each) => sum + each, 0) / known.length;
}

function lossText(loss, before, avoidable) {
  if (Number.isNaN(loss)) return "no loss, as the text begins with it";
  const was = before === undefined ? "" : `, before ${before.toFixed(3)}`;
  const more = avoidable === undefined ? "" : `, of which ${avoidable.toFixed(3)} avoidable`;
  return `loss ${loss.toFixed(3)} nats${was}${more}`;
}
