// A table that can be sorted and filtered; both are in the address, so that the view can be shared.

import { html } from "../vendor/preact-htm.js";
import { ordered } from "../logic/series.js";
import { setParams, useRoute } from "../router.js";
import { count } from "../logic/format.js";
import { Empty } from "./parts.js";

const ROWS_MAX = 500;

export function Filter({ label, name = "q" }) {
  const { params } = useRoute();
  return html`<label class="filter">
    <span class="visually-hidden">${label}</span>
    <input type="search" placeholder=${`${label}  ( / )`} value=${params[name] ?? ""} onInput=${(event) => setParams({ [name]: event.target.value })} />
  </label>`;
}

/**
 * `columns`: [{ name, title, value(row), show(row), right, less, hint }]. `value` is what is sorted by; `less` is the width class below which the
 * column is left out ("narrow" or "middle"). `text(row)`: what the filter looks at. `sort`: the column it begins with, "-name" for descending.
 */
export function Table({ caption, columns, rows, rowKey, text, sort = "", filter = "q", empty, leftOut = 0, rowClass }) {
  const { params } = useRoute();
  const wanted = (params[filter] ?? "").trim().toLowerCase();
  const by = params.sort ?? sort;
  const descending = by.startsWith("-");
  const column = columns.find((each) => each.name === by.replace(/^-/, "") && each.value);
  const found = wanted && text ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
  const sorted = column ? ordered(found, column.value, descending) : found;
  const shown = sorted.slice(0, ROWS_MAX);
  const beyond = sorted.length - shown.length + leftOut;
  if (!rows.length) return empty;
  if (!found.length) {
    return html`<${Empty} title=${`Nothing matches “${params[filter]}”`}><button type="button" onClick=${() => setParams({ [filter]: "" })}>Clear the filter</button><//>`;
  }
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="visually-hidden">
        ${caption}
      </caption>
      <thead>
        <tr>
          ${columns.map((each) => html`<${Heading} key=${each.name} column=${each} by=${by} />`)}
        </tr>
      </thead>
      <tbody>
        ${shown.map(
          (row) => html`<tr key=${rowKey(row)} class=${rowClass?.(row) ?? ""}>
            ${columns.map((each, at) => {
              const kind = `${each.right ? "right" : ""} ${each.less ?? ""}`;
              return at === 0 ? html`<th scope="row" class=${kind}>${each.show(row)}</th>` : html`<td key=${each.name} class=${kind}>${each.show(row)}</td>`;
            })}
          </tr>`,
        )}
      </tbody>
    </table>
    ${beyond > 0 && html`<p class="beyond">${count(beyond)} more are not shown. A filter makes the list shorter.</p>`}
  </div>`;
}

function Heading({ column, by }) {
  const sorted = by === column.name ? "ascending" : by === `-${column.name}` ? "descending" : "none";
  const kind = `${column.right ? "right" : ""} ${column.less ?? ""}`;
  if (!column.value) return html`<th scope="col" class=${kind} title=${column.hint}>${column.title}</th>`;
  const next = sorted === "none" ? (column.right ? `-${column.name}` : column.name) : sorted === "descending" ? column.name : `-${column.name}`;
  return html`<th scope="col" class=${kind} aria-sort=${sorted} title=${column.hint}>
    <button type="button" class="sort" onClick=${() => setParams({ sort: next })}>
      ${column.title}<span class="arrow" aria-hidden="true">${sorted === "ascending" ? "▲" : sorted === "descending" ? "▼" : ""}</span>
    </button>
  </th>`;
}
