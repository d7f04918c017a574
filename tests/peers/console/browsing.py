"""Debian's Chromium, driven by Playwright, and what a page did that it must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.peers.apache import Missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

CHROMIUM = "chromium"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


AXE = """
async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: tags });
  return violations.map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}
"""


def violations(page: Page, axe: str) -> list[str]:
    """What on a page is against WCAG 2.2 AA, according to axe-core, whose source is `axe`."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    found: list[str] = page.evaluate(AXE)
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a profile of its own. Raises Missing."""
    executable = shutil.which(CHROMIUM)
    if executable is None:
        raise Missing("Chromium is not here")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Missing("Playwright for Python is not here") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, headless=True, args=list(OPTIONS)
        )
        yield browser
        browser.close()


class Watcher:
    """What a page complained about, and where its requests went."""

    def __init__(self, page: Page, origin: str) -> None:
        self._page = page
        self._origin = origin
        self.expected: set[int] = set()
        """Statuses of answers that the test asks for; the browser notes them as errors."""
        self.complaints: list[str] = []
        page.add_init_script(WATCH)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        if any(f"status of {status} " in message.text for status in self.expected):
            return
        self.complaints.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(f"{self._origin}/"):
            self.complaints.append(f"request to {request.url}")

    def check(self) -> None:
        """AssertionError if there is anything to complain about."""
        violations: list[Any] = self._page.evaluate("window.violations ?? []")
        found = [*self.complaints, *violations]
        assert not found, found


@contextmanager
def opened(
    browser: Browser, origin: str, width: int = 1280, height: int = 900, theme: Any = "light"
) -> Iterator[tuple[Page, Watcher]]:
    """A page of a fresh profile; it must not have complained when it is closed."""
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    page = context.new_page()
    watcher = Watcher(page, origin)
    yield page, watcher
    watcher.check()
    context.close()
