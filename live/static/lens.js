// What each layer would say next: the stream of every token after every layer, read as if the model
// ended there (nostalgebraist 2020, "interpreting GPT: the logit lens").

import { percent } from "./bars.js";
import { el, spokenToken, tokenLabel } from "./dom.js";
import { walkCells } from "./text.js";

const LENS_MEANING =
  "If the model ended after this layer, this token would come next. Rows are layers, columns the tokens read; a guess that was right is underlined.";

export class LensTable {
  constructor() {
    this.readout = el("p", { class: "readout small" });
    this.body = el("div", { class: "scroller" });
    const over = (event) => this.#point(event.target.closest("[data-at]"));
    for (const type of ["pointerover", "click", "focusin"]) this.body.addEventListener(type, over);
    this.body.addEventListener("keydown", (event) => walkCells(this.body, event));
    const about = el("p", { class: "meaning" }, LENS_MEANING);
    const ramp = el("i", { class: "ramp", "aria-hidden": "true" });
    const scale = el("p", { class: "small" }, "0% ", ramp, "100%: the probability of the guess");
    this.node = el("div", { class: "insight" }, about, this.body, scale, this.readout);
  }

  // cells[layer][place]: the most probable tokens there as [token, probability]. place: the column that
  // is selected.
  show(tokens, cells, place) {
    Object.assign(this, { tokens, cells });
    const head = tokens.map((token, i) =>
      el("th", { scope: "col", class: i === place ? "focus" : null }, tokenLabel(token, 10)),
    );
    this.body.replaceChildren(
      el(
        "table",
        { class: "lens" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "after"), ...head)),
        el(
          "tbody",
          {},
          ...cells.map((row, layer) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, `layer ${layer}`),
              ...row.map((top, i) => this.#cell(top, layer, i)),
            ),
          ),
        ),
      ),
    );
    this.body.querySelector("[data-at]").tabIndex = 0;
    this.#reveal(place);
    this.readout.textContent = "Point at a cell, or walk through them with the arrow keys.";
  }

  #cell([[token, share]], layer, place) {
    const name = `layer ${layer}, ${place} ${spokenToken(this.tokens[place])}: ${spokenToken(token)}, ${percent(share)}`;
    const cell = el("td", { "data-at": `${layer}.${place}`, tabindex: -1, "aria-label": name });
    cell.textContent = tokenLabel(token, 10);
    cell.style.setProperty("--share", `${(100 * Math.sqrt(share)).toFixed(0)}%`);
    cell.classList.toggle("right", token === this.tokens[place + 1]);
    return cell;
  }

  #reveal(place) {
    const column = this.body.querySelector(`[data-at="0.${place}"]`);
    if (column) this.body.scrollLeft = column.offsetLeft - this.body.clientWidth / 2;
  }

  #point(cell) {
    if (!cell) return;
    const [layer, place] = cell.dataset.at.split(".");
    const top = this.cells[layer][place].map(([token, share]) => `${tokenLabel(token)} ${percent(share)}`);
    this.readout.textContent = `After layer ${layer}, token ${place} ${tokenLabel(this.tokens[place])}: ${top.join(", ")}`;
  }
}
