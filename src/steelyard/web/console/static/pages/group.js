// A group: its heading, and a tab for each question about it.

import { html, useEffect, useState } from "../vendor/preact-htm.js";
import { path, useResource } from "../api.js";
import { Dialect, Empty, Failed, Loading, Num, PageHead, State } from "../components/parts.js";
import { bind } from "../keys.js";
import { live, useLive } from "../live.js";
import { count, plural } from "../logic/format.js";
import { href, navigate } from "../router.js";
import { Doctor } from "./group/doctor.js";
import { History } from "./group/history.js";
import { Lag } from "./group/lag.js";
import { LiveView } from "./group/live.js";
import { ResetOffsets } from "./group/reset.js";
import { WhatIf } from "./group/what-if.js";

const TABS = [
  ["live", "Live", LiveView],
  ["history", "History", History],
  ["lag", "Lag", Lag],
  ["what-if", "What if", WhatIf],
  ["doctor", "Doctor", Doctor],
];

export function Group({ dialect, name, tab }) {
  useEffect(() => live.watch(`${dialect}/${name}`), [dialect, name]);
  useEffect(() => {
    const unbind = TABS.map(([each], at) => bind(String(at + 1), () => navigate(["groups", dialect, name, each])));
    return () => unbind.forEach((each) => each());
  }, [dialect, name]);
  const told = useLive((state) => state.group);
  const allowed = useLive((state) => state.cluster?.allow_changes ?? false);
  const [resetting, setResetting] = useState(false);
  const first = useResource(told ? null : path(["groups", dialect, name]));
  const picture = told ?? first.data;
  const View = TABS.find(([each]) => each === tab)?.[2];
  return html`<${PageHead} title=${name} note=${picture && html`<${Facts} picture=${picture} />`}>
      ${allowed && picture?.queues.length > 0 && html`<button type="button" onClick=${() => setResetting(true)}>Reset offsets…</button>`}
    <//>
    <nav class="tabs" aria-label="Views of the group">
      ${TABS.map(
        ([each, title], at) => html`<a key=${each} href=${href(["groups", dialect, name, each])} aria-current=${each === tab ? "page" : undefined} title=${`Shortcut: ${at + 1}`}>${title}</a>`,
      )}
    </nav>
    ${!View
      ? html`<${Empty} title="There is no such view"><a href=${href(["groups", dialect, name])}>To the group</a><//>`
      : picture
        ? html`<${View} dialect=${dialect} name=${name} picture=${picture} />`
        : first.error
          ? html`<${Failed} error=${first.error} retry=${first.reload} />`
          : html`<${Loading} what="Loading the group" />`}
    ${resetting && html`<${ResetOffsets} picture=${picture} onClose=${() => setResetting(false)} />`}`;
}

/** Groups with epochs have one of the group and one of its assignment, which follows it. */
function Generation({ picture }) {
  if (picture.generation === null) return "";
  if (picture.assignment_epoch === null) return html`<span>generation ${count(picture.generation)}</span>`;
  return html`<span>group epoch ${count(picture.generation)}</span><span>assignment epoch ${count(picture.assignment_epoch)}</span>`;
}

function Facts({ picture }) {
  const lag = picture.queues.reduce((total, queue) => total + (queue.lag ?? 0), 0);
  return html`<${Dialect} of=${picture.dialect} kind=${picture.kind} />
    <${State} of=${picture.state} rebalancing=${picture.rebalance !== null} />
    ${picture.protocol && html`<span>${picture.protocol}</span>`}
    <${Generation} picture=${picture} />
    <span>${plural(picture.members.length, "member")}</span>
    <span>${plural(picture.queues.length, "queue")}</span>
    <span>lag <${Num} value=${lag} short /></span>`;
}
