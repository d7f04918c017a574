// The server's clock: "rebalancing for 1.2 s" must be right on machines whose own clock is wrong.

import { useEffect, useState } from "./vendor/preact-htm.js";

/** Below this the two clocks count as one: an answer names its time in whole seconds, and took some time to come. */
const SAME_MS = 2_500;

let skew = 0;

/** Take the `Date` of an answer. */
export function noteClock(date) {
  const told = date ? Date.parse(date) : Number.NaN;
  if (Number.isNaN(told)) return;
  const found = told + 500 - Date.now();
  skew = Math.abs(found) < SAME_MS ? 0 : found;
}

/** The server's time in ms since the epoch. */
export function serverNow() {
  return Date.now() + skew;
}

/** The server's time, again and again. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    setNow(serverNow());
    const timer = setInterval(() => setNow(serverNow()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
