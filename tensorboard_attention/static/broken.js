// How heads with weights that are not finite are named and marked.

import { formatNumber } from "./dom.js";

export const NOT_FINITE = "This head has weights that are not finite (NaN).";

export function weightText(weight) {
  return Number.isNaN(weight) ? "not finite" : formatNumber(weight);
}

// Crosses out a map that is drawn at x and y, with lines as thick as this part of it.
export function strike(pen, colour, x, y, wide, high, part = 100) {
  pen.strokeStyle = colour;
  pen.lineWidth = Math.min(wide, high) / part;
  pen.beginPath();
  for (const [from, to] of [[x, x + wide], [x + wide, x]]) {
    pen.moveTo(from, y);
    pen.lineTo(to, y + high);
  }
  pen.stroke();
}
