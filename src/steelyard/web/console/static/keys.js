// Keyboard shortcuts: `?` help, `/` filter, `g` and a letter to go somewhere, `j` and `k` to move in lists, digits for tabs.
//
// Single keys can be switched off (WCAG 2.1.4): people who talk to their computer trigger them by accident.

const STORED = "steelyard.keys";
const AFTER_G_MS = 1500;

/** What the help lists. */
export const SHORTCUTS = [
  ["?", "Show or hide this list"],
  ["/", "Filter the list"],
  ["g o", "Overview"],
  ["g g", "Groups"],
  ["g t", "Topics"],
  ["g m", "Messages"],
  ["g b", "Brokers"],
  ["1 – 5", "In a group: live, history, lag, what-if, doctor"],
  ["j, k", "Next and previous row or message"],
  ["Enter", "Open the row"],
  ["d", "In messages: next way to decode"],
  ["Esc", "Leave a field, close a dialog"],
];

export const keys = {
  get enabled() {
    try {
      return localStorage.getItem(STORED) !== "off";
    } catch {
      return true;
    }
  },
  set enabled(value) {
    try {
      localStorage.setItem(STORED, value ? "on" : "off");
    } catch {
      // It counts until the page is left.
    }
  },
};

const bound = [];

/** Call `action` for a key such as "j" or "g t" until the returned function is called. What was bound last comes first. */
export function bind(key, action) {
  const entry = { key, action };
  bound.unshift(entry);
  return () => bound.splice(bound.indexOf(entry), 1);
}

let before = "";
let timer = 0;

function pressed(event) {
  const target = event.target;
  const typing = target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
  if (event.key === "Escape" && typing) return target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys.enabled) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  const key = before ? `${before} ${event.key}` : event.key;
  clearTimeout(timer);
  before = "";
  const found = bound.find((each) => each.key === key);
  if (found) {
    if (found.action(event) !== false) event.preventDefault();
  } else if (key === "g") {
    before = "g";
    timer = setTimeout(() => (before = ""), AFTER_G_MS);
  }
}

/** Move the focus among the links of the rows (`a.primary`) of the page. */
function step(by) {
  const rows = [...document.querySelectorAll("main a.primary, main button.primary-row")];
  if (!rows.length) return false;
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))].focus();
  return true;
}

export function startKeys() {
  document.addEventListener("keydown", pressed);
  bind("j", () => step(1));
  bind("k", () => step(-1));
  bind("/", () => {
    const field = document.querySelector("main input[type=search]");
    field?.focus();
    field?.select();
  });
}
