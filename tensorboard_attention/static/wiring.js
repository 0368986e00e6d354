// What heads read of earlier heads and MLPs, as a diagram: layers from the bottom up, and an edge for
// each share of a head's queries, keys or values.

import { el, svg } from "./dom.js";

const WAYS = ["query", "key", "value"];
const MLP = -1; // in place of the earlier head
const LOGGED = 5; // percent, from which on shares are logged
const SHOWN = 15; // and are drawn, until one asks for more
const MOST = 200; // edges; more would be a tangle
const DIAGRAM = 400;
const ABOUT = "How much of what a head reads was written by an earlier head or MLP: an edge goes from the part that wrote to the head that reads. Measured on";
const SIDE = 26; // left and right, of the names of layers and of MLPs
const ROOM = 38; // of the whole name of a head

export class Wiring {
  // choose([layer, head]): of a node, or the later one of an edge. mark(heads): the earlier one.
  constructor(choose, mark) {
    Object.assign(this, { choose, mark });
    this.chosen = null; // an edge, as it was logged
    this.least = el("input", {
      ...{ type: "range", min: LOGGED, max: 95, step: 5, value: SHOWN, "aria-label": "Smallest share, in percent" },
      oninput: () => this.#draw(),
    });
    this.hidden = el("p", { class: "note small" });
    this.reads = el("div", { class: "reads" });
    this.readout = el("output", { class: "readout" });
    this.chart = svg("svg", { role: "group", "aria-label": "Wiring" });
    const key = (way) => el("span", {}, el("i", { class: way }), way);
    this.against = el("span", {}, el("i", { class: "against" }), "works against");
    this.sentence = el("p", { class: "sentence" });
    this.about = el("p", { class: "note small" });
    const label = el("label", { class: "small" }, "Hide small shares", this.least);
    const ways = el("p", { class: "ways small" }, ...WAYS.map(key), this.against);
    this.parts = [
      el("summary", {}, el("h2", {}, "Wiring")),
      el("div", {}, this.sentence, this.about, ways, this.chart),
      el("div", {}, this.readout, label, this.hidden, this.reads),
    ];
    this.node = el("details", { class: "wiring", open: true, "aria-label": "Wiring" });
  }

  show({ header: { heads, wiring, measured } }, { layer, head }) {
    this.node.hidden = !wiring || heads.length < 2;
    if (this.node.hidden) return;
    Object.assign(this, { heads, edges: wiring, selected: [layer, head] });
    if (this.chosen && `${this.chosen.slice(1, 3)}` !== `${this.selected}`) this.chosen = null;
    const source = this.chosen?.slice(3, 5) ?? [];
    this.mark(source[1] >= 0 ? [source] : []);
    const where = Object.hasOwn(measured, "wiring") ? measured.wiring : "this text";
    this.about.textContent = `${ABOUT} ${where}.`;
    if (!this.chart.isConnected) this.node.replaceChildren(...this.parts);
    const strongest = wiring.find(([way, ...to]) => WAYS[way] === "key" && `${to.slice(0, 2)}` === `${this.selected}`) ?? wiring[0];
    this.sentence.textContent = strongest ? sentenceOfEdge(strongest) : "";
    this.#draw();
  }

  #draw() {
    const least = Number(this.least.value);
    const strong = this.edges.filter(([, , , , , share]) => 100 * Math.abs(share) >= least);
    this.drawn = strong.slice(0, MOST); // the strongest are first
    const { drawn, edges, heads } = this;
    const most = Math.max(...heads);
    const gap = Math.min(110, Math.max(44, 330 / (heads.length - 1)));
    const high = gap * (heads.length - 1) + 36;
    const across = (DIAGRAM - 2 * SIDE) / most;
    const place = ([layer, head]) =>
      head === MLP
        ? [DIAGRAM - SIDE / 2, high - 18 - (layer + 0.5) * gap]
        : [SIDE + (head + 0.5) * across, high - 18 - layer * gap];
    const named = across >= ROOM;
    this.chart.setAttribute("viewBox", `0 0 ${DIAGRAM} ${high}`);
    this.chart.replaceChildren(
      ...(named ? [] : heads.map((_, layer) => svg("text", { x: 12, y: place([layer, 0])[1] + 4 }, `L${layer}`))),
      ...drawn.map((edge) => this.#edge(edge, place, Math.min(10, across / 4))).reverse(), // the strongest on top
      ...nodesOf(heads, drawn).map((node) => this.#node(node, place(node), named)),
    );
    this.against.hidden = drawn.every(([, , , , , share]) => share >= 0);
    const more = drawn.length < strong.length ? `The ${MOST} strongest edges` : `${drawn.length} of ${edges.length} edges`;
    this.hidden.textContent = `${more} drawn; shares below ${least}% are hidden.`;
    this.#list();
    this.#tell();
  }

  #edge(edge, place, apart) {
    const [way, layer, head, earlier, source, share] = edge;
    const [[x1, y1], [x2, y2]] = [place([earlier, source]), place([layer, head])];
    const [start, end] = [x1, x2].map((x) => x + (way - 1) * apart);
    const middle = (y1 + y2) / 2;
    const d = `M${start},${y1}C${start},${middle} ${end},${middle} ${end},${y2 + 10}`;
    const near = [`${[layer, head]}`, `${[earlier, source]}`].includes(`${this.selected}`);
    const classes = ["edge", WAYS[way], near && "near", share < 0 && "against", sameEdge(edge, this.chosen) && "chosen"];
    return svg(
      "g",
      {
        ...{ class: classes.filter(Boolean).join(" "), onclick: () => this.#choose(edge) },
        ...{ role: "img", "aria-label": edgeText(edge).replace("→", "to") },
        ...{ onpointerenter: () => this.#tell(edge), onpointerleave: () => this.#tell() },
      },
      svg("path", { d, class: "reach" }),
      svg("path", { d, "stroke-width": (1 + 7 * Math.min(1, Math.abs(share))).toFixed(1) }),
    );
  }

  #node(node, [x, y], named) {
    const [layer, head] = node;
    const text = head === MLP ? "MLP" : named ? partName(node) : `${head}`;
    const wide = head === MLP || !named ? 24 : 36;
    const chosen = `${node}` === `${this.selected}` ? " chosen" : "";
    const group = svg(
      "g",
      { class: `node${chosen}${head === MLP ? " mlp" : ""}`, "aria-hidden": "true" },
      svg("rect", { x: x - wide / 2, y: y - 10, width: wide, height: 20, rx: 5 }),
      svg("text", { x, y: y + 4 }, text),
      svg("title", {}, partName(node)),
    );
    if (head !== MLP) group.addEventListener("click", () => this.choose([layer, head]));
    return group;
  }

  // What the selected head reads, whether it is drawn or not.
  #list() {
    const name = partName(this.selected);
    const lists = WAYS.map((title, way) => {
      const into = this.edges.filter((edge) => `${edge.slice(0, 3)}` === `${[way, ...this.selected]}`);
      const rows = into.map((edge) => el("li", {}, el("b", {}, percent(edge[5])), ` ${partName(edge.slice(3, 5))}`));
      return el("section", { class: title }, el("h4", {}, title), el("ul", {}, ...rows));
    });
    const rest = `Shares below ${LOGGED}% are not logged. The rest comes from them, from embeddings, and from learned positions and biases if there are any.`;
    const none = `${name} is in the first layer, which reads only embeddings, and learned positions and biases if there are any.`;
    this.reads.replaceChildren(
      ...(this.selected[0] ? [el("h3", {}, `What ${name} reads`), ...lists, el("p", { class: "note small" }, rest)] : [el("p", { class: "note small" }, none)]),
    );
  }

  #choose(edge) {
    this.chosen = edge;
    this.choose(edge.slice(1, 3));
  }

  // What an edge says; without one, the chosen edge at this step.
  #tell(edge = this.edges.find((each) => sameEdge(each, this.chosen)) ?? this.chosen?.with(5, null)) {
    this.readout.textContent = edge ? edgeText(edge) : "Hover over an edge, or select one with its heads.";
  }
}

// [layer, head] of all heads, and of the MLPs that have edges.
function nodesOf(heads, drawn) {
  const all = heads.flatMap((count, layer) => Array.from({ length: count }, (_, head) => [layer, head]));
  const mlps = drawn.filter(([, , , , source]) => source === MLP).map(([, , , earlier]) => earlier);
  return [...all, ...[...new Set(mlps)].map((layer) => [layer, MLP])];
}

function partName([layer, head]) {
  return head === MLP ? `L${layer} MLP` : `L${layer}H${head}`;
}

function edgeText([way, layer, head, earlier, source, share]) {
  const size = share === null ? `below ${LOGGED}%` : percent(share);
  return `${partName([earlier, source])} → ${partName([layer, head])}, ${WAYS[way]}: ${size}`;
}

function sentenceOfEdge([way, layer, head, earlier, source, share]) {
  const against = share < 0 ? ", against the others" : "";
  const what = { query: "queries", key: "keys", value: "values" }[WAYS[way]];
  return `${partName([layer, head])}'s ${what} are written to ${percent(Math.abs(share))} by ${partName([earlier, source])}${against}.`;
}

function percent(share) {
  return `${Math.round(100 * share)}%`;
}

function sameEdge(edge, other) {
  return other !== null && `${edge.slice(0, 5)}` === `${other.slice(0, 5)}`;
}
