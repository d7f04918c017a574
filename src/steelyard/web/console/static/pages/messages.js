// The message browser: which messages, the list, and one of them in full.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact-htm.js";
import { get, path, useResource } from "../api.js";
import { MessageDetail, MODES } from "../components/message.js";
import { Empty, Failed, Loading, PageHead } from "../components/parts.js";
import { bind } from "../keys.js";
import { preview } from "../logic/bodies.js";
import { bytes, clock, count, moment, plural } from "../logic/format.js";
import { href, setParams, useRoute } from "../router.js";

const LIMIT = 50;
const STARTS = [["latest", "the last ones"], ["earliest", "the first ones"], ["offset", "an offset"], ["time", "a time"]];

/** What is asked of the API for the parameters in the address; null while no topic is chosen. */
function query({ dialect, topic, queue, from, key, tag }) {
  return topic ? { dialect: dialect === "rocketmq" ? "rocketmq" : "kafka", topic, queue, from: from || "latest", key, tag, limit: LIMIT } : null;
}

export function Messages({ params }) {
  const topics = useResource("/topics");
  const wanted = query(params);
  const address = wanted && path(["messages"], wanted);
  return html`<${PageHead} title="Messages" />
    <${Form} key=${address ?? ""} params=${params} topics=${topics.data?.topics ?? []} />
    ${topics.error && html`<${Failed} error=${topics.error} retry=${topics.reload} />`}
    ${wanted
      ? html`<${Found} key=${address} wanted=${wanted} />`
      : html`<${Empty} title="Choose a topic">You see its last messages, or those from an offset or a time on, also by key and tag.<//>`}`;
}

/** Which start the parameter `from` is: "latest", "earliest", "offset" or "time". */
function startOf(from) {
  if (!from || from === "latest") return "latest";
  if (from === "earliest") return "earliest";
  return /^\d{1,11}$/.test(from) ? "offset" : "time";
}

function localTime(from) {
  const date = new Date(/^\d+$/.test(from) ? Number(from) : from);
  return Number.isNaN(date.getTime()) ? "" : moment(date.getTime()).replace(" ", "T").slice(0, 19);
}

function Form({ params, topics }) {
  const chosen = params.topic ? `${params.dialect === "rocketmq" ? "rocketmq" : "kafka"}/${params.topic}` : "";
  const [topic, setTopic] = useState(chosen);
  const [queue, setQueue] = useState(params.queue ?? "");
  const [start, setStart] = useState(startOf(params.from));
  const [offset, setOffset] = useState(startOf(params.from) === "offset" ? params.from : "");
  const [time, setTime] = useState(startOf(params.from) === "time" ? localTime(params.from) : "");
  const [key, setKey] = useState(params.key ?? "");
  const [tag, setTag] = useState(params.tag ?? "");
  const [dialect, name] = split(topic);
  const queues = useResource(topic ? path(["topics", dialect, name]) : null);
  const typed = (set) => (event) => set(event.target.value);
  const submit = (event) => {
    event.preventDefault();
    const from = { latest: "", earliest: "earliest", offset, time: time && new Date(time).toISOString() }[start];
    const target = href(["messages"], { dialect, topic: name, queue, from, key, tag: dialect === "rocketmq" ? tag : "" });
    if (target === location.hash) dispatchEvent(new CustomEvent("messages-again"));
    location.hash = target;
  };
  const shown = topics.filter((each) => !each.internal || `${each.dialect}/${each.name}` === topic);
  return html`<form class="fields search" onSubmit=${submit}>
    <label class="grow">Topic
      <select value=${topic} required onChange=${(event) => (setTopic(event.target.value), setQueue(""))}>
        <option value="">Choose…</option>
        ${["kafka", "rocketmq"].map((each) => {
          const own = shown.filter((one) => one.dialect === each);
          return own.length > 0 && html`<optgroup key=${each} label=${each === "kafka" ? "Kafka" : "RocketMQ"}>${own.map((one) => html`<option key=${one.name} value=${`${each}/${one.name}`}>${one.name}</option>`)}</optgroup>`;
        })}
        ${topic && !shown.some((each) => `${each.dialect}/${each.name}` === topic) && html`<option value=${topic}>${name}</option>`}
      </select>
    </label>
    <label>Queue
      <select value=${queue} onChange=${typed(setQueue)} required=${start === "offset"}>
        <option value="">${start === "offset" ? "Choose…" : "all"}</option>
        ${queue && !queues.data && html`<option value=${queue}>${queue}</option>`}
        ${(queues.data?.queues ?? []).map((each) => html`<option key=${each.key} value=${each.key}>${each.key.slice(name.length + 1)}</option>`)}
      </select>
    </label>
    <label>From <select value=${start} onChange=${typed(setStart)}>${STARTS.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>
    ${start === "offset" && html`<label class="short">Offset <input inputmode="numeric" pattern="[0-9]{1,11}" required value=${offset} onInput=${typed(setOffset)} /></label>`}
    ${start === "time" && html`<label>Time <input type="datetime-local" step="1" required value=${time} onInput=${typed(setTime)} /></label>`}
    <label class="short">Key <input type="search" value=${key} onInput=${typed(setKey)} /></label>
    ${dialect === "rocketmq" && html`<label class="short">Tag <input value=${tag} onInput=${typed(setTag)} /></label>`}
    <button type="submit" class="main">Show</button>
  </form>`;
}

function split(topic) {
  const at = topic.indexOf("/");
  return [topic.slice(0, at), topic.slice(at + 1)];
}

/** The answers so far to one question: { messages, next, loading, error, more(), again() }. */
function useMessages(wanted) {
  const [state, setState] = useState({ messages: null, next: null, loading: true, error: null });
  const load = async (from, before) => {
    setState((old) => ({ ...old, loading: true, error: null }));
    try {
      const answer = await get(path(["messages"], { ...wanted, from }));
      setState({ messages: [...before, ...answer.messages], next: answer.next, loading: false, error: null });
    } catch (error) {
      setState((old) => ({ ...old, loading: false, error }));
    }
  };
  const again = () => load(wanted.from, []);
  useEffect(() => {
    again();
    addEventListener("messages-again", again);
    return () => removeEventListener("messages-again", again);
  }, []);
  return { ...state, again, more: () => load(state.next, state.messages) };
}

function Found({ wanted }) {
  const { params } = useRoute();
  const answer = useMessages(wanted);
  const list = useRef(null);
  const [at, setAt] = useState(0);
  const mode = MODES.some(([each]) => each === params.as) ? params.as : "auto";
  const { messages } = answer;
  const total = messages?.length ?? 0;
  const go = (to) => {
    const next = Math.min(total - 1, Math.max(0, to));
    setAt(next);
    list.current?.querySelectorAll("tbody button")[next]?.focus();
  };
  // Before the next key: an effect runs only after the page was painted.
  useLayoutEffect(() => {
    const unbind = [
      bind("j", () => go(at + 1)),
      bind("k", () => go(at - 1)),
      bind("d", () => setParams({ as: MODES[(MODES.findIndex(([each]) => each === mode) + 1) % MODES.length][0] })),
    ];
    return () => unbind.forEach((each) => each());
  });
  if (messages === null) return answer.error ? html`<${Failed} error=${answer.error} retry=${answer.again} />` : html`<${Loading} what="Reading messages" />`;
  if (!total && !answer.next) return html`<${Empty} title="No message">${wanted.key || wanted.tag ? "None with this key and tag was found." : "There is none from there on."}<//>`;
  const message = messages[Math.min(at, total - 1)];
  return html`<div class="browser">
    <div class="browser-list">
      <div class="table-box" ref=${list} tabindex="0" role="region" aria-label="Messages">
        <table class="messages">
          <caption class="visually-hidden">
            Messages
          </caption>
          <thead>
            <tr>
              <th scope="col">Stored</th>
              <th scope="col">Queue</th>
              <th scope="col" class="right">Offset</th>
              <th scope="col">Key</th>
              ${wanted.dialect === "rocketmq" && html`<th scope="col" class="narrow">Tag</th>`}
              <th scope="col" class="right narrow">Size</th>
              <th scope="col" class="middle body">Body</th>
            </tr>
          </thead>
          <tbody>
            ${messages.map(
              (each, index) => html`<tr key=${`${each.queue} ${each.offset}`} class=${each === message ? "selected" : ""} onClick=${() => setAt(index)}>
                <th scope="row"><button type="button" aria-pressed=${String(each === message)} title=${moment(each.stored_at)} onClick=${() => setAt(index)}>${clock(each.stored_at)}</button></th>
                <td title=${each.queue}>${each.queue.slice(wanted.topic.length + 1)}</td>
                <td class="right num">${count(each.offset)}</td>
                <td class="key" title=${each.key ?? each.keys.join(" ")}>${each.key ?? each.keys.join(" ")}</td>
                ${wanted.dialect === "rocketmq" && html`<td class="narrow">${each.tag ?? ""}</td>`}
                <td class="right narrow num">${bytes(each.size)}</td>
                <td class="middle body mono">${each.body === null ? html`<span class="unknown">no body</span>` : preview(each.body)}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      <div class="browser-more">
        <span class="muted">${total ? plural(total, "message") : "None found so far."}</span>
        ${answer.next !== null && html`<button type="button" disabled=${answer.loading} onClick=${answer.more}>${answer.loading ? "Reading…" : "Continue"}</button>`}
        ${answer.error && html`<${Failed} error=${answer.error} />`}
      </div>
    </div>
    ${message && html`<${MessageDetail} message=${message} dialect=${wanted.dialect} mode=${mode} onMode=${(value) => setParams({ as: value })} />`}
  </div>`;
}
