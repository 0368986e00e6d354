// The one name of a head, and what is said of it.

const KINDS = {
  repeats: ["copy", "induction", "duplicate token"],
  near: ["previous token", "nearby", "last word"],
  rests: ["first token", "same token", "last token", "punctuation", "one token"],
};

// [label, score] of a head: of the evidence over many texts, if there is any for the model of these
// maps, or else of this text.
export function roleOf({ header, evidence }, layer, head) {
  return evidence?.heads[`L${layer}H${head}`]?.role ?? header.roles[layer]?.[head] ?? ["", ""];
}

// A group of patterns that have one colour; "" for none.
export function kindOf(score) {
  return Object.keys(KINDS).find((kind) => KINDS[kind].includes(score)) ?? "";
}

// The verdict on a head, how it was measured, and what the head does on this text if that is another
// question.
export function verdictOf(maps, layer, head) {
  const [role, score] = roleOf(maps, layer, head);
  const verdict = role && role[0].toUpperCase() + role.slice(1);
  const { header, evidence } = maps;
  const [sentence = ""] = header.sentences[layer]?.[head] ?? []; // of two models, one can lack the head
  const found = evidence?.heads[`L${layer}H${head}`];
  if (!found) return { verdict, score, how: sentence, here: sentence + later(maps, layer, head) };
  const [label, name] = header.roles[layer]?.[head] ?? ["", ""];
  const place = Object.hasOwn(header.measured, name) ? header.measured[name] : "this text";
  const example = sentence.match(/\((?:here |for example, )?from ('.*) to ('.*)\)$/s);
  const worked = example ? `here, ${example[1]} looks at ${example[2]}` : "";
  const count = evidence.n_tokens.toLocaleString("en");
  const how = `${found.says}. Measured over ${count} tokens of many texts; "without it": replaced by its mean over them.`;
  return { verdict, score, how, here: `On ${place}: ${[label === "mixed" && example ? "" : label, worked].filter(Boolean).join("; ")}` };
}

// What the head is called at the step at which it was measured over many texts, of which this is not
// the model.
function later({ otherEvidence }, layer, head) {
  if (!otherEvidence) return "";
  const [role] = otherEvidence.heads[`L${layer}H${head}`].role;
  return `. At step ${otherEvidence.step.toLocaleString("en")}, over many texts: ${role}.`;
}

// What all heads do, and without which of them alone the loss rises most, where that was measured.
export function overviewOf(maps) {
  const { overview, scores } = maps.header;
  const value = ([layer, head]) => scores.importance?.[layer]?.[head] ?? -Infinity;
  const heads = maps.heads();
  const [layer, head] = heads.reduce((best, each) => (value(each) > value(best) ? each : best), heads[0]);
  const most = value([layer, head]) > 0 ? `; of one head alone, the loss rises most without L${layer}H${head}` : "";
  return `${maps.evidence ? tallyOf(maps) : overview}${most}.`;
}

// How many heads have which name.
function tallyOf(maps) {
  const names = maps.heads().map((each) => roleOf(maps, ...each)[0].replace(/ \d+%$/, "").replace(/^looks at '.*'$/, "looks at one token"));
  const count = (name) => names.filter((each) => each === name).length;
  const parts = [...new Set(names)].sort((one, other) => count(other) - count(one));
  const times = (name) => (count(name) > 1 ? ` (${count(name)})` : "");
  return `${names.length} heads: ${parts.map((name) => name + times(name)).join(", ")}`;
}
