"""Checks that no member was expelled because its broker did not run.

A broker may expel a member that was silent for its session while the broker itself ran: what it
sent while the broker's process was stopped waits in the socket. How long a process was stopped is
known here (`Host.pauses`), whatever the broker makes of it.

Members of classic Kafka groups are also expelled for joining too late, which is measured from the
beginning of a rebalance: only those are looked at whose silence began one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steelyard.groups.kafka.effects import EXPIRED
from steelyard.ledger.events import MemberLeft, RebalanceBegan, Record
from steelyard.sim.world import Host, Violation

NOTICED_MS = 2_500
"""Shorter pauses are not given back (`session_clock`)."""

ROUNDING_MS = 10
"""Error of a difference of two readings of a clock, and of its drift during a pause."""


def check_expelled(
    records: Sequence[Record], hosts: Mapping[str, Host], sessions_ms: Mapping[str, int]
) -> None:
    """Check all records of all brokers. Raises Violation.

    `hosts`: by the broker's name; those whose clock was set back are not checked.
    `sessions_ms`: by group.
    """
    began = {
        (record.broker, record.group, record.at)
        for record in records
        if isinstance(record, RebalanceBegan) and "no heartbeat" in record.cause
    }
    kafka_groups = {r.group for r in records if isinstance(r, RebalanceBegan)}
    for record in records:
        if not isinstance(record, MemberLeft) or record.cause != EXPIRED or record.heard is None:
            continue
        place = (record.broker, record.group, record.at)
        if record.group in kafka_groups and place not in began:
            continue
        host, session_ms = hosts[record.broker], sessions_ms[record.group]
        if host.was_set_back:
            continue
        heard, at = (host.clock.true_time(time) for time in (record.heard, record.at))
        silent_ms = record.at - record.heard  # by the broker's clock, as its sessions
        ran_ms = silent_ms - paused_ms(host.pauses, heard, at)
        if ran_ms < session_ms - ROUNDING_MS:
            raise Violation(
                f"{record.client} of {record.group} is expelled by {record.broker}, which ran for"
                f" only {ran_ms} ms of the {silent_ms} ms since it was heard: its session has"
                f" {session_ms} ms"
            )


def paused_ms(pauses: Sequence[tuple[int, int]], begin: int, end: int) -> int:
    """Return the time between two moments in pauses that are long enough to be noticed."""
    total, edge = 0, begin
    for since, until in sorted(pauses):
        if until - since >= NOTICED_MS:
            total += max(0, min(until, end) - max(since, edge))
            edge = max(edge, until)
    return total
