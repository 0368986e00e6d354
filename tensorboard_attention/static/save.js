// Saves what a picture shows: the map as it is on the screen, and its weights.

import { el } from "./dom.js";

// name(): of the files, without their ends.
export function saveButtons(picture, name) {
  const button = (end, title, make) => {
    const save = async () => download(`${name()}.${end}`, await make());
    return el("button", { type: "button", title, onclick: save }, end.toUpperCase());
  };
  return el(
    "span",
    { class: "save extra" },
    button("png", "Save the map as a picture", () => new Promise((resolve) => picture.canvas.toBlob(resolve))),
    button("csv", "Save the weights as a table", () => weightTable(picture)),
  );
}

// One line per weight. Tokens are JSON texts, so that spaces and line ends are kept and seen.
function weightTable({ maps, headIndex }) {
  const lines = [["query", "query_token", "key", "key_token", ...maps.columns].join()];
  const quoted = (token) => `"${JSON.stringify(token).replaceAll('"', '""')}"`;
  maps.tokens.forEach((token, query) =>
    maps.keys.forEach((other, key) => {
      const values = maps.values(headIndex, query, key)?.map((value) => +value.toPrecision(6));
      if (values) lines.push([query, quoted(token), key, quoted(other), ...values].join());
    }),
  );
  return new Blob(lines.map((line) => `${line}\n`), { type: "text/csv" });
}

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Of characters that every file system accepts.
export function fileName(...parts) {
  const safe = parts.map((part) => `${part}`.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 40));
  return safe.filter((part) => part && part !== ".").join("-");
}
