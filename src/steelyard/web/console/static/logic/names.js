// Short names of members that are still distinct, for narrow columns.

const LONG = 16;
const SEPARATOR = /[-_.:@#~]/g;

/** Members (`id`, `client_id`) -> Map from id to a short name. */
export function shortNames(members) {
  const names = new Map();
  const byClient = Map.groupBy ? Map.groupBy(members, (each) => each.client_id || each.id) : grouped(members);
  for (const [client, same] of byClient) {
    if (same.length === 1) names.set(same[0].id, client);
    else for (const [id, part] of distinct(client, same.map((each) => each.id))) names.set(id, `${client}~${part}`);
  }
  return cut(names);
}

function grouped(members) {
  const found = new Map();
  for (const each of members) {
    const key = each.client_id || each.id;
    found.set(key, [...(found.get(key) ?? []), each]);
  }
  return found;
}

/** Of several ids with the same client id, as many characters as tell them apart (at least 4). */
function distinct(client, ids) {
  const rests = ids.map((id) => (id.startsWith(client) ? id.slice(client.length).replace(/^[-_@#]/, "") : id));
  const longest = Math.max(...rests.map((rest) => rest.length));
  let length = 4;
  while (length < longest && new Set(rests.map((rest) => rest.slice(0, length))).size < rests.length) length += 1;
  return ids.map((id, at) => [id, rests[at].slice(0, length)]);
}

/** What all names begin and end with says nothing, if they are long. */
function cut(names) {
  const all = [...names.values()];
  if (all.length < 2 || Math.max(...all.map((name) => name.length)) <= LONG) return names;
  const front = common(all, (name, at) => name[at]);
  const back = common(all.map((name) => name.slice(front)), (name, at) => name[name.length - 1 - at]);
  // Cut before the last mark that separates words, so that whole words are left.
  const start = Math.max(0, ...[...all[0].slice(0, front).matchAll(SEPARATOR)].map((found) => found.index));
  const ending = all[0].slice(all[0].length - back).search(SEPARATOR);
  const end = ending < 0 ? 0 : back - ending;
  for (const [id, name] of names) {
    const middle = name.slice(start, name.length - end);
    if (middle.length < name.length - 2) names.set(id, `${start ? "…" : ""}${middle}${end ? "…" : ""}`);
  }
  return names;
}

function common(texts, at) {
  let length = 0;
  const shortest = Math.min(...texts.map((text) => text.length));
  while (length < shortest && texts.every((text) => at(text, length) === at(texts[0], length))) length += 1;
  return length;
}

const UUID = /[-_~](?=[0-9a-f]{8}-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** A text of the servers with names in place of member ids: "worker-3-3ac56b4f-… (/127.0.0.1) joined" -> "worker-3 joined". */
export function readable(text, names = new Map()) {
  let found = text;
  for (const [id, name] of names) if (name !== id) found = found.replaceAll(id, name);
  found = found.replace(UUID, "").replace(/ \([^()\s]*\/[\d.:a-f]+\)/g, "");
  return found;
}
