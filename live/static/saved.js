// What can be saved of each picture that is no map: the picture, and its numbers.

import { contributions, percent } from "./bars.js";
import { ChartMenu } from "./charts.js";
import { fileName } from "./files.js";
import { layerName } from "./lens.js";

// The menus by name. app: the page, whose parts keep what they show.
export function charts(app, say) {
  const name = (what) => fileName(app.data.run.name, app.state.step, what);
  const menu = (chart, lines) => new ChartMenu(chart, lines, () => app.palette, say);
  const ofBars = (what, title, parts) => () => ({
    name: name(what),
    title: title(),
    rows: contributions(parts()).map((row) => [row.name, row.value, row.text]),
  });
  const json = JSON.stringify; // so that spaces and line ends are seen
  const writers = () => app.understanding.writers.parts;
  const ofHead = () => {
    const { promoted, suppressed } = app.understanding.circuit.rows;
    return [...promoted, ...suppressed];
  };
  return {
    next: menu(
      () => ({
        name: name("next"),
        title: app.next.title.textContent,
        rows: app.next.rows.map(({ token, now }) => [token, now, percent(now)]),
      }),
      () => [
        ["token", "probability", "before"],
        ...app.next.rows.map(({ token, now, before }) => [json(token), now, before ?? NaN]),
      ],
    ),
    losses: menu(
      () => ({
        name: name("losses"),
        title: "Loss of every token, in nats",
        rows: app.surprise.tokens.map((token, i) => {
          const loss = app.surprise.losses[i];
          const worst = Math.log(app.data.config.vocab_size);
          return [token, Math.min(1, loss / worst) || 0, Number.isNaN(loss) ? "–" : loss.toFixed(3)];
        }),
      }),
      () => [
        ["position", "token", "loss", "before"],
        ...app.surprise.tokens.map((token, i) => {
          const { losses, before } = app.surprise;
          return [i, json(token), losses[i], before?.[i] ?? NaN];
        }),
      ],
    ),
    lens: menu(
      () => ({
        name: name("layers"),
        title: "What each layer would say next",
        columns: app.understanding.lens.tokens,
        rows: app.understanding.lens.cells.map((row, i) => [layerName(i), ...row.map(([top]) => top)]),
      }),
      () => [
        ["after", "position", "token", "rank", "next", "probability"],
        ...app.understanding.lens.cells.flatMap((row, layer) =>
          row.flatMap((top, i) =>
            top.map(([token, share], rank) => [
              ...[layerName(layer), i, json(app.understanding.lens.tokens[i])],
              ...[rank + 1, json(token), share],
            ]),
          ),
        ),
      ],
    ),
    writers: menu(
      ofBars("writers", () => "What each part adds to the logit", writers),
      () => [["part", "added to the logit"], ...writers()],
    ),
    circuit: menu(
      ofBars("head", () => "What the head adds to the logits", ofHead),
      () => [["token", "added to the logit"], ...ofHead().map(([token, value]) => [json(token), value])],
    ),
  };
}
