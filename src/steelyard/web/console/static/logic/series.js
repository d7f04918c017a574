// Series over time for charts and small lines.

/** The last known value, or null. */
export function last(values) {
  for (let at = values.length - 1; at >= 0; at -= 1) if (values[at] !== null && values[at] !== undefined) return values[at];
  return null;
}

export function peak(values) {
  return values.reduce((most, value) => (value !== null && (most === null || value > most) ? value : most), null);
}

/** At most `points` values: each the highest of its stretch, so that no spike is lost; null where nothing is known. */
export function thinned(values, points) {
  if (values.length <= points) return values;
  const found = [];
  for (let at = 0; at < points; at += 1) {
    const from = Math.floor((at * values.length) / points);
    const to = Math.floor(((at + 1) * values.length) / points);
    found.push(peak(values.slice(from, to)));
  }
  return found;
}

/** The path of a small line in a box of `width` x `height`, broken where nothing is known. */
export function linePath(values, width, height, top = peak(values)) {
  const shown = thinned(values, width);
  const scale = top ? (height - 2) / top : 0;
  const stepX = shown.length > 1 ? width / (shown.length - 1) : 0;
  let path = "";
  let pen = false;
  shown.forEach((value, at) => {
    if (value === null || value === undefined) {
      pen = false;
      return;
    }
    path += `${pen ? "L" : "M"}${(at * stepX).toFixed(1)} ${(height - 1 - value * scale).toFixed(1)}`;
    pen = true;
  });
  return path;
}

/** Heights of bars between 0 and 1 on a logarithmic scale: pauses of 5 ms and of 5 s are both seen. */
export function logHeight(value, most) {
  if (!value || value <= 0) return 0;
  return Math.log10(1 + value) / Math.log10(1 + Math.max(most, 10));
}

/** Order of rows by a column: numbers by size, texts as people count ("q2" before "q10"), what is not known at the end. */
export function ordered(rows, value, descending) {
  const known = (row) => value(row) !== null && value(row) !== undefined;
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => {
    const [left, right] = [value(a), value(b)];
    const order = typeof left === "number" && typeof right === "number" ? left - right : collator.compare(String(left), String(right));
    return descending ? -order : order;
  };
  return [...rows.filter(known).sort(compare), ...rows.filter((row) => !known(row))];
}
