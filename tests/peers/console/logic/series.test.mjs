import assert from "node:assert/strict";
import { test } from "node:test";
import { last, linePath, logHeight, ordered, peak, thinned } from "#static/logic/series.js";
import { href, parse } from "#static/router.js";

test("last and highest values", () => {
  assert.equal(last([1, 2, null]), 2);
  assert.equal(last([null]), null);
  assert.equal(peak([1, null, 7, 3]), 7);
  assert.equal(peak([]), null);
});

test("thinning keeps spikes and gaps", () => {
  const values = Array.from({ length: 100 }, (_, at) => (at === 42 ? 9 : at >= 80 ? null : 1));
  const found = thinned(values, 10);
  assert.equal(found.length, 10);
  assert.equal(peak(found), 9);
  assert.deepEqual(found.slice(8), [null, null]);
  assert.deepEqual(thinned([1, 2], 10), [1, 2]);
});

test("a line is broken where nothing is known", () => {
  assert.equal(linePath([0, 10, null, 10], 30, 12, 10), "M0.0 11.0L10.0 1.0M30.0 1.0");
  assert.equal(linePath([], 30, 12), "");
});

test("heights on a logarithmic scale", () => {
  assert.equal(logHeight(null, 100), 0);
  assert.equal(logHeight(5000, 5000), 1);
  assert.ok(logHeight(5, 5000) > 0.15 && logHeight(5, 5000) < 0.3);
});

test("rows in order: numbers by size, texts as people count, the unknown at the end", () => {
  const by = (values, descending) => ordered(values.map((value) => ({ value })), (row) => row.value, descending).map((row) => row.value);
  assert.deepEqual(by([10, null, 9], false), [9, 10, null]);
  assert.deepEqual(by([10, null, 9], true), [10, 9, null]);
  assert.deepEqual(by(["q10", "q2", "Q1"], false), ["Q1", "q2", "q10"]);
});

test("addresses are read back as they were written", () => {
  for (const [parts, params] of [[[], {}], [["groups", "kafka", "a/b %20?#ü", "live"], { q: "x&y=1 +", view: "topics" }]]) {
    assert.deepEqual(parse(href(parts, params)), { parts, params });
  }
  assert.equal(href(["a"], { empty: "", none: null, zero: 0 }), "#/a?zero=0");
  assert.deepEqual(parse("#/%zz"), { parts: ["%zz"], params: {} });
  assert.deepEqual(parse("#/m?from=a?b"), { parts: ["m"], params: { from: "a?b" } });
});
