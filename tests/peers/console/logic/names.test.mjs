import assert from "node:assert/strict";
import { test } from "node:test";
import { readable, shortNames } from "#static/logic/names.js";

const names = (...members) => [...shortNames(members.map(([id, client_id]) => ({ id, client_id }))).values()];

test("client ids are names if they are distinct", () => {
  assert.deepEqual(names(["a-17c", "a"], ["b-93f", "b"]), ["a", "b"]);
});

test("equal client ids get as much of the member id as tells them apart", () => {
  assert.deepEqual(names(["rdkafka-1234aa", "rdkafka"], ["rdkafka-1234bb", "rdkafka"]), ["rdkafka~1234a", "rdkafka~1234b"]);
  assert.deepEqual(names(["rdkafka-9f", "rdkafka"], ["rdkafka-1b", "rdkafka"]), ["rdkafka~9f", "rdkafka~1b"]);
});

test("long names lose what they have in common, at the borders of words", () => {
  assert.deepEqual(names(["fleet-telemetry-1", "fleet-telemetry-1"], ["fleet-telemetry-12", "fleet-telemetry-12"]), ["…-1", "…-12"]);
  assert.deepEqual(names(["10.0.0.11@4007#stock", "10.0.0.11@4007#stock"], ["10.0.0.12@4014#stock", "10.0.0.12@4014#stock"]), ["….11@4007…", "….12@4014…"]);
});

test("a single member keeps its name", () => {
  assert.deepEqual(names(["a-very-long-name-of-a-member", "a-very-long-name-of-a-member"]), ["a-very-long-name-of-a-member"]);
});

test("names are distinct, whatever the ids are", () => {
  const members = [["x", "x"], ["xx", "x"], ["", ""], ["a-b-c-d-e-f-g-h-i-j", "a-b-c-d-e-f-g-h-i-j"], ["a-b-c-d-e-f-g-h-i-k", "a-b-c-d-e-f-g-h-i-k"]];
  const found = names(...members);
  assert.equal(new Set(found).size, found.length);
});

test("texts of servers have names in place of member ids", () => {
  const text = "worker-3-3ac56b4f-d782-3234-bf8c-d3c8c4a166ce (/127.0.0.1) joined";
  assert.equal(readable(text), "worker-3 joined");
  assert.equal(readable("index-4 (index-4/127.0.0.1) joined"), "index-4 joined");
  assert.equal(readable("Zm9vYmFyYmF6 left", new Map([["Zm9vYmFyYmF6", "worker-4"]])), "worker-4 left");
  assert.equal(readable("the topic t has 8 queues"), "the topic t has 8 queues");
});
