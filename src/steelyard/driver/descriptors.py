"""File descriptors of a server: their limit, and the share for connections.

A process without free descriptors can neither accept a connection nor open a file. So a server
raises its soft limit to the hard one when it starts (as Java does), and limits its connections to
what is left after its files and a reserve: connections can then never take a descriptor that a
write or a sync needs.
"""

from __future__ import annotations

import os
import resource
import sys

from steelyard.errors import ConfigError
from steelyard.store.files import OPEN_FILES_MAX

RESERVE_MAX = 128
"""Reserved for syncs, outgoing connections, connections being closed, and libraries."""

LIMIT_MAX = 1 << 20
"""Limit used if the system reports none; on macOS as far as it allows."""

LEAST = 32
"""Minimum number of connections; a server that could not accept as many does not start."""

UNKNOWN_IN_USE = 64


def raise_limit() -> int:
    """Raise RLIMIT_NOFILE to its hard limit.

    Return how many descriptors the process may have now.
    """
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
    """Return the number of open descriptors."""
    try:
        return len(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    except OSError:
        return UNKNOWN_IN_USE


def files_max(limit: int) -> int:
    """Return the number of files that a store may keep open under that limit."""
    return min(OPEN_FILES_MAX, limit // 4)


def connections_max(limit: int, used: int, files: int) -> int:
    """Return how many connections may be accepted with `used` descriptors, and `files` for a store.

    Raises ConfigError if that is too few to be useful.
    """
    left = limit - used - files - min(RESERVE_MAX, limit // 8)
    if left < LEAST:
        raise ConfigError(
            f"the process may open {limit} files, which leaves {max(0, left)} connections; "
            f"raise the limit (ulimit -n, LimitNOFILE=) by {LEAST - left} or more"
        )
    return left
