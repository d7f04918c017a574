// What the doctor finds: what keeps the group from working well, and what to do about it.

import { html } from "../../vendor/preact-htm.js";
import { path, useResource } from "../../api.js";
import { Badge, Empty, Resource } from "../../components/parts.js";
import { listed } from "../../logic/format.js";

const TONES = { error: "bad", warning: "warn", info: "quiet" };
const ORDER = ["error", "warning", "info"];

export function Doctor({ dialect, name }) {
  const answer = useResource(path(["groups", dialect, name, "doctor"]));
  return html`<div class="toolbar between">
      <p class="muted">The same as <code>steelyard admin doctor</code>. In the middle of a rebalance a group seems faulty: look again after some seconds.</p>
      <button type="button" onClick=${answer.reload} aria-busy=${String(answer.loading)}>Look again</button>
    </div>
    <${Resource} of=${answer} what="Examining the group">
      ${(data) =>
        data.findings.length
          ? html`<ol class="findings">
              ${[...data.findings]
                .sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity))
                .map((finding, at) => html`<${Finding} key=${at} of=${finding} />`)}
            </ol>`
          : html`<${Empty} title="In good health">The doctor found nothing that keeps this group from working.<//>`}
    <//>`;
}

function Finding({ of }) {
  return html`<li class=${`finding ${TONES[of.severity]}`}>
    <h2>${of.title} <${Badge} tone=${TONES[of.severity]}>${of.severity}<//></h2>
    <p>${of.text}</p>
    ${of.what_to_do && html`<p class="what-to-do"><strong>What to do:</strong> ${of.what_to_do}</p>`}
    ${of.queues.length > 0 && html`<p class="muted" title=${of.queues.join("\n")}>${of.queues.length === 1 ? "Queue" : "Queues"}: ${listed(of.queues, 8)}</p>`}
  </li>`;
}
