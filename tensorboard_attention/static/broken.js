// How heads with weights that are not finite are told and marked.

import { formatNumber } from "./dom.js";

export const NOT_FINITE = "This head has weights that are not finite (NaN).";

export function weightText(weight) {
  return Number.isNaN(weight) ? "not finite" : formatNumber(weight);
}

// The ends of the two lines of a cross, for a map of this size.
export function cross(wide, high) {
  return [
    [0, 0, wide, high],
    [wide, 0, 0, high],
  ];
}

// Crosses out a map that is drawn at x and y, with lines as thick as this part of it.
export function strike(pen, colour, x, y, wide, high, part = 100) {
  pen.strokeStyle = colour;
  pen.lineWidth = Math.min(wide, high) / part;
  for (const [x1, y1, x2, y2] of cross(wide, high)) {
    pen.beginPath();
    pen.moveTo(x + x1, y + y1);
    pen.lineTo(x + x2, y + y2);
    pen.stroke();
  }
}
