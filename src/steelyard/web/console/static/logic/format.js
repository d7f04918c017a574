// Values as text. Numbers have thousands separators, times their unit; what is not known is a dash.

export const UNKNOWN = "–";

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1204331 -> "1,204,331". */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : grouped.format(value);
}

/** 1204331 -> "1.2 M". For places where the exact number does not fit; that is in the title. */
export function compact(value) {
  if (value === null || value === undefined) return UNKNOWN;
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    const divisor = unit === "k" ? 1e3 : size;
    if (Math.abs(value) >= size) return `${short(value / divisor)} ${unit}`;
  }
  return count(value);
}

/** 1 decimal below 10, none above; no ".0". */
function short(value) {
  const text = Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0);
  return text.replace(/\.0$/, "");
}

/** Counted things: plural(1, "queue") -> "1 queue", plural(2, "queue") -> "2 queues". */
export function plural(value, word, many = `${word}s`) {
  return `${count(value)} ${value === 1 ? word : many}`;
}

/** 45 -> "45 ms", 1234 -> "1.2 s", 192000 -> "3 min 12 s". */
export function duration(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.min(59, Math.round(seconds))} s`;
  const whole = Math.round(seconds);
  for (const [size, name, smaller, part] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / smaller);
      return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${part}` : ""}`;
    }
  }
  return `${whole} s`;
}

/** What runs while one looks: seconds with a decimal below a minute. */
export function stopwatch(ms) {
  return ms < 59_950 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s` : duration(ms);
}

/** Whole seconds, for what changes while one looks: "12 s ago". */
export function ago(ms, now) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const past = now - ms;
  if (past < 1500) return "just now";
  return `${past < 60_000 ? `${Math.round(past / 1000)} s` : duration(Math.floor(past / 1000) * 1000).split(" ").slice(0, 2).join(" ")} ago`;
}

/** 3482000000 -> "3.5 GB". */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${short(value / size)} ${unit}`;
  }
  return `${count(value)} B`;
}

/** Messages per second. */
export function rate(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value < 10 ? String(Math.round(value * 10) / 10) : compact(value);
}

/** 0.42 -> "42 %". */
export function percent(value) {
  return value === null || value === undefined ? UNKNOWN : `${Math.round(value * 100)} %`;
}

function two(value, digits = 2) {
  return String(value).padStart(digits, "0");
}

/** Local time: "2026-11-25 20:01:02.345". */
export function moment(ms) {
  if (ms === null || ms === undefined) return UNKNOWN;
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}.${two(date.getMilliseconds(), 3)}`;
}

/** Local time of the day: "20:01:02". */
export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** "a", "a and b", "a, b and c", "a, b, c and 4 more". */
export function listed(names, most = 3) {
  if (names.length > most + 1) return `${names.slice(0, most).join(", ")} and ${count(names.length - most)} more`;
  if (names.length < 2) return names.join("");
  return `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
