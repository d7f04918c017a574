import assert from "node:assert/strict";
import { test } from "node:test";
import { columns, happened, LEFT_MS, moves, MOVED_MS, queueName, rows, standing, unread, visible } from "#static/logic/matrix.js";

const member = (id) => ({ id, client_id: id, host: "", state: "stable", waited_for: false, assigned: 0 });
const queue = (key, owner, next_owner = null, others = {}) => ({ key, topic: key.split("/")[0], owner, next_owner, readers: [], standbys: [], warmups: [], lag: 1, wait_ms: null, ...others });
const picture = (members, queues, rebalance = null) => ({ members: members.map(member), queues, rebalance });
const slots = (found) => found.map((column) => [column.id, column.slot, column.leftAt !== null]);

test("members keep their columns; who left is shown for a while, and its place is given away after that", () => {
  let found = columns([], [member("c"), member("a"), member("b")], 0);
  assert.deepEqual(slots(found), [["a", 1, false], ["b", 2, false], ["c", 3, false]]);
  found = columns(found, [member("c"), member("a")], 1000);
  assert.deepEqual(slots(found), [["a", 1, false], ["b", 2, true], ["c", 3, false]]);
  found = columns(found, [member("a"), member("c"), member("d")], 2000);
  assert.deepEqual(slots(found), [["a", 1, false], ["b", 2, true], ["c", 3, false], ["d", 4, false]]);
  found = columns(found, [member("a"), member("c"), member("d"), member("e")], 1000 + LEFT_MS);
  assert.deepEqual(slots(found), [["a", 1, false], ["e", 2, false], ["c", 3, false], ["d", 4, false]]);
});

test("a member that comes back in time has its column again", () => {
  let found = columns([], [member("a"), member("b")], 0);
  found = columns(found, [member("b")], 1000);
  assert.deepEqual(slots(columns(found, [member("b"), member("a")], 2000)), [["a", 1, false], ["b", 2, false]]);
});

test("a queue that moved is known with who had it, for a while", () => {
  const before = picture(["a", "b"], [queue("t/0", "a"), queue("t/1", "a")]);
  const after = picture(["a", "b"], [queue("t/0", "b"), queue("t/1", "a")]);
  const found = moves(new Map(), before, after, 100);
  assert.deepEqual([...found], [["t/0", { from: "a", to: "b", at: 100 }]]);
  assert.equal(moves(found, after, after, 100 + MOVED_MS - 1).size, 1);
  assert.equal(moves(found, after, after, 100 + MOVED_MS).size, 0);
});

test("a queue without owner counts as moved only when it has a new one", () => {
  const owned = picture(["a"], [queue("t/0", "a")]);
  const lost = picture([], [queue("t/0", null)]);
  assert.equal(moves(new Map(), owned, lost, 0).size, 0);
  assert.deepEqual([...moves(new Map(), lost, owned, 5)], [["t/0", { from: null, to: "a", at: 5 }]]);
});

test("new queues have not moved", () => {
  assert.equal(moves(new Map(), picture(["a"], []), picture(["a"], [queue("t/0", "a")]), 0).size, 0);
});

test("how a queue stands to a member", () => {
  const moving = queue("t/0", "a", "b");
  assert.deepEqual(["a", "b", "c"].map((each) => standing(moving, each)), ["revoking", "next", ""]);
  assert.equal(standing(queue("t/0", "a", "a"), "a"), "owner");
  const moved = queue("t/0", "b");
  assert.deepEqual(["a", "b"].map((each) => standing(moved, each, { from: "a", to: "b", at: 0 })), ["former", "owner"]);
});

test("members of a share group read a queue together, and others have copies of a task's state", () => {
  const shared = queue("t/0", null, null, { readers: ["a", "b"] });
  assert.deepEqual(["a", "b", "c"].map((each) => standing(shared, each)), ["owner", "owner", ""]);
  assert.deepEqual([shared, queue("t/0", null), queue("t/0", "a")].map(unread), [false, true, false]);
  const task = queue("t/0", "a", null, { standbys: ["b"], warmups: ["c"] });
  assert.deepEqual(["a", "b", "c"].map((each) => standing(task, each)), ["owner", "standby", "warmup"]);
  assert.equal(standing(queue("t/0", "a", "b", { standbys: ["b"] }), "b"), "next");
});

test("rows are grouped by topic and filtered by key", () => {
  const queues = [queue("t/0", "a"), queue("u/0", "a"), queue("t/1", "a")];
  const shown = (filter) => rows(queues, filter).map((row) => (row.kind === "topic" ? `${row.topic}:${row.queues.length}` : row.queue.key));
  assert.deepEqual(shown(""), ["t:2", "t/0", "t/1", "u:1", "u/0"]);
  assert.deepEqual(shown(" T/1 "), ["t:1", "t/1"]);
  assert.deepEqual(shown("nothing"), []);
});

test("only the rows near the view are in the document", () => {
  assert.deepEqual(visible(1000, 20, 0, 400, 5), [0, 25]);
  assert.deepEqual(visible(1000, 20, 4000, 400, 5), [195, 225]);
  assert.deepEqual(visible(10, 20, 4000, 400, 5), [10, 10]);
});

test("names of queues", () => {
  assert.equal(queueName({ key: "t/3", topic: "t" }), "3");
  assert.equal(queueName({ key: "t/broker-a/3", topic: "t" }), "broker-a/3");
});

test("what happened, in the order of causes", () => {
  const before = picture(["a", "b"], [queue("t/0", "a"), queue("t/1", "b")]);
  const during = picture(["a", "c"], [queue("t/0", "a"), queue("t/1", null)], { reason: "b left", trigger: "leave" });
  const after = picture(["a", "c"], [queue("t/0", "a"), queue("t/1", "c")]);
  const names = new Map([["c", "third"]]);
  const texts = (one, other) => happened(one, other, names).map((each) => each.text);
  assert.deepEqual(texts(before, during), ["third joined", "b left", "Rebalance began: b left", "t/1 without an owner"]);
  assert.deepEqual(texts(during, after), ["t/1 to third", "Rebalance ended"]);
  assert.deepEqual(texts(after, after), []);
  const together = (readers) => picture(["a"], [queue("t/0", null, null, { readers })]);
  assert.deepEqual(texts(together(["a"]), together([])), ["t/0 without an owner"]);
});

test("1,000 queues and 50 members take a few milliseconds", () => {
  const members = Array.from({ length: 50 }, (_, at) => `member-${at}`);
  const shared = (shift) => picture(members, Array.from({ length: 1000 }, (_, at) => queue(`t/${at}`, members[(at + shift) % 50])));
  const [before, after] = [shared(0), shared(1)];
  const found = columns([], before.members, 0);
  const began = performance.now();
  for (let turn = 0; turn < 20; turn += 1) {
    columns(found, after.members, 1);
    assert.equal(moves(new Map(), before, after, 1).size, 1000);
    rows(after.queues, "");
  }
  assert.ok((performance.now() - began) / 20 < 50);
});
