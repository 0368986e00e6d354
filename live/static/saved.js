// What can be saved: the map of the head, and each chart of the page as a picture and as numbers.

import { contributions, percent, shareText } from "./bars.js";
import { chartFiles } from "./charts.js";
import { FileMenu, fileName } from "./files.js";
import { layerName } from "./lens.js";
import { atOf } from "./patches.js";
import { mapFiles, subject } from "./save.js";
import { streamName } from "./streams.js";

const json = JSON.stringify; // so that spaces and line ends are seen

// One menu for all. app: the page, whose parts keep what they show.
export function saveMenu(app, say) {
  const charts = { "Next tokens": nextTokens, Losses: losses, Layers: layers, Parts: parts, "OV circuit": circuit, Score: score, Patched: patched, Stream: stream };
  const files = Object.entries(charts).flatMap(([what, chart]) => {
    const made = () => chart(app, (name) => fileName(app.data.run.name, app.state.step, name));
    const lines = () => made().lines();
    return chartFiles(what, made, lines, () => app.palette).map((file) => [...file, () => made() !== null]);
  });
  const map = () => subject(saved(app), app.state.view === "change" ? 2 : 0);
  return new FileMenu([...mapFiles(map), ...files], say);
}

// What save.js reads of a page.
function saved({ data: { run }, state, maps, palette, difference, reading }) {
  const one = { run: run.name, tag: state.text.slice(0, 40), step: state.step };
  const two = { ...one, tag: "all parts on" };
  return { state: { ...state, one, two }, maps: [maps, reading.before?.maps], palette, difference };
}

// The charts, each as charts.js draws it, with its numbers as `lines`; null if it is not shown.

function nextTokens({ next }, name) {
  return {
    name: name("next"),
    title: next.title.textContent,
    rows: next.rows.map(({ token, now }) => [token, now, percent(now)]),
    lines: () => [
      ["token", "probability", "before"],
      ...next.rows.map(({ token, now, before }) => [json(token), now, before ?? NaN]),
    ],
  };
}

function losses({ surprise, data }, name) {
  const worst = Math.log(data.config.vocab_size);
  const shown = (loss) => (Number.isNaN(loss) ? "–" : loss.toFixed(3));
  return {
    name: name("losses"),
    title: "Loss of every token, in nats",
    rows: surprise.tokens.map((token, i) => {
      const loss = surprise.losses[i];
      return [token, Math.min(1, loss / worst) || 0, shown(loss)];
    }),
    lines: () => [
      ["position", "token", "loss", "before"],
      ...surprise.tokens.map((token, i) => [i, json(token), surprise.losses[i], surprise.before?.[i] ?? NaN]),
    ],
  };
}

function layers({ understanding }, name) {
  const { lens } = understanding;
  if (!understanding.isOpen(lens)) return null;
  return {
    name: name("layers"),
    title: "What each layer would say next",
    columns: lens.tokens,
    rows: lens.cells.map((row, i) => [layerName(i), ...row.map(([top]) => top)]),
    lines: () => [
      ["after", "position", "token", "rank", "next", "probability"],
      ...lens.cells.flatMap((row, layer) =>
        row.flatMap((top, i) =>
          top.map(([token, share], rank) => [
            ...[layerName(layer), i, json(lens.tokens[i])],
            ...[rank + 1, json(token), share],
          ]),
        ),
      ),
    ],
  };
}

function parts({ understanding }, name) {
  const { writers } = understanding;
  if (!understanding.isOpen(writers)) return null;
  const lines = () => [["part", "added to the logit"], ...writers.parts];
  return ofBars(name("writers"), "What each part adds to the logit", writers.parts, lines);
}

function circuit({ understanding }, name) {
  const ov = understanding.circuit;
  if (!understanding.isOpen(ov)) return null;
  const added = [...ov.rows.promoted, ...ov.rows.suppressed];
  const lines = () => [["token", "added to the logit"], ...added.map(([token, value]) => [json(token), value])];
  return ofBars(name("head"), "What the head adds to the logits", added, lines);
}

function score({ understanding }, name) {
  const { reasons } = understanding;
  if (!understanding.isOpen(reasons)) return null;
  const terms = reasons.terms.map(({ query, key, value }) => [`${query} → ${key}`, value]);
  const lines = () => [["query", "key", "term"], ...reasons.terms.map(({ query, key, value }) => [query, key, value])];
  return ofBars(name("score"), "The score of a cell, by what wrote the query and the key", terms, lines);
}

function patched({ understanding }, name) {
  const { patches } = understanding;
  if (!understanding.isOpen(patches) || !patches.ranked.length) return null;
  const where = (part) => (atOf(part) === null ? "every token" : `token ${atOf(part)}`);
  return {
    name: name("patched"),
    title: "How much of the second answer comes over",
    rows: patches.ranked.map(([part, share]) => [part, Math.min(1, Math.max(-1, share)), shareText(share)]),
    lines: () => [
      ["part", "at", "comes over"],
      ...patches.ranked.map(([part, share, about]) => [part, where(about), share]),
    ],
  };
}

function stream({ understanding, data }, name) {
  const { patches } = understanding;
  const { tokens, parts, shares } = patches.table;
  if (!understanding.isOpen(patches) || !shares.length || shares.length < parts.length) return null;
  const last = data.config.n_layers;
  const columns = parts.filter(({ layer }) => layer === 0).map(({ places: [place] }) => tokens[place][1]);
  const cells = shares.map((share) => [shareText(share), Math.min(1, Math.max(0, share))]);
  const row = (_, layer) => [streamName(layer, last), ...cells.slice(layer * columns.length, (layer + 1) * columns.length)];
  return {
    name: name("stream"),
    title: "How much of the second answer comes over with the stream at one token",
    columns,
    rows: Array.from({ length: last + 1 }, row),
    lines: () => [
      ["stream", "position", "first token", "second token", "comes over"],
      ...parts.map(({ layer, places: [place] }, at) => [streamName(layer, last), place, ...tokens[place].map(json), shares[at]]),
    ],
  };
}

// parts: [name, value], the largest of which has the longest bar.
function ofBars(name, title, parts, lines) {
  const rows = contributions(parts).map((row) => [row.name, row.value, row.text]);
  return { name, title, rows, lines };
}
