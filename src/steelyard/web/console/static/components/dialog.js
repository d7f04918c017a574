// A dialog of the browser's own: it keeps the focus inside and gives it back.

import { html, useEffect, useRef } from "../vendor/preact-htm.js";

export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-label=${title}
    onClose=${onClose}
    onClick=${(event) => event.target === element.current && element.current.close()}
  >
    <div class="dialog-body">
      <header>
        <h2>${title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick=${() => element.current.close()}>✕</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}
