// The frame around every page: navigation, the cluster's name, the switch of the theme, and the note that the connection is lost.

import { html, useState } from "../vendor/preact-htm.js";
import { useNow } from "../clock.js";
import { live, useLive } from "../live.js";
import { clock } from "../logic/format.js";
import { href } from "../router.js";

const PLACES = [
  ["", "Overview", "o"],
  ["groups", "Groups", "g"],
  ["topics", "Topics", "t"],
  ["messages", "Messages", "m"],
  ["brokers", "Brokers", "b"],
];

const KINDS = { steelyard: "Steelyard", "apache-rocketmq": "Apache RocketMQ", "apache-kafka": "Kafka" };

export function Navigation({ place, onHelp }) {
  const cluster = useLive((state) => state.cluster);
  const rebalancing = useLive((state) => (state.groups ? state.groups.groups.filter((group) => group.rebalancing).length : 0));
  return html`<header class="frame">
    <a class="brand" href=${href([])} aria-label="Steelyard, overview"><${Mark} /><span class="brand-name">Steelyard</span></a>
    <nav aria-label="Pages">
      ${PLACES.map(
        ([each, title, letter]) => html`<a key=${each} href=${href(each ? [each] : [])} aria-current=${each === place ? "page" : undefined} title=${`g ${letter}`}>
          ${title}${each === "groups" && rebalancing > 0 && html`<span class="dot" title=${`${rebalancing} rebalancing`}><span class="visually-hidden">, ${rebalancing} rebalancing</span></span>`}
        </a>`,
      )}
    </nav>
    <div class="frame-end">
      ${cluster &&
      html`<span class="cluster" title=${`${KINDS[cluster.kind]}; console ${cluster.version}`}>
        <span class="cluster-name">${cluster.name || KINDS[cluster.kind]}</span>
        <span class=${cluster.allow_changes ? "mode changes" : "mode"}>${cluster.allow_changes ? "changes allowed" : "read-only"}</span>
      </span>`}
      <${ThemeSwitch} />
      <button type="button" class="plain" aria-label="Keyboard shortcuts" title="Keyboard shortcuts ( ? )" onClick=${onHelp}>?</button>
    </div>
  </header>`;
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
    <rect width="32" height="32" rx="7" />
    <path d="M5.500 14 26.500 9.500M12 12.500V6M22 10.500V16" />
    <circle class="weight" cx="22" cy="20.500" r="4.500" />
  </svg>`;
}

const THEMES = [
  ["", "Theme of the system", "M4 5h16v11H4zM9 20h6M12 16v4"],
  ["light", "Light theme", "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2"],
  ["dark", "Dark theme", "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z"],
];

function ThemeSwitch() {
  const [chosen, setChosen] = useState(document.documentElement.dataset.theme ?? "");
  const at = THEMES.findIndex(([name]) => name === chosen);
  const [, title, path] = THEMES[at];
  const [next, nextTitle] = THEMES[(at + 1) % THEMES.length];
  const choose = () => {
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("steelyard.theme", next);
    } catch {
      // The choice counts until the page is left.
    }
    setChosen(next);
  };
  return html`<button type="button" class="plain icon" aria-label=${`${title}; change to: ${nextTitle.toLowerCase()}`} title=${title} onClick=${choose}>
    <svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true"><path d=${path} /></svg>
  </button>`;
}

/** Says that what the page shows is old, since when, and what happens next. */
export function ConnectionLost() {
  const status = useLive((state) => state.status);
  const lostAt = useLive((state) => state.lostAt);
  const seenAt = useLive((state) => state.seenAt);
  useNow(status === "lost" ? 500 : 60_000);
  const since = lostAt === null ? 0 : Date.now() - lostAt;
  if (lostAt === null || since < 400) return html`<div role="status" class="visually-hidden"></div>`;
  return html`<div class="lost" role="status">
    <span>
      <strong>Connection to the console lost.</strong>
      ${seenAt ? ` What you see is from ${clock(seenAt)}.` : " Nothing was loaded yet."} Trying again…
    </span>
    <button type="button" onClick=${() => live.retry()}>Try now</button>
  </div>`;
}
