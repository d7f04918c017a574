// Lines over time, drawn by uPlot in the colours of the theme.

import { html, useEffect, useRef } from "../vendor/preact-htm.js";
import uPlot from "../vendor/uplot.js";
import { clock } from "../logic/format.js";
import { last } from "../logic/series.js";

const HEIGHT = 240;

/** What a colour of the style sheet is in the present theme: `colour("--accent")`. */
export function colour(token) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/**
 * `times` in ms; `lines`: [{ name, values, token }]; `show(value)`: text of a value. `summary` says in words what the chart shows, for those who do
 * not see it; the table below it has the values.
 */
export function Chart({ times, lines, show, summary }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shape = lines.map((line) => `${line.name} ${line.token}`).join("|");
  const data = [times.map((time) => time / 1000), ...lines.map((line) => line.values)];

  useEffect(() => {
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(lines, show, box.current.clientWidth), data, box.current);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth, height: HEIGHT }));
    resized.observe(box.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    const chosen = new MutationObserver(draw);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      chosen.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, show]);

  useEffect(() => plot.current?.setData(data), [times, lines]);

  return html`<div class="chart" role="img" aria-label=${summary}><div ref=${box}></div></div>`;
}

function options(lines, show, width) {
  const muted = colour("--muted");
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: muted, grid, ticks: { ...grid, size: 4 }, font: "12px system-ui, sans-serif" };
  return {
    width,
    height: HEIGHT,
    padding: [12, 12, 0, 0],
    legend: { live: true },
    cursor: { y: false, points: { size: 6 } },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [
      { ...axis, space: 84, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).replace(/:00$/, "")) },
      { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => show(tick)) },
    ],
    series: [
      { label: "Time", value: (_, value) => (value === null || value === undefined ? "now" : clock(value * 1000)) },
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(line.token),
        width: 1.5,
        fill: lines.length === 1 ? colour("--accent-soft") : undefined,
        points: { show: false },
        spanGaps: false,
        // Without a pointer in the chart the legend tells the last values.
        value: (plot, value, series, at) => text(at === null || at === undefined ? last(plot.data[series]) : value, show),
      })),
    ],
  };
}

function text(value, show) {
  return value === null || value === undefined ? "–" : show(value);
}
