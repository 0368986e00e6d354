// Elements and text. Anything from a log is inserted as a text node, never as markup.

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

// head: the texts of the columns; rows: those of their cells.
export function table(caption, head, rows) {
  const row = (name, texts) => el("tr", {}, ...texts.map((text) => el(name, {}, text)));
  return el(
    "table",
    {},
    el("caption", {}, caption),
    el("thead", {}, row("th", head)),
    el("tbody", {}, ...rows.map((texts) => row("td", texts))),
  );
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

// What a label shows as one: an emoji sequence (a flag, a keycap, people joined by up to four
// zero-width joiners), a byte that is not UTF-8, a letter with its marks, or a character.
const JOINED = String.raw`\p{Extended_Pictographic}(?:\ufe0f|\p{Emoji_Modifier})?`;
const PARTS = new RegExp(
  [
    String.raw`\p{Regional_Indicator}{2}`,
    String.raw`[\d#*]\ufe0f?\u20e3`,
    String.raw`${JOINED}(?:[\u{e0020}-\u{e007e}]{1,8}\u{e007f}|(?:\u200d${JOINED}){1,4})?`,
    String.raw`\\x[\da-f]{2}`,
    String.raw`\p{L}\p{M}{1,3}`,
    "[^]",
  ].join("|"),
  "gu",
);
const EMOJI = /\p{Regional_Indicator}{2}|\u20e3|[^]\ufe0f|\p{Extended_Pictographic}[^]/u;

// A token as a label of at most `most` characters, with visible white space and control characters.
// An escape counts as all of its characters, an emoji sequence as two; neither is cut.
export function tokenLabel(token, most = 24) {
  if (token === "") return "∅";
  const text = token.slice(0, 16 * most);
  let [label, kept, used] = ["", "", 0];
  for (const part of text.match(PARTS)) {
    const emoji = EMOJI.test(part);
    const drawn = emoji ? part : (VISIBLE[part] ?? printable(part, /[\p{C}\p{Z}]/gu));
    used += emoji ? 2 : Array.from(drawn).length;
    label += drawn;
    if (used < most) kept = label;
  }
  return used <= most && text === token ? label : `${kept}…`;
}

// A text without control characters, which XML and file names cannot hold.
export function printable(text, odd = /\p{C}/gu) {
  return text.replace(odd, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// A token as it is read aloud.
export function spokenToken(token) {
  const names = { " ": "space", "\n": "line end", "\t": "tab" };
  return names[token] ?? tokenLabel(token.trim() || token);
}

// Scrolls to a part of the page unless all of it is on the screen.
export function bring(part) {
  const { top, bottom } = part.getBoundingClientRect();
  if (top < 0 || bottom > innerHeight) part.scrollIntoView();
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
