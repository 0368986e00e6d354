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

// A token as a label of at most `most` characters, with visible white space and control characters.
export function tokenLabel(token, most = 24) {
  let [label, kept] = ["", ""];
  for (const character of token) {
    const code = character.codePointAt(0).toString(16);
    label += VISIBLE[character] ?? (/[\p{C}\p{Z}]/u.test(character) ? `\\u{${code}}` : character);
    const { length } = Array.from(label);
    if (length > most) return `${kept}…`;
    if (length < most) kept = label; // leaves room for the ellipsis
  }
  return label || "∅";
}

// What stands for white space in the labels of these tokens; "" without any.
export function whiteSpaceKey(tokens) {
  const names = { " ": "a space", "\n": "a line end", "\t": "a tab" };
  const found = Object.keys(names).filter((white) => tokens.some((token) => token.includes(white)));
  return found.map((white) => `${VISIBLE[white]} ${names[white]}`).join(", ");
}

// A token as it is read aloud.
export function spokenToken(token) {
  const names = { " ": "space", "\n": "line end", "\t": "tab" };
  return names[token] ?? tokenLabel(token.trim() || token);
}

// Scrolls to a part of the page unless all from it to the last part is on the screen.
export function bring(part, last = part) {
  const { top } = part.getBoundingClientRect();
  const { bottom } = last.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) part.scrollIntoView();
}

export function signedNumber(value) {
  return `${value > 0 ? "+" : ""}${formatNumber(value)}`;
}

// A weight or score with at most four digits; "–" if there is none.
export function formatNumber(value) {
  if (value == null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 3);
}
