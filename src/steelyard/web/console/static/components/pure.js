// A component that is rendered again only when one of its properties is another value.

import { Component } from "../vendor/preact-htm.js";

export class Pure extends Component {
  shouldComponentUpdate(next) {
    const now = this.props;
    for (const name in next) if (next[name] !== now[name]) return true;
    for (const name in now) if (!(name in next)) return true;
    return false;
  }
}
