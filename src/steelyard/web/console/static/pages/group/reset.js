// Resetting the offsets of a group: what would change is shown first, then it is confirmed.

import { html, useState } from "../../vendor/preact-htm.js";
import { path, post } from "../../api.js";
import { Dialog } from "../../components/dialog.js";
import { Failed } from "../../components/parts.js";
import { count, plural } from "../../logic/format.js";

/** What becomes of running members. */
const FOLLOWS = { kafka: "The group must have no members meanwhile: stop them first.", rocketmq: "Members that are running continue there at once." };

export function ResetOffsets({ picture, onClose }) {
  const topics = [...new Set(picture.queues.map((queue) => queue.topic))];
  const [topic, setTopic] = useState(topics[0]);
  const [to, setTo] = useState("latest");
  const [time, setTime] = useState("");
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const change = (set) => (event) => {
    set(event.target.value);
    setPlan(null);
  };
  const ask = async (dryRun) => {
    setBusy(true);
    setError(null);
    try {
      const target = to === "time" ? new Date(time).getTime() : to;
      setPlan(await post(path(["groups", picture.dialect, picture.name, "reset-offsets"]), { topic, to: target, dry_run: dryRun }));
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const changed = plan?.offsets.filter((each) => each.before !== each.after) ?? [];
  const done = plan !== null && !plan.dry_run;
  return html`<${Dialog} title=${`Reset offsets of ${picture.name}`} onClose=${onClose} wide>
    <form onSubmit=${(event) => (event.preventDefault(), ask(true))}>
      <div class="fields">
        <label>Topic <select value=${topic} onChange=${change(setTopic)}>${topics.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
        <label>Continue at
          <select value=${to} onChange=${change(setTo)}>
            <option value="latest">the end: skip what waits</option>
            <option value="earliest">the beginning: consume all again</option>
            <option value="time">a time</option>
          </select>
        </label>
        ${to === "time" && html`<label>Time <input type="datetime-local" step="1" required value=${time} onInput=${change(setTime)} /></label>`}
        ${!plan && html`<button type="submit" class="main" disabled=${busy}>Show what would change</button>`}
      </div>
    </form>
    ${error && html`<${Failed} error=${error} />`}
    ${plan &&
    html`<p class="sentence" role="status">${done ? `Done: ${plural(changed.length, "queue")} changed.` : changed.length ? `${plural(changed.length, "queue")} would change. ${FOLLOWS[picture.dialect]}` : "Nothing would change."}</p>
      <div class="table-box short" tabindex="0" role="region" aria-label="Offsets">
        <table>
          <thead><tr><th scope="col">Queue</th><th scope="col" class="right">${done ? "Before" : "Now"}</th><th scope="col" class="right">${done ? "Now" : "Then"}</th><th scope="col" class="right">Difference</th></tr></thead>
          <tbody>
            ${plan.offsets.map((each) => html`<tr key=${each.queue}><th scope="row">${each.queue}</th><td class="right num">${count(each.before)}</td><td class="right num">${count(each.after)}</td><td class="right num">${each.before === null ? "–" : signed(each.after - each.before)}</td></tr>`)}
          </tbody>
        </table>
      </div>
      <div class="dialog-end">
        ${done
          ? html`<button type="button" class="main" onClick=${onClose}>Close</button>`
          : html`<button type="button" onClick=${() => setPlan(null)}>Back</button><button type="button" class="danger" disabled=${busy || !changed.length} onClick=${() => ask(false)}>Reset ${plural(changed.length, "queue")}</button>`}
      </div>`}
  <//>`;
}

function signed(value) {
  return value > 0 ? `+${count(value)}` : value < 0 ? `−${count(-value)}` : "0";
}
