// Pictures to save: SVG, and PNG as the browser draws it.

import { el, printable, svg } from "./dom.js";
import { textFile } from "./files.js";

export const FAMILY = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
export const SPACE = 8; // pixels
const TITLE = 14;
const MEASURING = new OffscreenCanvas(1, 1).getContext("2d");
const SHARP = 4_000; // up to this many pixels per side, a PNG has two for each one
const MOST_SIDE = 16_384; // pixels per side that browsers can draw

// The files of a picture, for a menu. draw(): its name and an SVG element.
export function pictureFiles(what, draw) {
  const file = (end, make) => async () => {
    const [name, node] = draw();
    return [`${name}.${end}`, await make(node)];
  };
  return [
    [`${what} (SVG)`, file("svg", asSvg)],
    [`${what} (PNG)`, file("png", asPng)],
  ];
}

// A picture of at least this width, below its title.
export function picture(title, least, high, parts, { ground, ink }) {
  const heading = printable(title);
  const width = Math.max(least, textWidth(heading, TITLE) + 2 * SPACE);
  const font = { fill: ink, "font-family": FAMILY, "dominant-baseline": "central" };
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${high}`, width, height: high },
    svg("title", {}, heading),
    svg("rect", { width, height: high, fill: ground }),
    svg("g", font, label(SPACE, 15, heading, { "font-size": TITLE }), ...parts),
  );
}

// more: further attributes. turned: the text reads upwards.
export function label(x, y, text, more, turned = false) {
  const transform = `translate(${x} ${y})${turned ? " rotate(-90)" : ""}`;
  return svg("text", { transform, "font-size": 12, style: "white-space: pre", ...more }, text);
}

// The width of the widest of these texts.
export function widest(texts) {
  return texts.reduce((most, text) => Math.max(most, textWidth(text)), 0);
}

export function textWidth(text, size = 12) {
  MEASURING.font = `${size}px ${FAMILY}`;
  return Math.ceil(MEASURING.measureText(text).width);
}

function asSvg(node) {
  return textFile(new XMLSerializer().serializeToString(node), "image/svg+xml");
}

async function asPng(node) {
  const sides = ["width", "height"].map((name) => Number(node.getAttribute(name)));
  const ratio = Math.max(...sides) <= SHARP ? 2 : 1;
  const [width, height] = sides.map((each) => Math.ceil(each * ratio));
  const address = URL.createObjectURL(asSvg(node));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = el("canvas", { width, height });
    canvas.getContext("2d").drawImage(image, 0, 0, width, height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve));
    if (blob && Math.max(width, height) <= MOST_SIDE) return blob;
  } catch {
    // Told below, as a browser has no better words for it.
  } finally {
    URL.revokeObjectURL(address);
  }
  throw new Error("This browser cannot draw a PNG of this size. Save it as SVG.");
}
