// Bars with a name and a number each: of probabilities, and of what parts write.

import { el } from "./dom.js";

// rows: {name, text, value, was, mark, onclick, spoken}; a value from -1 to 1 is the length of its bar,
// `was` the place of a line in it, as what it was before. With onclick, a row is a button, named `spoken` to a screen reader.
export function bars(rows, signed = false) {
  const width = (value) => `${(100 * Math.min(1, Math.abs(value)) || 0).toFixed(2)}%`;
  return el(
    "ol",
    { class: signed ? "bars signed" : "bars" },
    ...rows.map(({ name, text, value, was, mark, onclick, spoken }) => {
      const bar = el("i", { class: value < 0 ? "less" : "more" });
      bar.style.width = width(value);
      const track = el("span", { class: "track" }, bar);
      if (was !== undefined) {
        const before = el("i", { class: "was" });
        before.style.insetInlineStart = signed ? `${(50 + 50 * was).toFixed(2)}%` : width(was);
        track.append(before);
      }
      const parts = [el("span", { class: "name cut" }, name), track, el("b", {}, text)];
      const row = onclick
        ? el("button", { type: "button", onclick, "aria-label": spoken }, ...parts)
        : el("div", {}, ...parts);
      if (mark) row.setAttribute("aria-current", "true");
      return el("li", {}, row);
    }),
  );
}

// What the colours of signed bars mean.
export function signedScale(more = "raises its logit", less = "lowers its logit") {
  const part = (kind, text) => el("span", {}, el("i", { class: kind }), ` ${text}`);
  return el("p", { class: "signs line small" }, part("more", more), part("less", less));
}

// Rows for parts: [name, value], and the largest value has the longest bar.
export function contributions(parts, digits) {
  const most = Math.max(...parts.map(([, value]) => Math.abs(value)), 1e-9);
  return parts.map(([name, value]) => ({ name, value: value / most, text: signedText(value, digits) }));
}

export function percent(share) {
  const value = 100 * share;
  return value >= 0.05 || value === 0 ? `${value.toFixed(1)}%` : "<0.1%";
}

export function signedText(value, digits = 3) {
  const text = Math.abs(value).toFixed(digits);
  return Number(text) ? `${value < 0 ? "−" : "+"}${text}` : text;
}
