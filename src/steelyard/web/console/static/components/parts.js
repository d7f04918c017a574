// Small parts of pages: numbers, times, badges, and what is shown while there is nothing, not yet, or no longer.

import { html } from "../vendor/preact-htm.js";
import { useNow } from "../clock.js";
import { ago, compact, count, duration, moment, UNKNOWN } from "../logic/format.js";
import { COLOURS } from "../logic/matrix.js";
import { href } from "../router.js";

/** A number that may be shortened; the title has all digits. */
export function Num({ value, short = false }) {
  if (value === null || value === undefined) return html`<span class="unknown" title="not known">${UNKNOWN}</span>`;
  return html`<span class="num" title=${short && Math.abs(value) >= 1e4 ? count(value) : undefined}>${short ? compact(value) : count(value)}</span>`;
}

export function Duration({ ms }) {
  if (ms === null || ms === undefined) return html`<span class="unknown" title="not known">${UNKNOWN}</span>`;
  return html`<span class="num" title=${`${count(ms)} ms`}>${duration(ms)}</span>`;
}

/** A time as distance from now, with the time itself in the title. */
export function Ago({ at }) {
  const now = useNow();
  if (at === null || at === undefined) return html`<span class="unknown">${UNKNOWN}</span>`;
  return html`<time class="num" datetime=${new Date(at).toISOString()} title=${moment(at)}>${ago(at, now)}</time>`;
}

export function Dialect({ of, kind = "" }) {
  const more = kind === "streams" || kind === "share" ? ` ${kind}` : "";
  return html`<span class=${`dialect ${of}`}>${of === "kafka" ? `Kafka${more}` : "RocketMQ"}</span>`;
}

const KINDS = {
  classic: "Members agree by JoinGroup and SyncGroup",
  consumer: "The coordinator assigns partitions (KIP-848)",
  streams: "Kafka Streams: the coordinator assigns tasks (KIP-1071)",
  share: "Members read partitions together (KIP-932)",
  rocketmq: "Members divide the queues themselves",
};

/** What kind a group is. */
export function Kind({ of }) {
  return html`<span title=${KINDS[of]}>${of}</span>`;
}

const TONES = { stable: "good", empty: "quiet", dead: "bad", error: "bad", warning: "warn", info: "quiet" };

/** A word with a colour; the colour never says more than the word. */
export function Badge({ children, tone }) {
  return html`<span class=${`badge ${tone ?? "quiet"}`}>${children}</span>`;
}

export function State({ of, rebalancing = false }) {
  if (rebalancing) return html`<${Badge} tone="warn">Rebalancing<//>`;
  return html`<${Badge} tone=${TONES[of.toLowerCase()] ?? "warn"}>${of.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`)}<//>`;
}

export function GroupLink({ dialect, name, tab, primary = false, children }) {
  return html`<a class=${primary ? "primary" : ""} href=${href(["groups", dialect, name, ...(tab ? [tab] : [])])}>${children ?? name}</a>`;
}

export function TopicLink({ dialect, name, primary = false }) {
  return html`<a class=${primary ? "primary" : ""} href=${href(["topics", dialect, name])}>${name}</a>`;
}

/** The heading of a page, with what can be done there. */
export function PageHead({ title, children, note }) {
  return html`<header class="page-head">
    <h1>${title}</h1>
    ${note && html`<p class="note">${note}</p>`}
    <div class="actions">${children}</div>
  </header>`;
}

/** Nothing to show, and why. */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;
}

export function Loading({ what = "Loading" }) {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span>${what}…</div>`;
}

/** A request that failed: what happened, and a button to try again. What was loaded before stays on the page. */
export function Failed({ error, retry, stale = false }) {
  return html`<div class="failed" role="alert">
    <p><strong>${stale ? "Could not be renewed." : "Could not be loaded."}</strong> ${error.message}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** What a resource has: its content by `children(data)`, or that it is loading, or why not. */
export function Resource({ of, what, children }) {
  if (of.data === null) return of.error ? html`<${Failed} error=${of.error} retry=${of.reload} />` : html`<${Loading} what=${what} />`;
  return html`${of.error && html`<${Failed} error=${of.error} retry=${of.reload} stale />`}${children(of.data)}`;
}

/** A number that people look at first, with its name. */
export function Figure({ name, children, tone }) {
  return html`<div class=${`figure ${tone ?? ""}`}><dt>${name}</dt><dd>${children}</dd></div>`;
}

/** A choice between few things, as buttons side by side. `options`: [[value, text]]. */
export function Switch({ label, value, options, onChange }) {
  return html`<div class="switch" role="group" aria-label=${label}>
    ${options.map(
      ([each, text]) => html`<button key=${each} type="button" aria-pressed=${String(each === value)} onClick=${() => onChange(each)}>${text}</button>`,
    )}
  </div>`;
}

/** A member's number in its colour. */
export function Slot({ slot }) {
  return html`<span class=${`slot ${colourOf(slot)}`} aria-hidden="true">${slot}</span>`;
}

export function colourOf(slot) {
  return `c${((slot - 1) % COLOURS) + 1}`;
}
