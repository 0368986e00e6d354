// All heads as thumbnails, layer by layer or sorted by a score.

import { NOT_FINITE, strike } from "./broken.js";
import { el, formatNumber } from "./dom.js";
import { kindOf, roleOf } from "./naming.js";

const MOST_PIXELS = 64; // per side of a thumbnail
const MANY = 8; // more heads in a layer than this are small: a browser would leave out thin lines

export class Grid {
  // choose(layer, head) is called with the head that was clicked; toggle, where heads can be switched
  // off, with the one whose switch was.
  constructor(choose, toggle = null) {
    Object.assign(this, { choose, toggle });
    this.node = el("div", { class: "grid", role: "group", "aria-label": "All heads" });
    this.order = [];
    this.laidOut = "";
    this.cells = new Map();
  }

  // views: one or two Maps. The heads of the first are shown. isOff(layer, head): whether a head is
  // switched off.
  show(views, { layer, head, sort = "", rising }, palette, isOff = () => false) {
    const [first] = views;
    this.order = ordered(first, { sort, rising });
    this.#layOut(first, views.length, sort);
    const small = !sort && views.length === 1 && Math.max(...first.header.heads) > MANY;
    const pixels = small && devicePixelRatio < 2 ? MOST_PIXELS / 2 : MOST_PIXELS;
    for (const [l, h] of this.order) {
      const cell = this.cells.get(`${l}.${h}`);
      views.forEach((maps, i) => paint(cell.canvases[i], maps, l, h, palette, pixels));
      const score = sort ? formatNumber(first.score(sort, l, h)) : "";
      const broken = views.some((maps) => !maps.isFinite(l, h));
      const off = isOff(l, h);
      const [role, named] = roleOf(first, l, h);
      const marks = (off && !sort ? " off" : "") + (broken ? " NaN" : ""); // a score leaves no room
      cell.caption.textContent = (sort ? `L${l}H${h}  ${score}` : `${h}`) + marks;
      cell.role.textContent = role;
      cell.role.dataset.kind = kindOf(named);
      cell.node.classList.toggle("off", off);
      cell.switch?.setAttribute("aria-checked", !off);
      cell.button.title = broken ? NOT_FINITE : role;
      const chosen = l === layer && h === head;
      cell.button.setAttribute(
        "aria-label",
        `layer ${l}, head ${h}${sort ? `, ${sort} ${score}` : ""}${off ? ", off" : ""}${broken ? `. ${NOT_FINITE}` : ""}`,
      );
      cell.button.setAttribute("aria-pressed", chosen);
      cell.button.tabIndex = chosen ? 0 : -1;
    }
  }

  // The head `by` positions further in the displayed order.
  beside({ layer, head }, by) {
    const place = this.order.findIndex(([l, h]) => l === layer && h === head);
    return this.order[Math.min(this.order.length - 1, Math.max(0, place + by))];
  }

  // The head in the next row above (-1) or below (1): of the next layer, or as it is seen if sorted.
  row({ layer, head, sort }, by) {
    if (!sort) return [layer + by, head];
    const tops = this.order.map(([l, h]) => this.cells.get(`${l}.${h}`).node.offsetTop);
    const columns = tops.filter((top) => top === tops[0]).length;
    const place = this.order.findIndex(([l, h]) => l === layer && h === head) + by * columns;
    return this.order[place] ?? [layer, head];
  }

  focus({ layer, head }) {
    const button = this.cells.get(`${layer}.${head}`)?.button;
    button?.focus({ preventScroll: true });
    button?.scrollIntoView({ block: "nearest" });
  }

  // Scrolls the boxes around a head and not the page. scrollIntoView would move where the Tab key begins.
  reveal({ layer, head }) {
    const { button } = this.cells.get(`${layer}.${head}`) ?? {};
    for (const box of button ? [this.node, this.node.parentElement] : []) {
      const [inner, outer] = [button, box].map((each) => each.getBoundingClientRect());
      box.scrollTop += Math.max(0, inner.bottom - outer.bottom) + Math.min(0, inner.top - outer.top);
    }
  }

  // Marks heads, as [layer, head], and no others.
  mark(heads) {
    const marked = new Set(heads.map(([layer, head]) => `${layer}.${head}`));
    for (const [name, { node }] of this.cells) node.classList.toggle("marked", marked.has(name));
  }

  // Creates or moves elements only when the heads or their order change.
  #layOut({ header }, sides, sort) {
    const wanted = JSON.stringify([header.heads, sides, sort !== "", this.order]);
    if (wanted === this.laidOut) return;
    this.laidOut = wanted;
    const old = this.cells;
    this.cells = new Map();
    for (const [l, h] of this.order) {
      const known = old.get(`${l}.${h}`);
      this.cells.set(
        `${l}.${h}`,
        known?.canvases.length === sides ? known : this.#cell(l, h, sides),
      );
    }
    const most = Math.max(...header.heads);
    this.node.style.setProperty("--heads", most);
    this.node.classList.toggle("many", most > MANY);
    this.node.classList.toggle("paired", sides === 2);
    this.node.classList.toggle("sorted", sort !== "");
    const row = (heads) =>
      el("div", { class: "row" }, ...heads.map(([l, h]) => this.cells.get(`${l}.${h}`).node));
    if (sort) return this.node.replaceChildren(row(this.order));
    const layers = header.heads.map((_, layer) => this.order.filter(([l]) => l === layer));
    this.node.replaceChildren(
      ...layers.map((heads, layer) =>
        el("div", { class: "layer" }, el("h3", {}, `Layer ${layer}`), row(heads)),
      ),
    );
  }

  #cell(layer, head, sides) {
    const canvases = Array.from({ length: sides }, () => el("canvas", { width: 1, height: 1 }));
    const caption = el("span", { class: "caption cut small" });
    const role = el("span", { class: "role small" });
    const pictures = el("span", { class: "pictures" }, ...canvases);
    const button = el(
      "button",
      { type: "button", class: "head", onclick: () => this.choose(layer, head) },
      pictures,
      caption,
      role,
    );
    const node = el("div", { class: "cell" }, button);
    const turn = this.toggle && el("button", {
      ...{ type: "button", class: "switch", role: "switch", tabindex: -1, "aria-label": `L${layer}H${head}` },
      ...{ title: "Switch this head off, or on (x)", onclick: () => this.toggle(layer, head) },
    });
    if (turn) node.append(turn);
    return { node, button, canvases, caption, role, switch: turn };
  }
}

// [layer, head] of every head; if sorted by a score, heads without one are last.
export function ordered(maps, { sort, rising }) {
  const heads = maps.heads();
  if (!sort) return heads;
  const value = ([layer, head]) => {
    const score = maps.score(sort, layer, head);
    return score == null || Number.isNaN(score) ? Infinity : rising ? score : -score;
  };
  return heads.sort((a, b) => value(a) - value(b) || 0);
}

function paint(canvas, maps, layer, head, palette, pixels) {
  if (head >= (maps.header.heads[layer] ?? 0)) {
    canvas.width = canvas.height = 1; // this model does not have the head
    return;
  }
  const [across, down] = [maps.m, maps.n].map((each) => Math.ceil(each / pixels));
  const image = maps.image(maps.headIndex(layer, head), across, down, palette);
  canvas.style.aspectRatio = Math.min(2, Math.max(0.5, maps.m / maps.n));
  if (canvas.width !== image.width) canvas.width = image.width;
  if (canvas.height !== image.height) canvas.height = image.height;
  const pen = canvas.getContext("2d");
  pen.putImageData(image, 0, 0);
  const size = [image.width, image.height];
  if (!maps.isFinite(layer, head)) strike(pen, palette.from, 0, 0, ...size, 10);
}
