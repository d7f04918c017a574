import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, compact, count, duration, listed, percent, plural, rate, stopwatch, UNKNOWN } from "#static/logic/format.js";

function table(call, rows) {
  for (const [value, expected] of rows) assert.equal(call(value), expected, `of ${value}`);
}

test("numbers", () => {
  table(count, [[0, "0"], [1204331, "1,204,331"], [null, UNKNOWN]]);
  table(compact, [[9999, "9,999"], [10000, "10 k"], [12345, "12 k"], [1204331, "1.2 M"], [5_000_000, "5 M"], [3e9, "3 G"], [null, UNKNOWN]]);
  table(bytes, [[0, "0 B"], [999, "999 B"], [1000, "1 kB"], [3_482_000_000, "3.5 GB"], [null, UNKNOWN]]);
  table(rate, [[0, "0"], [0.24, "0.2"], [812.4, "812"], [54321, "54 k"], [null, UNKNOWN]]);
  table(percent, [[0.424, "42 %"], [1, "100 %"], [null, UNKNOWN]]);
  assert.equal(plural(1, "queue"), "1 queue");
  assert.equal(plural(1000, "queue"), "1,000 queues");
});

test("durations never show 60 of a unit", () => {
  table(duration, [
    [0, "0 ms"],
    [-5, "0 ms"],
    [999, "999 ms"],
    [1000, "1.0 s"],
    [1234, "1.2 s"],
    [9949, "9.9 s"],
    [9960, "10 s"],
    [59_900, "59 s"],
    [60_000, "1 min"],
    [192_000, "3 min 12 s"],
    [3_600_000, "1 h"],
    [7_260_000, "2 h 1 min"],
    [90_000_000, "1 d 1 h"],
    [null, UNKNOWN],
  ]);
});

test("a stopwatch does not change its unit in the first second", () => {
  table(stopwatch, [[-3, "0.0 s"], [0, "0.0 s"], [940, "0.9 s"], [12_345, "12.3 s"], [59_949, "59.9 s"], [60_000, "1 min"]]);
});

test("distances from now", () => {
  assert.equal(ago(10_000, 10_900), "just now");
  assert.equal(ago(10_000, 22_000), "12 s ago");
  assert.equal(ago(0, 192_000), "3 min ago");
  assert.equal(ago(null, 1), UNKNOWN);
});

test("lists", () => {
  assert.equal(listed([]), "");
  assert.equal(listed(["a"]), "a");
  assert.equal(listed(["a", "b"]), "a and b");
  assert.equal(listed(["a", "b", "c", "d"]), "a, b, c and d");
  assert.equal(listed(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
});
