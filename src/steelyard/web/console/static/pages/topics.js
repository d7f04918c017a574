// All topics.

import { html, useState } from "../vendor/preact-htm.js";
import { post, useResource } from "../api.js";
import { Dialog } from "../components/dialog.js";
import { Badge, Dialect, Empty, Failed, GroupLink, Num, PageHead, Resource, TopicLink } from "../components/parts.js";
import { Filter, Table } from "../components/table.js";
import { useLive } from "../live.js";
import { bytes, count, rate } from "../logic/format.js";
import { navigate, setParams, useRoute } from "../router.js";

const REFRESH_MS = 5_000;
const GROUPS_SHOWN = 2;

const COLUMNS = [
  {
    name: "name",
    title: "Topic",
    value: (topic) => topic.name,
    show: (topic) => html`<${TopicLink} dialect=${topic.dialect} name=${topic.name} primary /> ${topic.internal && html`<${Badge}>internal<//>`}`,
  },
  { name: "dialect", title: "Protocol", less: "narrow", value: (topic) => topic.dialect, show: (topic) => html`<${Dialect} of=${topic.dialect} />` },
  { name: "queues", title: "Queues", right: true, value: (topic) => topic.queues, show: (topic) => html`<${Num} value=${topic.queues} />` },
  { name: "messages", title: "Messages", right: true, value: (topic) => topic.messages, show: (topic) => html`<${Num} value=${topic.messages} short />` },
  { name: "bytes", title: "Size", right: true, less: "narrow", value: (topic) => topic.bytes, show: (topic) => html`<span class="num">${bytes(topic.bytes)}</span>` },
  { name: "in", title: "In /s", right: true, value: (topic) => topic.in_per_second, show: (topic) => html`<span class="num">${rate(topic.in_per_second)}</span>` },
  {
    name: "groups",
    title: "Groups",
    less: "middle",
    value: (topic) => topic.groups.length,
    show: (topic) => html`${topic.groups.slice(0, GROUPS_SHOWN).map((name, at) => html`${at > 0 && ", "}<${GroupLink} dialect=${topic.dialect} name=${name} />`)}${topic.groups.length > GROUPS_SHOWN && html` <span class="muted" title=${topic.groups.join("\n")}>and ${count(topic.groups.length - GROUPS_SHOWN)} more</span>`}`,
  },
];

export function Topics() {
  const topics = useResource("/topics", { everyMs: REFRESH_MS });
  const { params } = useRoute();
  const allowed = useLive((state) => state.cluster?.allow_changes ?? false);
  const [creating, setCreating] = useState(false);
  const internal = params.internal === "1";
  return html`<${PageHead} title="Topics">
      <label class="check"><input type="checkbox" checked=${internal} onChange=${(event) => setParams({ internal: event.target.checked ? "1" : "" })} /> Internal</label>
      <${Filter} label="Filter topics" />
      ${allowed && html`<button type="button" onClick=${() => setCreating(true)}>Create topic…</button>`}
    <//>
    <${Resource} of=${topics} what="Loading topics">
      ${(data) => html`<${Table}
        caption="Topics"
        columns=${COLUMNS}
        rows=${data.topics.filter((topic) => internal || !topic.internal)}
        rowKey=${(topic) => `${topic.dialect}/${topic.name}`}
        text=${(topic) => `${topic.name} ${topic.dialect} ${topic.groups.join(" ")}`}
        sort="name"
        leftOut=${data.left_out}
        empty=${html`<${Empty} title="No topic yet">A topic appears when something is sent to it.<//>`}
      />`}
    <//>
    ${creating && html`<${CreateTopic} onClose=${() => setCreating(false)} />`}`;
}

function CreateTopic({ onClose }) {
  const kind = useLive((state) => state.cluster?.kind);
  const dialects = kind === "apache-kafka" ? ["kafka"] : kind === "apache-rocketmq" ? ["rocketmq"] : ["kafka", "rocketmq"];
  const [dialect, setDialect] = useState(dialects[0]);
  const [name, setName] = useState("");
  const [queues, setQueues] = useState(8);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const create = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await post("/topics", { dialect, name, queues });
      navigate(["topics", dialect, name]);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Create a topic" onClose=${onClose}>
    <form onSubmit=${create}>
      <div class="fields stacked">
        <label>Protocol <select value=${dialect} onChange=${(event) => setDialect(event.target.value)}>${dialects.map((each) => html`<option key=${each} value=${each}>${each === "kafka" ? "Kafka" : "RocketMQ"}</option>`)}</select></label>
        <label>Name <input required maxlength="249" pattern="[A-Za-z0-9._\\-]+" title="Letters, digits, dots, hyphens and underscores" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
        <label>${dialect === "kafka" ? "Partitions" : "Queues on each broker"} <input type="number" min="1" max="1000" required value=${queues} onInput=${(event) => setQueues(event.target.valueAsNumber)} /></label>
      </div>
      ${error && html`<${Failed} error=${error} />`}
      <div class="dialog-end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${busy}>Create</button></div>
    </form>
  <//>`;
}
