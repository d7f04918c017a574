// Lag over time: of the whole group, and of each queue.

import { html, useMemo } from "../../vendor/preact-htm.js";
import { path, useResource } from "../../api.js";
import { Chart } from "../../components/chart.js";
import { Empty, Resource, Switch } from "../../components/parts.js";
import { Filter, Table } from "../../components/table.js";
import { count, compact, duration } from "../../logic/format.js";
import { COLOURS } from "../../logic/matrix.js";
import { last, linePath, peak } from "../../logic/series.js";
import { setParams, useRoute } from "../../router.js";

const REFRESH_MS = 5_000;
const LINES_MAX = 6;
const PERIODS = [["15", "15 min"], ["60", "1 h"], ["120", "2 h"]];

export function Lag({ dialect, name, picture }) {
  const { params } = useRoute();
  const minutes = PERIODS.some(([each]) => each === params.minutes) ? params.minutes : "60";
  const lag = useResource(path(["groups", dialect, name, "lag"], { minutes }), { everyMs: REFRESH_MS });
  const unit = params.unit === "time" ? "time" : "messages";
  const chosen = (params.queues ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  return html`<div class="toolbar">
      <${Switch} label="Unit" value=${unit} options=${[["messages", "Messages"], ["time", "Time"]]} onChange=${(value) => setParams({ unit: value })} />
      <${Switch} label="Period" value=${minutes} options=${PERIODS} onChange=${(value) => setParams({ minutes: value })} />
    </div>
    <${Resource} of=${lag} what="Loading the lag">
      ${(answer) => html`<${Found} answer=${answer} unit=${unit} chosen=${chosen} picture=${picture} />`}
    <//>`;
}

const showTime = (value) => duration(value);
const showCount = (value) => compact(Math.round(value));

function Found({ answer, unit, chosen, picture }) {
  const lines = useMemo(() => {
    if (unit === "time") return [{ name: "oldest message has waited", values: answer.wait_ms, token: "--accent" }];
    const queues = chosen.filter((key) => answer.queues[key]).map((key, at) => ({ name: key, values: answer.queues[key], token: `--member-${(at % COLOURS) + 1}` }));
    return queues.length ? queues : [{ name: "messages that wait", values: answer.total, token: "--accent" }];
  }, [answer, unit, chosen.join()]);
  if (answer.times.length < 2) return html`<${Empty} title="Not enough samples yet">The console takes one every few seconds while it runs. The chart begins with the second.<//>`;
  const show = unit === "time" ? showTime : showCount;
  const summary = lines.map((line) => `${line.name}: now ${describe(last(line.values), show)}, at most ${describe(peak(line.values), show)}`).join("; ");
  return html`<${Chart} times=${answer.times} lines=${lines} show=${show} summary=${summary} />
    <${Queues} answer=${answer} chosen=${chosen} picture=${picture} />`;
}

function describe(value, show) {
  return value === null ? "not known" : show(value);
}

const START = {
  name: "start",
  title: "Start offset",
  right: true,
  hint: "Share-partition start offset: what is before it is done",
  value: (row) => row.start,
  show: (row) => html`<span class="num">${count(row.start)}</span>`,
};

function Queues({ answer, chosen, picture }) {
  const live = new Map(picture.queues.map((queue) => [queue.key, queue]));
  const top = Math.max(1, ...Object.values(answer.queues).map((values) => peak(values) ?? 0));
  const rows = Object.entries(answer.queues).map(([key, values]) => ({ key, values, now: last(values), most: peak(values), wait: live.get(key)?.wait_ms ?? null, start: live.get(key)?.share_start ?? null }));
  const toggle = (key) => {
    const next = chosen.includes(key) ? chosen.filter((each) => each !== key) : [...chosen, key].slice(-LINES_MAX);
    setParams({ queues: next.map(encodeURIComponent).join(","), unit: "messages" });
  };
  const columns = [
    {
      name: "queue",
      title: "Queue",
      value: (row) => row.key,
      show: (row) => html`<label class="check"><input type="checkbox" checked=${chosen.includes(row.key)} onChange=${() => toggle(row.key)} /> ${row.key}</label>`,
    },
    { name: "line", title: "Over time", less: "narrow", show: (row) => html`<${Spark} values=${row.values} top=${top} />` },
    { name: "now", title: "Lag now", right: true, value: (row) => row.now, show: (row) => html`<span class="num">${count(row.now)}</span>` },
    { name: "most", title: "Highest", right: true, value: (row) => row.most, show: (row) => html`<span class="num">${count(row.most)}</span>` },
    ...(picture.kind === "share" ? [START] : []),
    { name: "wait", title: "Waiting", right: true, value: (row) => row.wait, show: (row) => html`<span class="num">${duration(row.wait)}</span>` },
  ];
  return html`<div class="toolbar between">
      <h2>Queues</h2>
      <p class="muted">${chosen.length ? html`<button type="button" class="link" onClick=${() => setParams({ queues: "" })}>Show the whole group</button>` : "Tick queues to see them in the chart."}</p>
      <${Filter} label="Filter queues" />
    </div>
    <${Table} caption="Queues" columns=${columns} rows=${rows} rowKey=${(row) => row.key} text=${(row) => row.key} sort="-now" empty=${html`<${Empty} title="No queue yet" />`} />`;
}

function Spark({ values, top }) {
  return html`<svg class="spark" viewBox="0 0 160 20" width="160" height="20" aria-hidden="true"><path d=${linePath(values, 160, 20, top)} /></svg>`;
}
