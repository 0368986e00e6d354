// Saving files: the menu, tables as CSV, and names that every file system accepts.

import { el } from "./dom.js";

export class FileMenu {
  // items: [text, make, has] of each file; make() returns its name and its Blob, or a promise of both;
  // has(), if it is given, whether there is something to save. say(text): reports what could not be done.
  constructor(items, say) {
    const save = (make) => async () => {
      this.node.open = false;
      try {
        download(...(await make()));
      } catch (error) {
        say(error.message);
      }
    };
    this.buttons = items.map(([text, make]) =>
      el("button", { type: "button", onclick: save(make) }, text),
    );
    const offer = () => items.forEach(([, , has], i) => has && (this.buttons[i].hidden = !has()));
    this.node = el(
      "details",
      { class: "save" },
      el("summary", { onclick: offer }, "Save"),
      el("div", {}, ...this.buttons),
    );
  }
}

// A title with the menu beside it.
export function headed(title, menu) {
  return el("div", { class: "heading apart" }, title, ...(menu ? [menu.node] : []));
}

export function textFile(text, type) {
  return new Blob([text], { type });
}

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// The file of a table, for a menu. make(): its name and its lines of cells.
export function tableFile(text, make) {
  const file = () => {
    const [name, lines] = make();
    const texts = lines.map((line) => `${line.map(csvCell).join(",")}\n`);
    return [`${name}.csv`, textFile(texts.join(""), "text/csv")];
  };
  return [text, file];
}

// A spreadsheet takes texts that begin with these characters for formulas.
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? `${+value.toPrecision(6)}` : "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function fileName(...parts) {
  const safe = parts.map((part) => `${part}`.replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 40));
  return safe.filter((part) => part && part !== ".").join("-");
}
