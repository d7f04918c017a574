// What a Kafka Streams application consists of: the tasks of its members, and its topology.

import { html } from "../../vendor/preact-htm.js";
import { count } from "../../logic/format.js";

const TASKS_SHOWN = 12;
const KINDS = [["active", "active"], ["standby", "standby"], ["warmup", "warm-up"]];

/** The tasks of a member by their kind, with the names that Kafka Streams gives them: 1_0 is partition 0 of subtopology 1. */
export function Tasks({ of }) {
  const found = KINDS.filter(([kind]) => of?.[kind].length);
  if (!found.length) return html`<span class="muted">none</span>`;
  return html`<ul class="tasks">${found.map(([kind, title]) => html`<li key=${kind}><span class="muted">${title}</span> ${names(of[kind])}</li>`)}</ul>`;
}

function names(tasks) {
  const found = tasks.flatMap((each) => each.partitions.map((number) => `${each.subtopology}_${number}`));
  const more = found.length - TASKS_SHOWN;
  return `${found.slice(0, TASKS_SHOWN).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`;
}
const COLUMNS = [
  ["source_topics", "Reads", "Topics that other programs write"],
  ["repartition_source_topics", "Reads of other subtopologies", "Repartition topics"],
  ["repartition_sink_topics", "Writes for other subtopologies", "Repartition topics"],
  ["changelog_topics", "Keeps its state in", "Changelog topics"],
];

/** The subtopologies and their topics. */
export function Topology({ of }) {
  return html`<section class="spaced" aria-labelledby="live-topology">
    <h2 id="live-topology">Topology <span class="muted">epoch ${count(of.epoch)}</span></h2>
    <div class="table-box" tabindex="0" role="region" aria-label="Topology">
      <table>
        <caption class="visually-hidden">
          Subtopologies
        </caption>
        <thead>
          <tr>
            <th scope="col">Subtopology</th>
            ${COLUMNS.map(([name, title, hint]) => html`<th key=${name} scope="col" title=${hint}>${title}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${of.subtopologies.map(
            (each) => html`<tr key=${each.id} data-subtopology=${each.id}>
              <th scope="row">${each.id}</th>
              ${COLUMNS.map(([name]) => html`<td key=${name}>${each[name].length ? each[name].join(", ") : html`<span class="unknown">–</span>`}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}
