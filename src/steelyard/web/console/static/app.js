// The console: its frame, and which page is at which address.

import { html, render, useEffect, useState } from "./vendor/preact-htm.js";
import { Help } from "./components/help.js";
import { ConnectionLost, Navigation } from "./components/frame.js";
import { Empty } from "./components/parts.js";
import { bind, startKeys } from "./keys.js";
import { live } from "./live.js";
import { Brokers } from "./pages/brokers.js";
import { Group } from "./pages/group.js";
import { Groups } from "./pages/groups.js";
import { Messages } from "./pages/messages.js";
import { Overview } from "./pages/overview.js";
import { Topic } from "./pages/topic.js";
import { Topics } from "./pages/topics.js";
import { href, navigate, useRoute } from "./router.js";

const PLACES = { o: [], g: ["groups"], t: ["topics"], m: ["messages"], b: ["brokers"] };

function page({ parts, params }) {
  const [place = "", dialect, name, tab] = parts;
  if (!parts.length) return html`<${Overview} />`;
  if (place === "groups" && name) return html`<${Group} key=${`${dialect}/${name}`} dialect=${dialect} name=${name} tab=${tab ?? "live"} />`;
  if (place === "topics" && name) return html`<${Topic} key=${`${dialect}/${name}`} dialect=${dialect} name=${name} />`;
  if (place === "groups") return html`<${Groups} />`;
  if (place === "topics") return html`<${Topics} />`;
  if (place === "messages") return html`<${Messages} params=${params} />`;
  if (place === "brokers") return html`<${Brokers} />`;
  return html`<h1>Not found</h1>
    <${Empty} title="There is no such page"><a href=${href([])}>To the overview</a><//>`;
}

function Console() {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const address = route.parts.join("/");
  useEffect(() => bind("?", () => setHelp((shown) => !shown)), []);
  useEffect(() => {
    const parts = Object.entries(PLACES).map(([letter, place]) => bind(`g ${letter}`, () => navigate(place)));
    return () => parts.forEach((unbind) => unbind());
  }, []);
  useEffect(() => {
    if (route.parts[0] !== "groups" || route.parts.length < 3) live.watch(null);
    document.title = [...route.parts.slice(-2).reverse().filter(Boolean), "Steelyard"].join(" · ");
    scrollTo(0, 0);
  }, [address]);
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>To the content</a>
    <${Navigation} place=${route.parts[0] ?? ""} onHelp=${() => setHelp(true)} />
    <div class="content">
      <${ConnectionLost} />
      <main id="main" tabindex="-1">${page(route)}</main>
    </div>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

live.start();
startKeys();
render(html`<${Console} />`, document.getElementById("app"));
