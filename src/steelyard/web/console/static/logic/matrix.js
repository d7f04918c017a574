// From pictures of a group to the matrix of queues and members: columns that keep their place, rows by topic, and what moved.

import { readable, shortNames } from "./names.js";
import { ordered } from "./series.js";

/** How long a member that left keeps its column. */
export const LEFT_MS = 6_000;

/** How long a queue that moved is marked. */
export const MOVED_MS = 2_500;

/** From so many queues or members on, the matrix shows topics and counts first. */
export const CONDENSED_QUEUES = 120;

/** So many members have a colour of their own; further ones have one of these again, and their numbers. */
export const COLOURS = 8;

/**
 * The columns of the next picture: members keep theirs, new ones, by name, take the first that is free, and who left is shown for a while.
 * A column: { id, slot, name, member, leftAt }. `slot` counts from 1; `member` is what the server said last.
 */
export function columns(previous, members, now) {
  const present = new Map(members.map((member) => [member.id, member]));
  const kept = [];
  for (const column of previous) {
    const member = present.get(column.id);
    if (member) kept.push({ ...column, member, leftAt: null });
    else if (column.leftAt === null) kept.push({ ...column, leftAt: now });
    else if (now - column.leftAt < LEFT_MS) kept.push(column);
    present.delete(column.id);
  }
  const taken = new Set(kept.map((column) => column.slot));
  let slot = 1;
  for (const member of ordered([...present.values()], (each) => each.client_id || each.id, false)) {
    while (taken.has(slot)) slot += 1;
    taken.add(slot);
    kept.push({ id: member.id, slot, name: "", member, leftAt: null });
  }
  const names = shortNames(kept.map((column) => column.member));
  return kept.map((column) => ({ ...column, name: names.get(column.id) })).sort((a, b) => a.slot - b.slot);
}

/** Queues that changed hands between two pictures and lately: Map from key to { from, to, at }. Those older than MOVED_MS are dropped. */
export function moves(previous, before, after, now) {
  const found = new Map();
  for (const [key, move] of previous) if (now - move.at < MOVED_MS) found.set(key, move);
  if (before && before !== after) {
    const owners = new Map(before.queues.map((queue) => [queue.key, queue.owner]));
    for (const queue of after.queues) {
      const from = owners.get(queue.key);
      if (from === undefined || from === queue.owner || queue.owner === null) continue;
      found.set(queue.key, { from: from ?? found.get(queue.key)?.from ?? null, to: queue.owner, at: now });
    }
  }
  return found;
}

/** Whether nobody reads a queue: in a share group it has readers instead of an owner. */
export function unread(queue) {
  return queue.owner === null && queue.readers.length === 0;
}

/**
 * How a queue stands to a member: "owner" (reads it, in a share group with others), "revoking" (owns it, another is next), "next", "standby" and
 * "warmup" (runs such a task of it), "former" (gave it up lately), or "".
 */
export function standing(queue, member, move) {
  if (queue.owner === member) return queue.next_owner !== null && queue.next_owner !== member ? "revoking" : "owner";
  if (queue.readers.includes(member)) return "owner";
  if (queue.next_owner === member) return "next";
  if (queue.standbys.includes(member)) return "standby";
  if (queue.warmups.includes(member)) return "warmup";
  return move && move.from === member ? "former" : "";
}

/** Queues by topic, in the order of the server's list: [{ topic, queues, lag, wait_ms }]. */
export function byTopic(queues) {
  const found = new Map();
  for (const queue of queues) {
    let entry = found.get(queue.topic);
    if (!entry) found.set(queue.topic, (entry = { topic: queue.topic, queues: [], lag: 0, wait_ms: null }));
    entry.queues.push(queue);
    if (queue.lag !== null) entry.lag += queue.lag;
    if (queue.wait_ms !== null) entry.wait_ms = Math.max(entry.wait_ms ?? 0, queue.wait_ms);
  }
  return [...found.values()];
}

/** The rows of the matrix that a filter lets through: a heading for each topic, then its queues. */
export function rows(queues, filter = "") {
  const wanted = filter.trim().toLowerCase();
  const shown = wanted ? queues.filter((queue) => queue.key.toLowerCase().includes(wanted)) : queues;
  return byTopic(shown).flatMap((topic) => [{ kind: "topic", ...topic }, ...topic.queues.map((queue) => ({ kind: "queue", queue }))]);
}

/** Which rows of equal height are to be in the document for a scroll position: [first, end). */
export function visible(total, rowHeight, scrollTop, height, spare = 12) {
  const first = Math.max(0, Math.floor(scrollTop / rowHeight) - spare);
  return [Math.min(first, total), Math.min(total, Math.ceil((scrollTop + height) / rowHeight) + spare)];
}

/** The name of a queue within its topic: "3", or "broker-a/3". */
export function queueName(queue) {
  return queue.key.startsWith(`${queue.topic}/`) ? queue.key.slice(queue.topic.length + 1) : queue.key;
}

/** What happened between two pictures, one sentence each, the oldest first: [{ kind, text }]. */
export function happened(before, after, names) {
  const found = [];
  const old = new Set(before.members.map((member) => member.id));
  const now = new Set(after.members.map((member) => member.id));
  const name = (id) => names.get(id) ?? id;
  for (const member of after.members) if (!old.has(member.id)) found.push({ kind: "joined", text: `${name(member.id)} joined` });
  for (const member of before.members) if (!now.has(member.id)) found.push({ kind: "left", text: `${name(member.id)} left` });
  if (!before.rebalance && after.rebalance) found.push({ kind: "began", text: `Rebalance began: ${readable(after.rebalance.reason || after.rebalance.trigger, names)}` });
  const owners = new Map(before.queues.map((queue) => [queue.key, queue.owner]));
  const given = after.queues.filter((queue) => owners.has(queue.key) && queue.owner !== null && owners.get(queue.key) !== queue.owner);
  const read = new Set(before.queues.filter((queue) => !unread(queue)).map((queue) => queue.key));
  const lost = after.queues.filter((queue) => unread(queue) && read.has(queue.key));
  if (lost.length) found.push({ kind: "lost", text: `${several(lost)} without an owner` });
  if (given.length) {
    const to = [...new Set(given.map((queue) => queue.owner))];
    found.push({ kind: "moved", text: `${several(given)} to ${to.length === 1 ? name(to[0]) : `${to.length} members`}` });
  }
  if (before.rebalance && !after.rebalance) found.push({ kind: "ended", text: "Rebalance ended" });
  return found;
}

function several(queues) {
  return queues.length === 1 ? queues[0].key : `${queues.length} queues`;
}
