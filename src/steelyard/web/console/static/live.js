// What the server tells on its own: one stream of events for each tab, opened again when it breaks.
//
//   live.state      { status: "connecting" | "open" | "lost", lostAt, retryAt, seenAt, cluster, groups, group, rebalance }
//   live.watch("kafka/stock")      whose group is wanted; null: none
//
// Browsers open few connections to one server. A tab in the background gives its stream back after a minute, and takes it again when it is looked at.

import { useEffect, useState } from "./vendor/preact-htm.js";

const RETRY_MS = [250, 500, 1000, 2000, 5000];
const HIDDEN_MS = 60_000;
const EVENTS = ["cluster", "groups", "group", "rebalance"];

class Live {
  constructor() {
    this.state = { status: "connecting", lostAt: null, retryAt: null, seenAt: null, cluster: null, groups: null, group: null, rebalance: null };
    this._listeners = new Set();
    this._source = null;
    this._wanted = null;
    this._failures = 0;
    this._timer = 0;
    this._hidden = 0;
  }

  start() {
    this._open();
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this._hidden);
      if (document.hidden) this._hidden = setTimeout(() => this._close(), HIDDEN_MS);
      else if (this._source === null) this._open();
    });
  }

  watch(wanted) {
    if (wanted === this._wanted) return;
    this._wanted = wanted;
    this._set({ group: null, rebalance: null });
    this._open();
  }

  retry() {
    this._failures = 0;
    this._open();
  }

  subscribe(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  _close() {
    clearTimeout(this._timer);
    this._source?.close();
    this._source = null;
  }

  _open() {
    this._close();
    const query = this._wanted === null ? "" : `?group=${encodeURIComponent(this._wanted)}`;
    const source = (this._source = new EventSource(`api/v1/events${query}`));
    source.onopen = () => {
      this._failures = 0;
      this._set({ status: "open", lostAt: null, retryAt: null });
    };
    source.onerror = () => this._lost();
    for (const name of EVENTS) source.addEventListener(name, (event) => this._take(name, JSON.parse(event.data)));
  }

  _take(name, value) {
    if (name === "group" && `${value.dialect}/${value.name}` !== this._wanted) return;
    this._set({ [name]: value, seenAt: Date.now() });
  }

  _lost() {
    this._close();
    const wait = RETRY_MS[Math.min(this._failures, RETRY_MS.length - 1)];
    this._failures += 1;
    this._set({ status: "lost", lostAt: this.state.lostAt ?? Date.now(), retryAt: Date.now() + wait });
    this._timer = setTimeout(() => this._open(), wait);
  }

  _set(changes) {
    this.state = { ...this.state, ...changes };
    for (const listener of this._listeners) listener(this.state);
  }
}

export const live = new Live();

/** A part of the live state; the component is rendered again when it is another object or value. */
export function useLive(select) {
  const [value, setValue] = useState(() => select(live.state));
  useEffect(() => {
    const changed = (state) => setValue(() => select(state));
    changed(live.state);
    return live.subscribe(changed);
  }, []);
  return value;
}
