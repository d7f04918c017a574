// The servers of the cluster.

import { html } from "../vendor/preact-htm.js";
import { useResource } from "../api.js";
import { Ago, Badge, Empty, Failed, Loading, PageHead } from "../components/parts.js";
import { Filter, Table } from "../components/table.js";
import { useLive } from "../live.js";
import { bytes, percent, rate } from "../logic/format.js";

const UNKNOWN = html`<span class="unknown">–</span>`;

const COLUMNS = [
  { name: "name", title: "Broker", value: (broker) => broker.name, show: (broker) => broker.name },
  {
    name: "state",
    title: "State",
    value: (broker) => (broker.error ? "down" : "up"),
    show: (broker) => html`<${Badge} tone=${broker.error ? "bad" : "good"}>${broker.error ? "down" : "up"}<//>${broker.error && html` <span class="problem">${broker.error}</span>`}`,
  },
  { name: "address", title: "Address", less: "narrow", value: (broker) => broker.address, show: (broker) => html`<span class="mono">${broker.address}</span>` },
  { name: "kafka", title: "For Kafka", less: "middle", value: (broker) => broker.kafka_address, show: (broker) => (broker.kafka_address ? html`<span class="mono">${broker.kafka_address}</span>` : UNKNOWN) },
  { name: "version", title: "Version", less: "middle", value: (broker) => broker.version, show: (broker) => broker.version ?? UNKNOWN },
  { name: "in", title: "In /s", right: true, value: (broker) => broker.in_per_second, show: (broker) => rate(broker.in_per_second) },
  { name: "out", title: "Out /s", right: true, value: (broker) => broker.out_per_second, show: (broker) => rate(broker.out_per_second) },
  { name: "log", title: "Log", right: true, less: "narrow", value: (broker) => broker.log_bytes, show: (broker) => bytes(broker.log_bytes) },
  { name: "disk", title: "Disk used", right: true, less: "narrow", value: (broker) => broker.disk_used_ratio, show: (broker) => html`<${Disk} ratio=${broker.disk_used_ratio} />` },
  { name: "up", title: "Started", right: true, less: "middle", value: (broker) => broker.started_at, show: (broker) => html`<${Ago} at=${broker.started_at} />` },
];

function Disk({ ratio }) {
  if (ratio === null) return UNKNOWN;
  const width = (element) => {
    if (element) element.style.width = `${Math.round(ratio * 100)}%`;
  };
  return html`<span class=${`meter ${ratio > 0.85 ? "full" : ""}`}><span class="meter-bar" aria-hidden="true"><i ref=${width}></i></span>${percent(ratio)}</span>`;
}

export function Brokers() {
  const told = useLive((state) => state.cluster);
  const first = useResource(told ? null : "/cluster");
  const cluster = told ?? first.data;
  return html`<${PageHead} title="Brokers"><${Filter} label="Filter brokers" /><//>
    ${cluster
      ? html`<${Table}
            caption="Brokers"
            columns=${COLUMNS}
            rows=${cluster.brokers}
            rowKey=${(broker) => broker.name}
            text=${(broker) => `${broker.name} ${broker.address} ${broker.kafka_address ?? ""}`}
            sort="name"
            empty=${html`<${Empty} title="No broker">No nameserver lists a broker.<//>`}
          />
          ${cluster.nameservers.length > 0 && html`<${Nameservers} of=${cluster.nameservers} />`}`
      : first.error
        ? html`<${Failed} error=${first.error} retry=${first.reload} />`
        : html`<${Loading} what="Asking the cluster" />`}`;
}

function Nameservers({ of }) {
  return html`<h2>Nameservers</h2>
    <ul class="cards inline">
      ${of.map(
        (each) => html`<li key=${each.address}>
          <div class="card-line">
            <span class="mono">${each.address}</span>
            <${Badge} tone=${each.error ? "bad" : "good"}>${each.error ? "down" : "up"}<//>
          </div>
          ${each.error && html`<p class="problem">${each.error}</p>`}
        </li>`,
      )}
    </ul>`;
}
