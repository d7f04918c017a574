// Routes are in the fragment of the address: `#/groups/kafka/stock/live?q=orders`. Every view has one that can be shared.

import { useEffect, useState } from "./vendor/preact-htm.js";

/** The parts of a fragment: `{ parts: ["groups", "kafka", "stock"], params: { q: "orders" } }`. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, params: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The fragment of some parts and parameters. Parameters that are empty are left out. */
export function href(parts, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function navigate(parts, params = {}) {
  location.hash = href(parts, params);
}

/** Change parameters of the present view without a new entry in the history. */
export function setParams(changes) {
  const { parts, params } = parse(location.hash);
  history.replaceState(null, "", href(parts, { ...params, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
