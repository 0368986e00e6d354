// Elements and text. Anything from a log is inserted as a text node, never as markup.

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const VISIBLE = { " ": "·", "\n": "⏎", "\t": "⇥" };

// A token as a short label, with visible white space and control characters.
export function tokenLabel(token, most = 24) {
  if (token === "") return "∅";
  const text = Array.from(token.slice(0, 4 * most), (c) => {
    if (VISIBLE[c]) return VISIBLE[c];
    return /[\p{C}\p{Z}]/u.test(c) ? `\\u{${c.codePointAt(0).toString(16)}}` : c;
  });
  const whole = text.length <= most && token.length <= 4 * most;
  return whole ? text.join("") : text.slice(0, most - 1).join("") + "…";
}

// A weight or score with at most four digits; "–" if there is none.
export function formatNumber(value) {
  if (value == null || Number.isNaN(value)) return "–";
  return Math.abs(value) >= 100
    ? value.toFixed(0)
    : Math.abs(value) >= 10
      ? value.toFixed(1)
      : value.toFixed(3);
}
