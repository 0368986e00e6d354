// The name of a head, and what is said of it: the same words in every view.

export const KINDS = {
  repeats: ["continues repeats", "copies", "same token"],
  near: ["previous token", "nearby", "last word"],
  rests: ["first token", "last token", "punctuation", "one token", "evenly"],
};

// What is known of a head over many texts, if it is of the model of these maps.
export function evidenceOf({ evidence }, layer, head) {
  return evidence?.heads[`L${layer}H${head}`];
}

// [name with its percentage, pattern] of a head.
export function roleOf(maps, layer, head) {
  return evidenceOf(maps, layer, head)?.role ?? maps.header.roles[layer]?.[head] ?? ["", ""];
}

// A group of patterns that have one colour; "" for none.
export function kindOf(pattern) {
  return Object.keys(KINDS).find((kind) => KINDS[kind].includes(pattern)) ?? "";
}

// What a head does, how that was measured, and how much the model needs it.
export function verdictOf(maps, layer, head) {
  const found = evidenceOf(maps, layer, head);
  const { details, sentences } = maps.header;
  const [sentence = ""] = sentences[layer]?.[head] ?? []; // of two models, one can lack the head
  const pattern = roleOf(maps, layer, head)[1];
  if (!found) return { headline: sentence, pattern, how: details?.[layer]?.[head] ?? "", need: "" };
  return { headline: found.says, pattern, how: `${found.details}. Measured over ${maps.evidence.where}.`, need: needOf(found) };
}

// How informative the name of a head is, from 0 to 1.
export function interestOf(maps, layer, head) {
  return evidenceOf(maps, layer, head)?.interest ?? maps.header.sentences[layer][head][2];
}

const MOST_KINDS = 3;

function needOf({ need: [all, ...halves], kinds }) {
  const number = (value) => value.toFixed(3);
  const largest = Object.entries(kinds).sort(([, [one]], [, [other]]) => other - one).slice(0, MOST_KINDS);
  const parts = largest.filter(([, values]) => Math.min(...values) > 0).map(([kind, [value]]) => `${kind} ${number(value)}`);
  const most = parts.length ? `, of it ${parts.join(", ")}` : "";
  return `Need: without it, the loss rises by ${number(all)} nats per token (${halves.map(number).join(" and ")} in the halves)${most}.`;
}

// How many heads have which name.
export function overviewOf(maps) {
  return `${maps.evidence || !maps.header.overview ? tallyOf(maps) : maps.header.overview}.`;
}

function tallyOf(maps) {
  const names = maps.heads().map((each) => bareName(maps, ...each));
  const count = (name) => names.filter((each) => each === name).length;
  const parts = [...new Set(names)].sort((one, other) => count(other) - count(one));
  const times = (name) => (count(name) > 1 ? ` (${count(name)})` : "");
  return `${names.length} head${names.length > 1 ? "s" : ""}: ${parts.map((name) => name + times(name)).join(", ")}`;
}

// The name without its percentage and its token.
function bareName(maps, layer, head) {
  return roleOf(maps, layer, head)[0].replace(/ \d+%$/, "").replace(/^looks at '.*'$/s, "looks at one token");
}

// Which heads changed their name since an earlier step, in one line; "" if there is none.
export function changesOf(maps) {
  if (!maps.earlier) return "";
  const { step, ...before } = maps.earlier;
  const changed = maps.heads().filter((each) => bareName(maps, ...each) !== bareName(before, ...each));
  const said = changed.map(([l, h]) => `L${l}H${h} ${bareName(before, l, h)} → ${bareName(maps, l, h)}`);
  return `Since step ${step.toLocaleString("en")}: ${said.join(", ") || "no head changed its name"}.`;
}
