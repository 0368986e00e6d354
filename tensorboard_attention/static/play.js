// Playing through the steps of a run, and loading them in advance.

export class Player {
  constructor(pickers, store) {
    Object.assign(this, { pickers, store });
  }

  // Called when the views are drawn: while playing, each step schedules the next.
  drawn(views, runs) {
    views.forEach((view, i) => this.#prefetch(view, runs[view.run][view.tag], this.pickers[i].stride));
    clearTimeout(this.timer);
    const [next] = this.pickers
      .filter((picker) => picker.playing)
      .sort((a, b) => a.due() - b.due());
    if (next) this.timer = setTimeout(() => next.playing && next.advance(), next.due());
  }

  // Loads neighbouring steps, so that the slider moves without waiting.
  #prefetch(view, steps, stride) {
    const place = steps.indexOf(view.step);
    for (const step of [steps[place + stride], steps[place - 1], steps[place + 2 * stride]]) {
      if (step !== undefined) this.store.maps({ ...view, step }).catch(() => {});
    }
  }

  stop() {
    this.pickers.forEach((picker) => picker.setPlaying(false));
  }
}
