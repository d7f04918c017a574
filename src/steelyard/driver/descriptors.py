"""File descriptors of a server: how many there may be, and how many of them are for connections.

A process that has no descriptor left can neither accept a connection nor open a file. So a server raises its soft limit
to the hard one when it starts (as java does), and what is left after its files and a reserve is the bound of its
connections: connections can then never take what a write or a sync needs.
"""

from __future__ import annotations

import os
import resource
import sys

from steelyard.errors import ConfigError
from steelyard.store.files import OPEN_FILES_MAX

RESERVE_MAX = 128
"""For syncs, connections to other servers, connections that are being closed, and what libraries open."""

LIMIT_MAX = 1 << 20
"""Taken where the system says that there is no limit, and on macOS as far as it goes."""

LEAST = 32
"""A server that could not even take so many connections does not start."""

UNKNOWN_IN_USE = 64


def raise_limit() -> int:
    """Raise RLIMIT_NOFILE to its hard limit; how many descriptors the process may have now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return LIMIT_MAX if soft == resource.RLIM_INFINITY else soft
    for limit in (wanted, 10_240):  # macOS: OPEN_MAX is less than what it says
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        return limit
    return soft


def in_use() -> int:
    """How many descriptors the process has."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return UNKNOWN_IN_USE


def files_max(limit: int) -> int:
    """How many files a store may keep open under that limit."""
    return min(OPEN_FILES_MAX, limit // 4)


def connections_max(limit: int, used: int, files: int) -> int:
    """How many connections may be accepted where `used` descriptors are gone and `files` are kept for a store.

    Raises ConfigError where that is too few to be of use.
    """
    left = limit - used - files - min(RESERVE_MAX, limit // 8)
    if left < LEAST:
        raise ConfigError(
            f"the process may open {limit} files, which leaves {max(0, left)} connections; "
            f"raise the limit (ulimit -n, LimitNOFILE=) by {LEAST - left} or more"
        )
    return left
