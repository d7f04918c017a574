// History: what each rebalance of a group cost, and which members flap.

import { html, useEffect, useState } from "../../vendor/preact-htm.js";
import { path, useResource } from "../../api.js";
import { Ago, Badge, Duration, Empty, Num, Resource } from "../../components/parts.js";
import { useLive } from "../../live.js";
import { clock, count, duration, moment, plural } from "../../logic/format.js";
import { readable } from "../../logic/names.js";
import { logHeight } from "../../logic/series.js";
import { setParams, useRoute } from "../../router.js";

const LIMIT = 100;
const HANDOFFS_MAX = 200;
// Interval of looks while figures are missing that are expected.
const INCOMPLETE_MS = 3000;

export function History({ dialect, name, picture }) {
  const [everyMs, setEveryMs] = useState(0);
  const rebalances = useResource(path(["groups", dialect, name, "rebalances"], { limit: LIMIT }), { everyMs });
  useEffect(() => setEveryMs(rebalances.data?.incomplete ? INCOMPLETE_MS : 0), [rebalances.data?.incomplete]);
  const finished = useLive((state) => state.rebalance);
  useEffect(() => {
    if (finished) rebalances.reload();
  }, [finished]);
  return html`<${Resource} of=${rebalances} what="Loading rebalances">${(answer) => html`<${Found} answer=${answer} names=${new Map(picture.members.map((member) => [member.id, member.client_id]))} />`}<//>`;
}

function Found({ answer, names }) {
  const { params } = useRoute();
  const open = params.open ?? "";
  const toggle = (id) => setParams({ open: open === id ? "" : id });
  return html`${answer.note && html`<p class="hint">${answer.note}</p>`}
    ${answer.incomplete &&
    html`<div class="banner warn compact">
      <p class="banner-head"><strong>Not complete</strong></p>
      <p>${answer.incomplete}</p>
    </div>`}
    ${answer.flapping.length > 0 &&
    html`<div class="banner warn compact">
      <p class="banner-head"><strong>Flapping members</strong></p>
      ${answer.flapping.map((each) => html`<p key=${each.member}><span class="mono">${each.member}</span> joined ${plural(each.joins, "time")} within ${duration(each.window_ms)}.</p>`)}
    </div>`}
    ${answer.rebalances.length
      ? html`<${Strip} rebalances=${answer.rebalances} open=${open} onOpen=${toggle} />
          <${Rebalances} rebalances=${answer.rebalances} open=${open} names=${names} onOpen=${toggle} />`
      : html`<${Empty} title=${answer.incomplete ? "No rebalance is known yet" : "No rebalance yet"}>${answer.incomplete ? "What the brokers recorded has not been read." : answer.source === "ledger" ? "The brokers have recorded none of this group." : "None since this console was started."}<//>`}`;
}

/** A bar for each rebalance: when it was, and its longest pause on a logarithmic scale. */
function Strip({ rebalances, open, onOpen }) {
  const width = 1000;
  const height = 72;
  const times = rebalances.map((each) => each.at);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const most = Math.max(...rebalances.map((each) => each.pause_ms ?? 0));
  const x = (at) => (last === first ? width / 2 : 8 + ((at - first) / (last - first)) * (width - 16));
  return html`<figure class="strip">
    <figcaption><span>Longest pause of each rebalance</span><span class="muted">highest ${duration(most)}, logarithmic</span></figcaption>
    <svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <line x1="0" x2=${width} y1=${height - 0.5} y2=${height - 0.5} class="base" />
      ${rebalances.map((each) => {
        const size = Math.max(3, logHeight(each.pause_ms, most) * (height - 6));
        return html`<g key=${each.id} class=${each.id === open ? "open" : ""} onClick=${() => onOpen(each.id)}>
          <rect class="target" x=${x(each.at) - 7} y="0" width="14" height=${height} />
          <line class="bar" x1=${x(each.at)} x2=${x(each.at)} y1=${height - size} y2=${height} />
          <title>${`${moment(each.at)}: ${readable(each.reason || each.trigger)}, ${each.pause_ms === null ? "pause not known" : duration(each.pause_ms)}`}</title>
        </g>`;
      })}
    </svg>
    <div class="strip-ends muted"><span>${clock(first)}</span><span>${first === last ? "" : clock(last)}</span></div>
  </figure>`;
}

function Rebalances({ rebalances, open, names, onOpen }) {
  return html`<div class="table-box" tabindex="0" role="region" aria-label="Rebalances">
    <table class="history">
      <caption class="visually-hidden">
        Rebalances, the latest first
      </caption>
      <thead>
        <tr>
          <th scope="col" title="Of a member that died: its last sign of life">Began</th>
          <th scope="col">Why</th>
          <th scope="col" class="right narrow">Members</th>
          <th scope="col" class="right" title="Queues that changed hands">Moved</th>
          <th scope="col" class="right" title="Longest time without a delivery while messages waited">Pause</th>
          <th scope="col" class="right middle" title="Median pause of the queues that moved">Median</th>
          <th scope="col" class="right middle" title="Longest pause of the queues that stayed with their owner">Stalled</th>
          <th scope="col" class="right narrow" title="Messages that an application was handed again, at least and at most">Repeated</th>
          <th scope="col" class="right middle" title="Peak backlog divided by the usual one">Spike</th>
          <th scope="col" class="right narrow" title="From when it was noticed until every member had its share">Took</th>
        </tr>
      </thead>
      <tbody>
        ${rebalances.map((each) => html`<${Line} key=${each.id} of=${each} open=${each.id === open} names=${names} onOpen=${onOpen} />`)}
      </tbody>
    </table>
  </div>`;
}

function Line({ of, open, names, onOpen }) {
  return html`<tr class=${open ? "open" : ""}>
      <th scope="row">
        <button type="button" class="primary-row" aria-expanded=${String(open)} onClick=${() => onOpen(of.id)}>
          <span class="fold" aria-hidden="true">${open ? "▾" : "▸"}</span><time title=${moment(of.at)}>${clock(of.at)}</time>
        </button>
        <small class="muted"><${Ago} at=${of.at} /></small>
      </th>
      <td title=${of.reason}>${readable(of.reason || of.trigger, names)} ${of.confidence && html`<${Badge}>${of.confidence}<//>`}</td>
      <td class="right narrow num">${of.members_before.length} → ${of.members_after.length}</td>
      <td class="right"><${Num} value=${of.moved} /></td>
      <td class="right"><${Duration} ms=${of.pause_ms} /></td>
      <td class="right middle"><${Duration} ms=${of.pause_p50_ms} /></td>
      <td class="right middle"><${Duration} ms=${of.stalled_ms} /></td>
      <td class="right narrow"><${Between} low=${of.reprocessed} high=${of.reprocessed_upper} /></td>
      <td class="right middle num">${of.spike === null ? html`<span class="unknown">–</span>` : `× ${of.spike.toFixed(1)}`}</td>
      <td class="right narrow"><${Duration} ms=${of.took_ms} />${of.noticed_at !== null && of.ended_at !== null && html` <small class="muted">${clock(of.noticed_at)} to ${clock(of.ended_at)}</small>`}</td>
    </tr>
    ${open && html`<tr class="detail"><td colspan="10"><${Handoffs} of=${of} names=${names} /></td></tr>`}`;
}

function Between({ low, high }) {
  if (low === null || high === null || low === high) return html`<${Num} value=${low ?? high} />`;
  return html`<span class="num" title="At least and at most">${count(low)} to ${count(high)}</span>`;
}

/** When it began, was noticed, and ended. */
function Course({ of }) {
  const at = (words, time) => time !== null && html`${words} <time title=${moment(time)}>${clock(time)}</time>`;
  return html`${at("Began", of.at)}${at(", noticed", of.noticed_at)}${at(", every member had its share", of.ended_at)}.`;
}

function Handoffs({ of, names }) {
  const member = (id) => html`<span class="mono id" title=${id}>${names.get(id) ?? readable(id)}</span>`;
  const joined = of.members_after.filter((id) => !of.members_before.includes(id));
  const left = of.members_before.filter((id) => !of.members_after.includes(id));
  return html`<div class="handoffs">
    <p><${Course} of=${of} /></p>
    ${joined.length > 0 && html`<p>Joined: ${joined.map((id) => html`${member(id)} `)}</p>`}
    ${left.length > 0 && html`<p>Left: ${left.map((id) => html`${member(id)} `)}</p>`}
    ${of.handoffs.length === 0
      ? html`<p class="muted">No queue changed hands.</p>`
      : html`<table>
          <caption class="visually-hidden">
            Queues that changed hands
          </caption>
          <thead>
            <tr>
              <th scope="col">Queue</th>
              <th scope="col">From</th>
              <th scope="col">To</th>
              <th scope="col" class="right">Pause</th>
              <th scope="col" class="right">Repeated</th>
            </tr>
          </thead>
          <tbody>
            ${of.handoffs.slice(0, HANDOFFS_MAX).map(
              (each) => html`<tr key=${each.queue}>
                <th scope="row">${each.queue}</th>
                <td>${each.from ? member(each.from) : html`<span class="unknown">nobody</span>`}</td>
                <td>${each.to === each.from ? html`<span class="muted">stayed</span>` : each.to ? member(each.to) : html`<span class="unknown">nobody</span>`}</td>
                <td class="right"><${Duration} ms=${each.pause_ms} /></td>
                <td class="right"><${Between} low=${each.reprocessed} high=${each.reprocessed_upper} /></td>
              </tr>`,
            )}
          </tbody>
        </table>`}
    ${of.handoffs.length > HANDOFFS_MAX && html`<p class="beyond">${count(of.handoffs.length - HANDOFFS_MAX)} more are not shown.</p>`}
  </div>`;
}
