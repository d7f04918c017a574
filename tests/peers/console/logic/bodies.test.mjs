import assert from "node:assert/strict";
import { test } from "node:test";
import { hexLines, jsonTokens, preview } from "#static/logic/bodies.js";

const laidOut = (text) => jsonTokens(text).map((token) => token.text).join("");

test("JSON is laid out as JSON.stringify does it", () => {
  for (const value of [{}, [], null, true, -1.5e10, "a", [1, [2, {}], []], { a: { b: [1, 2] }, "c d": "e\n\"f\"", g: null }, "{not, a: [mark]}"]) {
    const expected = JSON.stringify(value, null, 2);
    assert.equal(laidOut(JSON.stringify(value)), expected);
    assert.equal(laidOut(expected), expected);
  }
});

test("numbers and strings stay as they were written", () => {
  assert.equal(laidOut('{"id":9007199254740993,"x":1.10,"u":"\\u00e9"}'), '{\n  "id": 9007199254740993,\n  "x": 1.10,\n  "u": "\\u00e9"\n}');
});

test("what is not JSON is not taken for it", () => {
  for (const text of ["", "plain", "{", "{'a': 1}", "[1,]", '{"a":1}{"b":2}']) assert.equal(jsonTokens(text), null);
});

test("tokens have types", () => {
  assert.deepEqual(
    jsonTokens('{"a":["b",1,null]}').filter((token) => !["space", "mark"].includes(token.type)),
    [{ type: "key", text: '"a"' }, { type: "string", text: '"b"' }, { type: "number", text: "1" }, { type: "word", text: "null" }],
  );
});

test("bytes as lines", () => {
  assert.deepEqual(hexLines("48656c6c6f0a7f", 5), [
    { offset: "0000", hex: "48 65 6c 6c 6f", text: "Hello" },
    { offset: "0005", hex: "0a 7f", text: "··" },
  ]);
  assert.deepEqual(hexLines(""), []);
});

test("previews are one line", () => {
  assert.equal(preview({ text: " a\n\tb ", hex: "", size: 6 }), "a b");
  assert.equal(preview({ text: "x".repeat(300), hex: "", size: 300 }, 10), `${"x".repeat(10)}…`);
  assert.equal(preview({ text: null, hex: "0001", size: 2 }), "00 01");
  assert.equal(preview({ text: null, hex: "00".repeat(512), size: 9999 }), `${Array(24).fill("00").join(" ")} …`);
});
