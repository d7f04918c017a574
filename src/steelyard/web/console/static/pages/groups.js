// All consumer groups.

import { html } from "../vendor/preact-htm.js";
import { useResource } from "../api.js";
import { Ago, Dialect, Duration, Empty, Failed, GroupLink, Kind, Loading, Num, PageHead, State } from "../components/parts.js";
import { Filter, Table } from "../components/table.js";
import { useLive } from "../live.js";
import { listed } from "../logic/format.js";

const COLUMNS = [
  { name: "name", title: "Group", value: (group) => group.name, show: (group) => html`<${GroupLink} dialect=${group.dialect} name=${group.name} primary />` },
  { name: "kind", title: "Type", value: (group) => group.kind, show: (group) => html`<${Kind} of=${group.kind} />` },
  { name: "dialect", title: "Protocol", value: (group) => `${group.dialect} ${group.protocol}`, less: "narrow", show: (group) => html`<${Dialect} of=${group.dialect} /> <span class="muted">${group.protocol}</span>` },
  { name: "state", title: "State", value: (group) => (group.rebalancing ? " " : group.state), show: (group) => html`<${State} of=${group.state} rebalancing=${group.rebalancing} />` },
  { name: "members", title: "Members", right: true, value: (group) => group.members, show: (group) => html`<${Num} value=${group.members} />` },
  { name: "topics", title: "Topics", less: "middle", value: (group) => group.topics.length, show: (group) => html`<span title=${group.topics.join("\n")}>${listed(group.topics, 2)}</span>` },
  { name: "lag", title: "Lag", right: true, hint: "Messages that wait", value: (group) => group.lag, show: (group) => html`<${Num} value=${group.lag} />` },
  { name: "waiting", title: "Waiting", right: true, less: "narrow", hint: "How long the oldest of them has waited", value: (group) => group.oldest_wait_ms, show: (group) => html`<${Duration} ms=${group.oldest_wait_ms} />` },
  { name: "rebalanced", title: "Last rebalance", right: true, less: "middle", value: (group) => group.last_rebalance_at, show: (group) => html`<${Ago} at=${group.last_rebalance_at} />` },
];

export function Groups() {
  const told = useLive((state) => state.groups);
  const first = useResource(told ? null : "/groups");
  const groups = told ?? first.data;
  return html`<${PageHead} title="Groups"><${Filter} label="Filter groups" /><//>
    ${groups
      ? html`<${Table}
          caption="Groups"
          columns=${COLUMNS}
          rows=${groups.groups}
          rowKey=${(group) => `${group.dialect}/${group.name}`}
          text=${(group) => `${group.name} ${group.dialect} ${group.kind} ${group.protocol} ${group.topics.join(" ")}`}
          sort="name"
          leftOut=${groups.left_out}
          empty=${html`<${Empty} title="No group yet">A group appears when its first consumer connects.<//>`}
        />`
      : first.error
        ? html`<${Failed} error=${first.error} retry=${first.reload} />`
        : html`<${Loading} what="Loading groups" />`}`;
}
