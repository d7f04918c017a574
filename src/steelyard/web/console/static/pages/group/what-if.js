// What if: how each strategy would divide the queues among some number of members, and how many of them would move.

import { html, useMemo, useState } from "../../vendor/preact-htm.js";
import { path, useResource } from "../../api.js";
import { colourOf, Empty, Resource } from "../../components/parts.js";
import { count, plural } from "../../logic/format.js";
import { shortNames } from "../../logic/names.js";
import { setParams, useRoute } from "../../router.js";

const MEMBERS_MAX = 1000;
const SHARES_MAX = 200;

/** Groups without strategies, and why. */
const UNPLANNED = {
  share: "Members of a share group read partitions together.",
  streams: "The coordinator of a streams group assigns tasks instead of partitions.",
};

export function WhatIf({ dialect, name, picture }) {
  const { params } = useRoute();
  const now = Math.max(1, picture.members.length);
  const given = Number.parseInt(params.members ?? "", 10);
  const members = Number.isInteger(given) && given >= 1 && given <= MEMBERS_MAX ? given : now;
  const [typed, setTyped] = useState(String(members));
  const none = UNPLANNED[picture.kind];
  const answer = useResource(picture.queues.length && !none ? path(["groups", dialect, name, "what-if"], { members }) : null);
  const choose = (value) => {
    setTyped(String(value));
    if (Number.isInteger(value) && value >= 1 && value <= MEMBERS_MAX) setParams({ members: value });
  };
  if (none) return html`<${Empty} title="There are no strategies to compare">${none}<//>`;
  if (!picture.queues.length) return html`<${Empty} title="The group has no queues">There is nothing to divide until it consumes a topic.<//>`;
  return html`<div class="toolbar">
      <div class="stepper">
        <label for="what-if-members">Members</label>
        <button type="button" aria-label="One member less" disabled=${members <= 1} onClick=${() => choose(members - 1)}>−</button>
        <input id="what-if-members" type="number" min="1" max=${MEMBERS_MAX} value=${typed} onInput=${(event) => (setTyped(event.target.value), choose(event.target.valueAsNumber))} />
        <button type="button" aria-label="One member more" disabled=${members >= MEMBERS_MAX} onClick=${() => choose(members + 1)}>+</button>
      </div>
      <span class="muted">${change(members, picture.members.length)}</span>
      ${members !== now && html`<button type="button" class="link" onClick=${() => choose(now)}>Back to ${plural(now, "member")}</button>`}
    </div>
    <${Resource} of=${answer} what="Computing">${(data) => html`<${Found} answer=${data} picture=${picture} />`}<//>`;
}

function change(members, now) {
  if (members === now) return "as many as now";
  return members > now ? `${count(members - now)} more than now` : `${count(now - members)} fewer than now`;
}

function Found({ answer, picture }) {
  const { params } = useRoute();
  if (!answer.results.length) return html`<${Empty} title="No strategy fits this group" />`;
  const chosen = answer.results.find((each) => each.strategy === params.strategy) ?? answer.results.reduce((best, each) => (each.moved < best.moved ? each : best));
  return html`<div class="strategies" role="group" aria-label="Strategy">
      ${answer.results.map(
        (each) => html`<button key=${each.strategy} type="button" class="primary-row" aria-pressed=${String(each === chosen)} onClick=${() => setParams({ strategy: each.strategy })}>
          <strong>${each.strategy}</strong>
          <span class="num">${plural(each.moved, "queue")} would move</span>
          <small>${each.smallest === each.largest ? `${count(each.largest)} each` : `${count(each.smallest)} to ${count(each.largest)} each`}${each.idle ? `, ${plural(each.idle, "member")} idle` : ""}</small>
        </button>`,
      )}
    </div>
    <div class="toolbar between sentence">
      <p role="status">${chosen.text}</p>
      <span class="key-line"><i class="moves c1" aria-hidden="true"></i> a queue that would move</span>
    </div>
    <${Comparison} result=${chosen} picture=${picture} />`;
}

function Comparison({ result, picture }) {
  const { before, after } = useMemo(() => compare(result, picture), [result, picture]);
  return html`<div class="comparison">
    <section><h2>Now</h2><${Shares} of=${before} none="Nobody reads the queues." /></section>
    <section><h2>With ${result.strategy}</h2><${Shares} of=${after} /></section>
  </div>`;
}

/** Both allocations as shares with the same numbers and colours for the same members; what moves is marked on both sides. */
function compare(result, picture) {
  const ids = [...new Set([...picture.members.map((member) => member.id), ...result.members.map((member) => member.id)])];
  const clients = new Map(picture.members.map((member) => [member.id, member.client_id]));
  const names = shortNames(ids.map((id) => ({ id, client_id: clients.get(id) ?? id })));
  const slots = new Map(ids.map((id, at) => [id, at + 1]));
  const next = new Map(result.members.flatMap((member) => member.queues.map((key) => [key, member.id])));
  const owners = new Map(picture.queues.map((queue) => [queue.key, queue.owner]));
  const place = new Map(picture.queues.map((queue, at) => [queue.key, at]));
  const share = (id, keys, moves) => ({
    id,
    name: names.get(id),
    slot: slots.get(id),
    queues: [...keys].sort((a, b) => (place.get(a) ?? 0) - (place.get(b) ?? 0)).map((key) => ({ key, moves: moves(key) })),
  });
  return {
    before: picture.members.map((member) =>
      share(member.id, picture.queues.filter((queue) => queue.owner === member.id).map((queue) => queue.key), (key) => next.get(key) !== member.id),
    ),
    after: result.members.map((member) => share(member.id, member.queues, (key) => owners.get(key) !== member.id)),
  };
}

function Shares({ of, none }) {
  if (!of.length) return html`<p class="muted">${none}</p>`;
  return html`<ul class="shares">
    ${of.slice(0, SHARES_MAX).map(
      (share) => html`<li key=${share.id} title=${share.id}>
        <span class=${`slot ${colourOf(share.slot)}`} aria-hidden="true">${share.slot}</span>
        <span class="name">${share.name}</span>
        <span class="squares" aria-hidden="true">${share.queues.map(({ key, moves }) => html`<i key=${key} title=${key} class=${`owner ${colourOf(share.slot)} ${moves ? "moves" : ""}`}></i>`)}</span>
        <span class="num">${count(share.queues.length)}<span class="visually-hidden"> ${share.queues.length === 1 ? "queue" : "queues"}, ${share.queues.filter((each) => each.moves).length} of them would move</span></span>
      </li>`,
    )}
    ${of.length > SHARES_MAX && html`<li class="beyond">${count(of.length - SHARES_MAX)} more are not shown.</li>`}
  </ul>`;
}
