"""Who may ask: browsers only from the console's own pages, and under an address that is ours.

A page of somebody else's, open in the same browser, can send requests to this machine. Its own name
may even lead here (DNS rebinding), so that the browser believes both to be one site. Therefore the
name in `Host` must be an IP address, `localhost`, or one of those that were configured: whoever
controls a name cannot make a browser send an address instead. And `Origin`, which browsers send
with requests of foreign pages and with all changes, must be the same as `Host`. There is no CORS:
nobody else's page may read an answer.

The headers tell browsers what the pages may do: load their own files, and nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), usb=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of all answers."""

MISDIRECTED, FORBIDDEN = 421, 403


def refusal(
    headers: Mapping[str, str], names: Collection[str], *, is_page: bool
) -> tuple[int, str] | None:
    """Return status and text for a request that is refused; None for one that is not.

    `names`: host names that are ours. `is_page`: a page or its files, to which others may link.
    """
    host = headers.get("host", "")
    name = host_name(host)
    if name is None or not _is_ours(name, names):
        text = f"the Host {host[:100]!r} is not ours; use an IP address or localhost, or start the"
        return MISDIRECTED, text + " console with --set hosts=NAME"
    origin = headers.get("origin")
    if origin is not None and urlsplit_host(origin) != host.lower():
        return FORBIDDEN, f"requests of pages of {origin[:100]!r} are refused"
    if origin is None and not is_page and headers.get("sec-fetch-site") == "cross-site":
        return FORBIDDEN, "requests of pages of other sites are refused"
    return None


def host_name(host: str) -> str | None:
    """Return the name or address in a Host header; None if it has none."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def urlsplit_host(origin: str) -> str | None:
    """Return host and port of an origin, as they stand in a Host header."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_ours(name: str, names: Collection[str]) -> bool:
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
