// Copies the command that trains a run again from a checkpoint, without the selected head.

import { copyText } from "./controls.js";
import { el } from "./dom.js";

const DONE = "command copied: paste it into a terminal";

export class Branch {
  // copied: where to say that it was copied, or else to show the command.
  constructor(copied) {
    const copy = () => copyText(this.command, "Command", copied, DONE);
    this.node = el("button", { type: "button", hidden: true, onclick: copy });
  }

  // checkpoints: by run that has any, their steps and the command. last: the last step of the whole
  // training, from which none is left.
  show({ one, layer, head }, checkpoints, last = Infinity) {
    const about = Object.hasOwn(checkpoints, one.run) ? checkpoints[one.run] : { steps: [] };
    const steps = about.steps.filter((step) => step < last);
    this.node.hidden = !steps.length;
    if (!steps.length) return;
    const step = steps.findLast((each) => each <= one.step) ?? steps[0];
    this.command = `${about.command} step=${step} hold_off=L${layer}H${head}`;
    this.node.textContent = `Train without L${layer}H${head}`;
    this.node.title = `Copies the command that continues this run from its checkpoint of step ${step} without the head: ${this.command}`;
  }
}
