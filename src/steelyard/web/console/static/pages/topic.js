// A topic: its queues, who consumes it, and its settings.

import { html, useState } from "../vendor/preact-htm.js";
import { path, remove, useResource } from "../api.js";
import { Dialog } from "../components/dialog.js";
import { Ago, Dialect, Empty, Failed, GroupLink, Num, PageHead, Resource } from "../components/parts.js";
import { Filter, Table } from "../components/table.js";
import { useLive } from "../live.js";
import { count, plural } from "../logic/format.js";
import { href, navigate } from "../router.js";

const REFRESH_MS = 5_000;

function kept(queue) {
  return queue.first === null || queue.end === null ? null : queue.end - queue.first;
}

export function Topic({ dialect, name }) {
  const topic = useResource(path(["topics", dialect, name]), { everyMs: REFRESH_MS });
  const allowed = useLive((state) => state.cluster?.allow_changes ?? false);
  const [deleting, setDeleting] = useState(false);
  const facts = topic.data && html`<${Dialect} of=${dialect} /><span>${plural(topic.data.queues.length, "queue")}</span><span><${Num} value=${total(topic.data.queues)} short /> messages</span>`;
  return html`<${PageHead} title=${name} note=${facts}>
      <a class="button" href=${href(["messages"], { dialect, topic: name })}>Messages</a>
      ${allowed && topic.data && html`<button type="button" class="danger quiet" onClick=${() => setDeleting(true)}>Delete…</button>`}
    <//>
    <${Resource} of=${topic} what="Loading the topic">${(data) => html`<${Found} topic=${data} />`}<//>
    ${deleting && html`<${DeleteTopic} topic=${topic.data} onClose=${() => setDeleting(false)} />`}`;
}

function total(queues) {
  return queues.reduce((sum, queue) => sum + (kept(queue) ?? 0), 0);
}

function Found({ topic }) {
  const link = (queue) => href(["messages"], { dialect: topic.dialect, topic: topic.name, queue: queue.key });
  const columns = [
    { name: "queue", title: "Queue", value: (queue) => queue.key, show: (queue) => html`<a class="primary" href=${link(queue)} title="Its messages">${queue.key}</a>` },
    { name: "broker", title: "Broker", less: "narrow", value: (queue) => queue.broker, show: (queue) => queue.broker ?? html`<span class="unknown">–</span>` },
    { name: "first", title: "First", right: true, less: "narrow", hint: "Offset of the first message that is kept", value: (queue) => queue.first, show: (queue) => html`<${Num} value=${queue.first} />` },
    { name: "end", title: "End", right: true, hint: "Offset of the next message", value: (queue) => queue.end, show: (queue) => html`<${Num} value=${queue.end} />` },
    { name: "kept", title: "Messages", right: true, value: kept, show: (queue) => html`<${Num} value=${kept(queue)} />` },
    { name: "oldest", title: "Oldest", right: true, less: "middle", value: (queue) => queue.first_at, show: (queue) => html`<${Ago} at=${queue.first_at} />` },
    { name: "latest", title: "Latest", right: true, value: (queue) => queue.last_at, show: (queue) => html`<${Ago} at=${queue.last_at} />` },
  ];
  const shown = topic.queues.some((queue) => queue.broker !== null) ? columns : columns.filter((column) => column.name !== "broker");
  const settings = Object.entries(topic.settings);
  return html`<div class="toolbar between"><h2>Queues</h2><${Filter} label="Filter queues" /></div>
    <${Table} caption="Queues" columns=${shown} rows=${topic.queues} rowKey=${(queue) => queue.key} text=${(queue) => `${queue.key} ${queue.broker ?? ""}`} sort="queue" empty=${html`<${Empty} title="No queue" />`} />
    <div class="columns">
      <section>
        <h2>Groups</h2>
        ${topic.groups.length
          ? html`<ul class="plain-list">${topic.groups.map((name) => html`<li key=${name}><${GroupLink} dialect=${topic.dialect} name=${name} /></li>`)}</ul>`
          : html`<p class="muted">No group has consumed this topic.</p>`}
      </section>
      <section>
        <h2>Settings</h2>
        ${settings.length
          ? html`<dl class="pairs">${settings.map(([key, value]) => html`<div key=${key}><dt>${key}</dt><dd class="mono">${value}</dd></div>`)}</dl>`
          : html`<p class="muted">All settings are the brokers' defaults.</p>`}
      </section>
    </div>`;
}

function DeleteTopic({ topic, onClose }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const messages = total(topic.queues);
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await remove(path(["topics", topic.dialect, topic.name]));
      navigate(["topics"]);
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${`Delete ${topic.name}`} onClose=${onClose}>
    <form onSubmit=${send}>
      <p>This deletes ${plural(topic.queues.length, "queue")} with ${plural(messages, "message")} for good.
        ${topic.groups.length ? ` ${topic.groups.length === 1 ? "A group has" : `${count(topic.groups.length)} groups have`} consumed it: ${topic.groups.join(", ")}.` : " No group has consumed it."}</p>
      <div class="fields stacked"><label>Type the topic's name to confirm <input value=${typed} autocomplete="off" onInput=${(event) => setTyped(event.target.value)} /></label></div>
      ${error && html`<${Failed} error=${error} />`}
      <div class="dialog-end"><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="danger" disabled=${busy || typed !== topic.name}>Delete the topic</button></div>
    </form>
  <//>`;
}
