// The address of the tab follows the view, so that the view survives a reload.

import { linkHash } from "./state.js";

const PAUSE = 350; // milliseconds: browsers refuse addresses that change more often

export class Address {
  constructor(app) {
    this.app = app;
    // TensorBoard writes its own address when another of its tabs is shown, and this one again.
    new IntersectionObserver(() => this.follow()).observe(app.main);
  }

  // The link to the view, without what nobody chose. A view of a run's last step is one of its last
  // step after a reload too. Exact: with all of it.
  link(exact = false) {
    const { state, runs, place, choice, opening, first } = this.app;
    const steps = [state.one, state.two].map((view) => {
      const last = view && runs[view.run][view.tag].at(-1);
      return view?.step === last && !exact ? "last" : view?.step;
    });
    const key = choice.picked?.query === state.token ? choice.picked.key : undefined;
    const open = exact ? {} : opening.open(state, first);
    return linkHash({ ...state, key, zoom: place, ...open }, steps);
  }

  // At once, and of the changes within a pause the last one at its end.
  follow() {
    this.changed = true;
    if (!this.timer) this.#next();
  }

  #next() {
    this.timer = undefined;
    if (!this.changed || !this.app.maps) return;
    this.changed = false;
    this.#write();
    this.timer = setTimeout(() => this.#next(), PAUSE);
  }

  #write() {
    const { location, history } = this.app.host;
    if (this.app.host !== window && !location.hash.startsWith("#attention")) return; // another tab
    const place = new URL(location.href); // not relative: the page may have another base
    place.hash = this.link();
    if (place.href === location.href) return;
    try {
      history.replaceState(history.state, "", place.href);
    } catch {
      // A page in a sandbox has no address of its own.
    }
  }
}
