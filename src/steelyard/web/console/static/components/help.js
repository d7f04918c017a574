// The list of keyboard shortcuts.

import { html, useState } from "../vendor/preact-htm.js";
import { keys, SHORTCUTS } from "../keys.js";
import { Dialog } from "./dialog.js";

export function Help({ onClose }) {
  const [enabled, setEnabled] = useState(keys.enabled);
  const change = (event) => {
    keys.enabled = event.target.checked;
    setEnabled(event.target.checked);
  };
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    <dl class="shortcuts">
      ${SHORTCUTS.map(
        ([combination, text]) => html`<div key=${combination}>
          <dt>${combination.split(/([ ,–])/).map((part) => (/^[ ,–]?$/.test(part) ? part : html`<kbd>${part}</kbd>`))}</dt>
          <dd>${text}</dd>
        </div>`,
      )}
    </dl>
    <label class="check"><input type="checkbox" checked=${enabled} onChange=${change} /> Single-key shortcuts</label>
  <//>`;
}
