// Overview: how the cluster is, and which groups need a look.

import { html } from "../vendor/preact-htm.js";
import { useResource } from "../api.js";
import { Ago, Badge, Dialect, Duration, Empty, Failed, Figure, GroupLink, Loading, Num, PageHead, State } from "../components/parts.js";
import { useLive } from "../live.js";
import { bytes, count, listed, percent, rate } from "../logic/format.js";
import { href } from "../router.js";

const GROUPS_SHOWN = 12;

/** Groups that need a look come first: those that rebalance, those with a member that hangs, those without members that lag, then by lag. */
export function urgency(group) {
  return [group.rebalancing ? 0 : 1, group.state === "Degraded" ? 0 : 1, group.members === 0 && group.lag ? 0 : 1, -(group.oldest_wait_ms ?? 0), -(group.lag ?? 0)];
}

function compareUrgency(a, b) {
  const [left, right] = [urgency(a), urgency(b)];
  for (let at = 0; at < left.length; at += 1) if (left[at] !== right[at]) return left[at] - right[at];
  return a.name.localeCompare(b.name);
}

export function Overview() {
  const cluster = useLive((state) => state.cluster);
  const groups = useLive((state) => state.groups);
  const first = useResource(cluster ? null : "/cluster");
  const shown = cluster ?? first.data;
  return html`<${PageHead} title="Overview" />
    ${shown ? html`<${Figures} cluster=${shown} groups=${groups} />` : first.error ? html`<${Failed} error=${first.error} retry=${first.reload} />` : html`<${Loading} what="Asking the cluster" />`}
    <div class="columns">
      <section aria-labelledby="overview-groups">
        <h2 id="overview-groups">Groups <a class="more" href=${href(["groups"])}>all</a></h2>
        ${groups ? html`<${GroupCards} groups=${groups.groups} />` : html`<${Loading} what="Loading groups" />`}
      </section>
      <section aria-labelledby="overview-brokers">
        <h2 id="overview-brokers">Brokers <a class="more" href=${href(["brokers"])}>all</a></h2>
        ${shown ? html`<${BrokerCards} cluster=${shown} />` : html`<${Loading} what="Loading brokers" />`}
      </section>
    </div>`;
}

function sum(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((total, value) => total + value, 0) : null;
}

function Figures({ cluster, groups }) {
  const down = [...cluster.brokers, ...cluster.nameservers].filter((each) => each.error);
  const list = groups?.groups ?? [];
  const moving = list.filter((group) => group.rebalancing);
  return html`<dl class="figures">
    <${Figure} name="Servers" tone=${down.length ? "bad" : ""}>
      ${down.length ? html`${down.length} of ${cluster.brokers.length + cluster.nameservers.length} down` : html`${count(cluster.brokers.length)} <small>up</small>`}
    <//>
    <${Figure} name="In">${rate(sum(cluster.brokers.map((each) => each.in_per_second)))} <small>/s</small><//>
    <${Figure} name="Out">${rate(sum(cluster.brokers.map((each) => each.out_per_second)))} <small>/s</small><//>
    <${Figure} name="Groups">${groups ? count(list.length + groups.left_out) : "–"}<//>
    <${Figure} name="Rebalancing" tone=${moving.length ? "warn" : ""}>${groups ? count(moving.length) : "–"}<//>
    <${Figure} name="Lag">${groups ? html`<${Num} value=${sum(list.map((group) => group.lag))} short />` : "–"}<//>
  </dl>`;
}

function GroupCards({ groups }) {
  if (!groups.length) return html`<${Empty} title="No group yet">A group appears when its first consumer connects.<//>`;
  const shown = [...groups].sort(compareUrgency).slice(0, GROUPS_SHOWN);
  return html`<ul class="cards">
    ${shown.map(
      (group) => html`<li key=${`${group.dialect}/${group.name}`}>
        <div class="card-line">
          <${GroupLink} dialect=${group.dialect} name=${group.name} primary />
          <${Dialect} of=${group.dialect} kind=${group.kind} />
          <${State} of=${group.state} rebalancing=${group.rebalancing} />
        </div>
        <div class="card-facts">
          <span title=${group.topics.join("\n")}>${count(group.members)} <small>${group.members === 1 ? "member" : "members"}</small></span>
          <span title=${group.topics.join("\n")} class="wide">${listed(group.topics, 2) || html`<small>no topic</small>`}</span>
          <span><small>lag</small> <${Num} value=${group.lag} short /></span>
          <span><small>waiting</small> <${Duration} ms=${group.oldest_wait_ms} /></span>
          <span><small>rebalanced</small> <${Ago} at=${group.last_rebalance_at} /></span>
        </div>
      </li>`,
    )}
  </ul>`;
}

function BrokerCards({ cluster }) {
  return html`<ul class="cards">
    ${cluster.nameservers
      .filter((each) => each.error)
      .map((each) => html`<li key=${`nameserver ${each.address}`}><div class="card-line"><strong>${each.address}</strong><${Badge} tone="bad">nameserver down<//></div><p class="problem">${each.error}</p></li>`)}
    ${cluster.brokers.map(
      (broker) => html`<li key=${broker.name} data-broker=${broker.name}>
        <div class="card-line">
          <strong>${broker.name}</strong>
          <${Badge} tone=${broker.error ? "bad" : "good"}>${broker.error ? "down" : "up"}<//>
        </div>
        ${broker.error
          ? html`<p class="problem">${broker.error}</p>`
          : html`<div class="card-facts">
              <span><small>in</small> ${rate(broker.in_per_second)} <small>/s</small></span>
              <span><small>out</small> ${rate(broker.out_per_second)} <small>/s</small></span>
              <span><small>log</small> ${bytes(broker.log_bytes)}</span>
              <span class=${broker.disk_used_ratio > 0.85 ? "warn-text" : ""}><small>disk</small> ${percent(broker.disk_used_ratio)}</span>
            </div>`}
      </li>`,
    )}
  </ul>`;
}
