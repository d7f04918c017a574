// Rebalance live: who reads which queue now, whom a rebalance waits for and why it began, and what happened since the page was opened.

import { html, useRef } from "../../vendor/preact-htm.js";
import { Legend, QueueMatrix, TopicMatrix } from "../../components/matrix.js";
import { Badge, Empty, Slot, Switch } from "../../components/parts.js";
import { Filter } from "../../components/table.js";
import { serverNow, useNow } from "../../clock.js";
import { useLive } from "../../live.js";
import { clock, count as counted, duration, moment, plural, stopwatch } from "../../logic/format.js";
import { columns as columnsOf, CONDENSED_QUEUES, happened, moves, unread } from "../../logic/matrix.js";
import { readable } from "../../logic/names.js";
import { href, setParams, useRoute } from "../../router.js";
import { Tasks, Topology } from "./streams.js";

/** What a member that is waited for has yet to do. */
const OWES = { joining: "has not rejoined", revoking: "has to give up queues", syncing: "has not taken its share", silent: "does not answer" };

/** What a state with a warning means. */
const WARNINGS = { Degraded: "A member does not answer", NotReady: "The application is not ready" };

const LINES_MAX = 60;
const MEMBERS_MAX = 60;

/** So many characters of the id of a process, which is a UUID, are shown. */
const PROCESS_SHOWN = 8;

/** What is derived from one picture after the other. */
function useMatrix(picture) {
  useNow(1000); // What left or moved is marked for some seconds, also while no picture comes.
  const now = serverNow();
  const state = useRef({ picture: null, columns: [], moved: new Map(), lines: [], count: 0 });
  const last = state.current;
  const columns = columnsOf(last.columns, picture.members, now);
  const moved = moves(last.moved, last.picture, picture, now);
  let { lines, count } = last;
  if (last.picture && last.picture !== picture) {
    const names = new Map(columns.map((column) => [column.id, column.name]));
    const found = happened(last.picture, picture, names).map((each, at) => ({ ...each, at: now, key: last.count + at }));
    count += found.length;
    if (found.length) lines = [...found.reverse(), ...lines].slice(0, LINES_MAX);
  }
  state.current = { picture, columns, moved, lines, count };
  return state.current;
}

export function LiveView({ picture }) {
  const { params } = useRoute();
  const { columns, moved, lines } = useMatrix(picture);
  const large = picture.queues.length > CONDENSED_QUEUES;
  const view = params.view ?? (large ? "topics" : "queues");
  const Matrix = view === "topics" ? TopicMatrix : QueueMatrix;
  return html`<${Banner} picture=${picture} columns=${columns} moved=${moved.size} />
    <div class="toolbar">
      <${Switch} label="Rows" value=${view} options=${[["queues", "By queue"], ["topics", "By topic"]]} onChange=${(value) => setParams({ view: value })} />
      ${view === "queues" &&
      html`<label class="check"><input type="checkbox" checked=${params.moving === "1"} onChange=${(event) => setParams({ moving: event.target.checked ? "1" : "" })} /> Only what moves</label>`}
      <${Filter} label="Filter queues" />
    </div>
    <${Matrix} picture=${picture} columns=${columns} moved=${moved} filter=${params.q ?? ""} onlyMoved=${params.moving === "1"} />
    <${Legend} kind=${picture.kind} />
    <div class="columns spaced">
      <section aria-labelledby="live-members">
        <h2 id="live-members">Members</h2>
        <${Members} picture=${picture} columns=${columns} />
      </section>
      <section aria-labelledby="live-lines">
        <h2 id="live-lines">Since you opened this page</h2>
        ${lines.length
          ? html`<ol class="lines" aria-live="off">${lines.map((line) => html`<li key=${line.key} class=${line.kind}><time title=${moment(line.at)}>${clock(line.at)}</time><span>${line.text}</span></li>`)}</ol>`
          : html`<p class="muted">Nothing changed. Joins, leaves and moved queues appear here.</p>`}
      </section>
    </div>
    ${picture.topology && html`<${Topology} of=${picture.topology} />`}`;
}

/** The sentence that says what happens. It has the same height in all states, so that the matrix does not jump. */
function Banner({ picture, columns, moved }) {
  const { rebalance } = picture;
  return html`<div class=${`banner ${rebalance || picture.warning ? "warn" : picture.members.length ? "good" : "quiet"}`} role="status">
    ${rebalance ? html`<${Rebalancing} rebalance=${rebalance} columns=${columns} moved=${moved} />` : html`<${Calm} picture=${picture} moved=${moved} />`}
  </div>`;
}

function Rebalancing({ rebalance, columns, moved }) {
  const now = useNow(100);
  const names = new Map(columns.map((column) => [column.id, column]));
  const waits = rebalance.waits_for.map((id) => names.get(id) ?? { id, name: id, slot: 0 });
  const texts = new Map(columns.map((column) => [column.id, fullName(column)]));
  return html`<p class="banner-head">
      <strong>Rebalancing <span class="num" aria-hidden="true">for ${stopwatch(now - rebalance.since)}</span></strong>
      ${moved > 0 && html`<span class="moved-count">${plural(moved, "queue")} just moved</span>`}
    </p>
    <p title=${rebalance.text}>${readable(rebalance.reason || rebalance.trigger, texts)}.</p>
    <p class="waits">
      ${waits.length > 0 && html`Waits for ${waits.slice(0, 4).map((each) => html`<span class="waited-for" title=${each.id}>${each.slot > 0 && html`<${Slot} slot=${each.slot} />`} ${fullName(each)}<span class="muted">${OWES[each.member?.state] ?? ""}</span></span>`)}${waits.length > 4 && ` and ${counted(waits.length - 4)} more`}`}
    </p>`;
}

/** A name with the parts that a narrow column leaves out. */
function fullName({ name, member }) {
  return name.includes("…") && member ? member.client_id || member.id : name;
}

function Calm({ picture, moved }) {
  const last = useLive((state) => state.rebalance);
  const since = useLive((state) => state.groups?.groups.find((each) => each.dialect === picture.dialect && each.name === picture.name)?.last_rebalance_at ?? null);
  const history = href(["groups", picture.dialect, picture.name, "history"]);
  const unowned = picture.queues.filter(unread).length;
  const among = picture.kind === "share" ? "shared by" : "among";
  return html`<p class="banner-head">
      <strong>${picture.warning ? WARNINGS[picture.state] ?? picture.state : picture.members.length ? "No rebalance under way" : "No members"}</strong>
      ${moved > 0 && html`<span class="moved-count">${plural(moved, "queue")} just moved</span>`}
    </p>
    <p>
      ${picture.warning ? readable(picture.warning, new Map()) : picture.members.length
        ? `${plural(picture.queues.length, "queue")} ${among} ${plural(picture.members.length, "member")}${unowned ? `; nobody reads ${plural(unowned, "queue")}.` : "."}`
        : `${plural(picture.queues.length, "queue")} with committed offsets. They continue when a member joins.`}
    </p>
    <p class="waits">
      ${last
        ? html`${readable(last.reason || last.trigger, new Map(picture.members.map((member) => [member.id, member.client_id])))}: ${plural(last.moved, "queue")} moved${last.pause_ms !== null && html`, longest pause ${duration(last.pause_ms)}`}. <a href=${`${history}?open=${encodeURIComponent(last.id)}`}>What it cost</a>`
        : since !== null
          ? html`The last one began at ${clock(since)}. <a href=${history}>What it cost</a>`
          : ""}
    </p>`;
}

function Members({ picture, columns }) {
  const waited = new Set(picture.rebalance?.waits_for ?? []);
  const isStreams = picture.kind === "streams";
  if (!columns.length) return html`<${Empty} title="Nobody reads for this group">Its committed offsets stay, and its lag grows while producers send.<//>`;
  return html`<div class="table-box" tabindex="0" role="region" aria-label="List of members">
    <table class="members">
      <caption class="visually-hidden">
        Members
      </caption>
      <thead>
        <tr>
          <th scope="col" class="right">No.</th>
          <th scope="col">Member</th>
          <th scope="col" class="narrow">Host</th>
          ${isStreams ? html`<th scope="col" class="middle" title="The instance of the application that the member is a thread of">Process</th>` : html`<th scope="col" class="middle">Version</th>`}
          <th scope="col">State</th>
          <th scope="col" class="right">Queues</th>
          ${isStreams && html`<th scope="col">Tasks</th>`}
        </tr>
      </thead>
      <tbody>
        ${columns.slice(0, MEMBERS_MAX).map(
          ({ id, slot, name, member, leftAt }) => html`<tr key=${id} class=${leftAt !== null ? "left" : ""} data-member=${id}>
            <td class="right"><${Slot} slot=${slot} /></td>
            <th scope="row" title=${id}>${name}</th>
            <td class="narrow mono">${member.host}</td>
            ${isStreams ? html`<td class="middle mono" title=${member.tasks?.process_id}>${member.tasks?.process_id.slice(0, PROCESS_SHOWN)}</td>` : html`<td class="middle">${member.version ?? html`<span class="unknown">–</span>`}</td>`}
            <td>${leftAt !== null ? html`<${Badge}>left<//>` : waited.has(id) || member.waited_for ? html`<${Badge} tone="warn">waited for<//>` : html`<${Badge} tone=${member.state === "stable" ? "good" : "warn"}>${member.state}<//>`}</td>
            <td class="right num">${counted(member.assigned)}</td>
            ${isStreams && html`<td><${Tasks} of=${member.tasks} /></td>`}
          </tr>`,
        )}
      </tbody>
    </table>
    ${columns.length > MEMBERS_MAX && html`<p class="beyond">${counted(columns.length - MEMBERS_MAX)} more are not shown.</p>`}
  </div>`;
}
