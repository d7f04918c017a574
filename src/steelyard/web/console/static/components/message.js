// One message in full: where it is, what it carries, and its body decoded as one likes.

import { html } from "../vendor/preact-htm.js";
import { hexLines, jsonTokens } from "../logic/bodies.js";
import { bytes, count, moment } from "../logic/format.js";
import { Switch } from "./parts.js";

/** Ways to show a body. "auto": JSON if it is JSON, else text if it is text, else bytes. */
export const MODES = [["auto", "Auto"], ["json", "JSON"], ["text", "Text"], ["hex", "Hex"]];

export function MessageDetail({ message, dialect, mode, onMode }) {
  const carried = dialect === "kafka" ? message.headers : Object.entries(message.properties);
  return html`<article class="message" aria-label="The chosen message">
    <dl class="pairs">
      <div><dt>Queue</dt><dd>${message.queue}</dd></div>
      <div><dt>Offset</dt><dd class="num">${count(message.offset)}</dd></div>
      <div><dt>Stored</dt><dd class="num">${moment(message.stored_at)}</dd></div>
      ${message.born_at !== null && html`<div><dt>Sent</dt><dd class="num">${moment(message.born_at)}</dd></div>`}
      ${dialect === "kafka" ? html`<div><dt>Key</dt><dd class="mono">${message.key ?? html`<span class="unknown">none</span>`}</dd></div>` : html`<div><dt>Keys</dt><dd class="mono">${message.keys.length ? message.keys.join(" ") : html`<span class="unknown">none</span>`}</dd></div>`}
      ${message.tag !== null && html`<div><dt>Tag</dt><dd>${message.tag}</dd></div>`}
      ${message.id !== null && html`<div><dt>Id</dt><dd class="mono">${message.id}</dd></div>`}
    </dl>
    <h2>${dialect === "kafka" ? "Headers" : "Properties"}</h2>
    ${carried.length
      ? html`<dl class="pairs carried">${carried.map(([name, value], at) => html`<div key=${at}><dt class="mono">${name}</dt><dd class="mono">${value ?? html`<span class="unknown">null</span>`}</dd></div>`)}</dl>`
      : html`<p class="muted">None.</p>`}
    <div class="toolbar between body-head">
      <h2>Body ${message.body && html`<small class="muted">${bytes(message.body.size)}</small>`}</h2>
      ${message.body && html`<${Switch} label="Show the body as" value=${mode} options=${MODES} onChange=${onMode} />`}
    </div>
    ${message.body ? html`<${Body} body=${message.body} mode=${mode} />` : html`<p class="muted">No body: a tombstone, which marks its key as deleted.</p>`}
  </article>`;
}

function Body({ body, mode }) {
  if (body.size === 0) return html`<p class="muted">Empty.</p>`;
  const wants = mode === "auto" ? (body.text === null ? "hex" : body.json ? "json" : "text") : mode;
  if (wants === "hex") return html`<${Hex} body=${body} />`;
  if (body.text === null) return html`<p class="muted">The body is not text in UTF-8; these are its bytes.</p><${Hex} body=${body} />`;
  const cut = body.cut && html`<p class="muted">Only the beginning is shown; the body has ${bytes(body.size)}.</p>`;
  const tokens = wants === "json" ? jsonTokens(body.text) : null;
  if (tokens) return html`<pre class="body" tabindex="0">${tokens.map(({ type, text }) => (type === "space" || type === "mark" ? text : html`<span class=${type}>${text}</span>`))}</pre>`;
  return html`${wants === "json" && html`<p class="muted">${body.cut ? "It is too long to be read as JSON." : "The body is not JSON; this is its text."}</p>`}<pre class="body" tabindex="0">${body.text}</pre>${cut}`;
}

function Hex({ body }) {
  const lines = hexLines(body.hex);
  return html`<pre class="body hex" tabindex="0">${lines.map((line) => html`<span class="offset">${line.offset}</span>  ${line.hex.padEnd(47)}  <span class="string">${line.text}</span>${"\n"}`)}</pre>
    ${body.hex.length / 2 < body.size && html`<p class="muted">The first ${count(body.hex.length / 2)} of ${count(body.size)} bytes.</p>`}`;
}
