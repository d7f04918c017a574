// Requests to the console's REST API. A failed one says why in words for people.

import { noteClock } from "./clock.js";
import { useCallback, useEffect, useRef, useState } from "./vendor/preact-htm.js";

const BASE = "api/v1";

/** A request that failed. `status` is 0 if no answer came. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function request(method, path, { body, signal } = {}) {
  let response;
  try {
    response = await fetch(`${BASE}${path}`, {
      method,
      signal,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The console does not answer. Is it still running?", 0);
  }
  noteClock(response.headers.get("date"));
  if (response.status === 204) return null;
  const type = response.headers.get("content-type") ?? "";
  const answer = type.includes("json") ? await response.json().catch(() => null) : null;
  if (!response.ok) throw new ApiError(sentence(answer?.error ?? `the console answered with status ${response.status}`), response.status);
  return answer;
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

export const get = (path, options) => request("GET", path, options);
export const post = (path, body) => request("POST", path, { body });
export const remove = (path) => request("DELETE", path);

/** A path of the API from parts, which may contain any characters: `path(["groups", dialect, name], { limit: 50 })`. */
export function path(parts, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/**
 * What the API has at a path, or nothing for a path that is null: `{ data, error, loading, reload }`. While something is loaded again, the old data
 * stays; it also stays, beside the error, if that fails. `everyMs`: how often it is loaded again while the page is visible.
 */
export function useResource(at, { everyMs = 0 } = {}) {
  const [state, setState] = useState({ at: null, data: null, error: null, loading: true });
  const underWay = useRef(null);
  const load = useCallback(async () => {
    underWay.current?.abort();
    if (at === null) return;
    const controller = (underWay.current = new AbortController());
    setState((old) => (old.at === at ? { ...old, loading: true } : { at, data: null, error: null, loading: true }));
    try {
      const data = await get(at, { signal: controller.signal });
      setState({ at, data, error: null, loading: false });
    } catch (error) {
      if (error.name === "AbortError") return;
      setState((old) => ({ at, data: old.at === at ? old.data : null, error, loading: false }));
    }
  }, [at]);
  useEffect(() => {
    load();
    const timer = everyMs && setInterval(() => document.hidden || load(), everyMs);
    return () => {
      clearInterval(timer);
      underWay.current?.abort();
    };
  }, [load, everyMs]);
  const own = state.at === at ? state : { data: null, error: null, loading: at !== null };
  return { ...own, reload: load };
}
