// The matrix of a group: who reads which queue. A row for each queue and a column for each member; or, of large groups, a row for each topic, and
// in each column a heap of the member's queues.

import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { compact, count, duration, plural } from "../logic/format.js";
import { byTopic, queueName, rows as rowsOf, standing, unread, visible } from "../logic/matrix.js";
import { colourOf } from "./parts.js";
import { Pure } from "./pure.js";

const ROW = 26;

const WORDS = {
  owner: "reads it",
  revoking: "reads it, and is to give it up",
  next: "reads it next",
  former: "read it until now",
  standby: "has a standby of its task",
  warmup: "warms up its task, to read it then",
};

/** What is written in the block of a task that does not read its queue; in narrow columns its first letter. */
const TASKS = { standby: "standby", warmup: "warm-up" };

/** From so many members on, columns are narrow. */
const MANY = 10;

/** `columns` and `moved` as `logic/matrix.js` makes them. */
export function QueueMatrix({ picture, columns, moved, filter, onlyMoved }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const queues = onlyMoved ? picture.queues.filter((queue) => moved.has(queue.key) || changing(queue)) : picture.queues;
  const rows = rowsOf(queues, filter);
  const [first, end] = visible(rows.length, ROW, view.top, view.height);
  useEffect(() => {
    const measure = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight || 600 });
    measure();
    const resized = new ResizeObserver(measure);
    resized.observe(box.current);
    return () => resized.disconnect();
  }, []);
  const layout = columns.map((column) => `${column.id}:${column.slot}:${column.leftAt}`).join("|");
  return html`<div
    class=${`matrix-box ${columns.length > MANY ? "many" : ""}`}
    ref=${box}
    tabindex="0"
    role="region"
    aria-label="Queues and members"
    onScroll=${(event) => setView({ top: event.target.scrollTop, height: event.target.clientHeight })}
  >
    <table class="matrix" aria-rowcount=${rows.length + 1}>
      <caption class="visually-hidden">
        Who reads which queue
      </caption>
      <thead>
        <tr>
          <th scope="col" class="label">Queue</th>
          <th scope="col" class="right lag">Lag</th>
          <th scope="col" class="right wait" title="How long the oldest message that is not consumed has waited">Waiting</th>
          <th scope="col" class="member nobody" title="Queues that no member reads"><span class="name">nobody</span></th>
          ${columns.map((column) => html`<${MemberHeading} key=${column.id} column=${column} picture=${picture} />`)}
          <td class="rest"></td>
        </tr>
      </thead>
      <tbody>
        <tr class="space" aria-hidden="true"><td ref=${heightOf(first * ROW)} colspan=${columns.length + 5}></td></tr>
        ${rows.slice(first, end).map((row, at) =>
          row.kind === "topic"
            ? html`<tr key=${`topic ${row.topic}`} class="topic" aria-rowindex=${first + at + 2}>
                <th scope="rowgroup" class="label">${row.topic}</th>
                <td class="right lag num">${compact(row.lag)}</td>
                <td class="right wait num">${row.wait_ms ? duration(row.wait_ms) : ""}</td>
                <td colspan=${columns.length + 2}></td>
              </tr>`
            : html`<${QueueRow}
                key=${row.queue.key}
                index=${first + at + 2}
                queue=${row.queue}
                signature=${signature(row.queue, moved.get(row.queue.key))}
                layout=${layout}
                columns=${columns}
                move=${moved.get(row.queue.key)}
              />`,
        )}
        <tr class="space" aria-hidden="true"><td ref=${heightOf((rows.length - end) * ROW)} colspan=${columns.length + 5}></td></tr>
      </tbody>
    </table>
    ${!rows.length && html`<p class="matrix-none">${onlyMoved ? "No queue is moving at the moment." : filter ? `No queue matches “${filter}”.` : "The group has no queues yet."}</p>`}
  </div>`;
}

/** Sets the height of an element by its style object, which the content security policy allows. */
function heightOf(pixels) {
  return (element) => {
    if (element) element.style.height = `${Math.max(0, pixels)}px`;
  };
}

function changing(queue) {
  return unread(queue) || (queue.next_owner !== null && queue.next_owner !== queue.owner);
}

function signature(queue, move) {
  const others = [queue.readers, queue.standbys, queue.warmups].map((each) => each.join()).join("|");
  return `${queue.owner}|${queue.next_owner}|${others}|${queue.lag}|${queue.wait_ms}|${move ? move.at : ""}`;
}

function MemberHeading({ column, picture }) {
  const { member, slot, name, leftAt } = column;
  const waited = picture.rebalance?.waits_for.includes(column.id) || member.waited_for;
  const state = leftAt !== null ? "left" : waited ? "waited for" : member.state;
  const kind = leftAt !== null ? "left" : waited ? "waited" : "";
  return html`<th scope="col" class=${`member ${kind}`} data-member=${column.id} title=${`${member.id}\n${member.host}\n${state}, ${plural(member.assigned, "queue")}`}>
    <span class=${`slot ${colourOf(slot)}`}>${slot}</span>
    <span class="name">${name}</span>
    <span class="state">${leftAt !== null ? "left" : waited ? "waited for" : member.state === "stable" ? plural(member.assigned, "queue") : member.state}</span>
  </th>`;
}

class QueueRow extends Pure {
  shouldComponentUpdate(next) {
    const now = this.props;
    return next.signature !== now.signature || next.layout !== now.layout || next.index !== now.index;
  }

  render({ queue, columns, move, index }) {
    const unowned = unread(queue);
    return html`<tr class=${`queue ${unowned ? "unowned" : ""}`} aria-rowindex=${index} data-queue=${queue.key}>
      <th scope="row" class="label" title=${queue.task ? `${queue.key}: task ${queue.task}` : queue.key}>${queueName(queue)}${queue.task && html`<span class="task">task ${queue.task}</span>`}</th>
      <td class="right lag num">${compact(queue.lag)}</td>
      <td class="right wait num">${queue.wait_ms ? duration(queue.wait_ms) : ""}</td>
      <td class="cell nobody">${unowned && html`<span class="block none" title=${`${queue.key}: nobody reads it`}><span class="visually-hidden">nobody reads it</span></span>`}</td>
      ${columns.map((column) => {
        const stands = standing(queue, column.id, move);
        if (!stands) return html`<td key=${column.id} class="cell"></td>`;
        const arrived = stands === "owner" && move && move.to === column.id;
        return html`<td key=${column.id} class="cell">
          <span class=${`block ${stands} ${colourOf(column.slot)} ${arrived ? "arrived" : ""}`} data-member=${column.id} title=${`${queue.key}: ${column.name} ${WORDS[stands]}`}>
            <span aria-hidden="true">${mark(stands, column, columns.length > MANY)}</span><span class="visually-hidden">${WORDS[stands]}</span>
          </span>
        </td>`;
      })}
      <td class="rest"></td>
    </tr>`;
  }
}

/** What is written in a block. */
function mark(stands, column, isNarrow) {
  if (stands in TASKS) return isNarrow ? TASKS[stands][0].toUpperCase() : TASKS[stands];
  return stands === "former" ? "" : column.slot;
}

/** A row for each topic; in each column the member's queues as small squares, and how many they are. */
export function TopicMatrix({ picture, columns, moved, filter = "" }) {
  const wanted = filter.trim().toLowerCase();
  const topics = byTopic(wanted ? picture.queues.filter((queue) => queue.key.toLowerCase().includes(wanted)) : picture.queues);
  return html`<div class=${`matrix-box heaps ${columns.length > MANY ? "many" : ""}`} tabindex="0" role="region" aria-label="Topics and members">
    <table class="matrix">
      <caption class="visually-hidden">
        How many queues of each topic a member reads
      </caption>
      <thead>
        <tr>
          <th scope="col" class="label">Topic</th>
          <th scope="col" class="right lag">Lag</th>
          <th scope="col" class="right wait">Waiting</th>
          <th scope="col" class="member nobody"><span class="name">nobody</span></th>
          ${columns.map((column) => html`<${MemberHeading} key=${column.id} column=${column} picture=${picture} />`)}
          <td class="rest"></td>
        </tr>
      </thead>
      <tbody>
        ${topics.map(
          (topic) => html`<tr key=${topic.topic} data-topic=${topic.topic}>
            <th scope="row" class="label" title=${topic.topic}>${topic.topic}<span class="sub">${plural(topic.queues.length, "queue")}</span></th>
            <td class="right lag num" title=${count(topic.lag)}>${compact(topic.lag)}</td>
            <td class="right wait num">${topic.wait_ms ? duration(topic.wait_ms) : ""}</td>
            ${[null, ...columns].map((column) => html`<${Heap} key=${column ? column.id : ""} ...${heapOf(topic, column, moved)} />`)}
            <td class="rest"></td>
          </tr>`,
        )}
      </tbody>
    </table>
    ${!topics.length && html`<p class="matrix-none">${filter ? `No queue matches “${filter}”.` : "The group has no queues yet."}</p>`}
  </div>`;
}

/** One letter for each square ("o" owned, "a" arrived, "r" revoking, "n" next, "s" standby, "w" warm-up, "u" unread): strings are compared quickly. */
function heapOf(topic, column, moved) {
  let squares = "";
  for (const queue of topic.queues) {
    if (column === null) {
      if (unread(queue)) squares += "u";
      continue;
    }
    const move = moved.get(queue.key);
    const stands = standing(queue, column.id, move);
    if (stands === "owner") squares += move && move.to === column.id ? "a" : "o";
    else if (stands === "revoking") squares += "r";
    else if (stands === "next") squares += "n";
    else if (stands === "standby") squares += "s";
    else if (stands === "warmup") squares += "w";
  }
  return { squares, slot: column?.slot ?? 0 };
}

const SQUARES = { o: "owner", a: "owner arrived", r: "revoking", n: "next", s: "standby", w: "warmup", u: "none" };
const SQUARES_MAX = 60;

class Heap extends Pure {
  render({ squares, slot }) {
    const owned = squares.replace(/[nsw]/g, "").length;
    const shown = squares.length > SQUARES_MAX ? squares.slice(0, SQUARES_MAX) : squares;
    return html`<td class=${`heap ${slot ? "" : "nobody"}`}>
      ${squares &&
      html`<span class="squares" aria-hidden="true">${[...shown].map((each, at) => html`<i key=${at} class=${`${SQUARES[each]} ${slot ? colourOf(slot) : ""}`}></i>`)}</span>
        <span class="heap-count num">${owned || ""}</span>`}
    </td>`;
  }
}

const OWNED = [["owner", "reads the queue"], ["revoking", "is to give it up"], ["next", "reads it next"], ["former", "read it until now"]];
const STANDINGS = {
  share: [["owner", "reads the queue, together with the others in its row"]],
  streams: [...OWNED, ["standby", "standby: has a copy of the task's state"], ["warmup", "warm-up: restores the task's state"]],
};

/** What the patterns of the matrix mean. */
export function Legend({ kind }) {
  return html`<ul class="legend" aria-label="Legend">
    ${(STANDINGS[kind] ?? OWNED).map(([stands, text]) => html`<li key=${stands}><span class=${`block ${stands} c1`} aria-hidden="true"></span> ${text}</li>`)}
    <li><span class="block none" aria-hidden="true"></span> nobody reads it</li>
  </ul>`;
}
