// Bodies of messages as people read them: JSON with its colours, text, or bytes in hexadecimal.

/**
 * JSON laid out in lines, as tokens { type, text }; null if the text is not JSON. Types: "key", "string", "number", "word", "mark", "space".
 * Numbers and strings stay as they were written: 9007199254740993 is not rounded.
 */
export function jsonTokens(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const raw = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const tokens = [];
  let depth = 0;
  const add = (type, value) => tokens.push({ type, text: value });
  const line = () => add("space", `\n${"  ".repeat(depth)}`);
  raw.forEach((part, at) => {
    if (part === "{" || part === "[") {
      add("mark", part);
      depth += 1;
      if (!closes(raw[at + 1])) line();
    } else if (closes(part)) {
      depth -= 1;
      if (!/^[{[]$/.test(raw[at - 1])) line();
      add("mark", part);
    } else if (part === ",") {
      add("mark", part);
      line();
    } else if (part === ":") {
      add("mark", ": ");
    } else if (part[0] === '"') {
      add(raw[at + 1] === ":" ? "key" : "string", part);
    } else {
      add(/^[-\d]/.test(part) ? "number" : "word", part);
    }
  });
  return tokens;
}

function closes(part) {
  return part === "}" || part === "]";
}

/** "48656c6c6f" -> [{ offset: "0000", hex: "48 65 6c 6c 6f", text: "Hello" }], `width` bytes a line. */
export function hexLines(hex, width = 16) {
  const bytes = hex.match(/../g) ?? [];
  const lines = [];
  for (let at = 0; at < bytes.length; at += width) {
    const part = bytes.slice(at, at + width);
    lines.push({
      offset: at.toString(16).padStart(4, "0"),
      hex: part.join(" "),
      text: part.map((byte) => printable(parseInt(byte, 16))).join(""),
    });
  }
  return lines;
}

function printable(byte) {
  return byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·";
}

/** One line that shows what a body is about: white space is one space, unprintable bodies are their first bytes. */
export function preview(body, most = 160) {
  if (body.text === null) return body.hex ? `${(body.hex.match(/../g) ?? []).slice(0, 24).join(" ")}${body.size > 24 ? " …" : ""}` : "";
  const line = body.text.slice(0, most * 2).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most)}…` : line;
}
