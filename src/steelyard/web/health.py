"""Whether a cluster serves its clients: what `/readyz` says."""

from __future__ import annotations

from steelyard.printable import printable
from steelyard.web.reading import ClusterReading
from steelyard.wording import counted

NAMED_MAX = 10
"""Groups without a coordinator that are named."""


def missing(reading: ClusterReading) -> list[str]:
    """Return what is missing, one sentence each; empty if every server is there.

    Needed are all nameservers, all brokers that a nameserver lists or the settings name, and each
    Kafka listener among them.
    """
    found = [
        f"nameserver {address}: {error}" for address, error in reading.nameservers.items() if error
    ]
    wanted = [each for each in reading.brokers if each.is_wanted]
    if not wanted:
        found.append("no nameserver lists a broker")
    for each in wanted:
        if each.error:
            found.append(f"broker {each.name}: {each.error}{_orphans(each.orphans)}")
        elif each.kafka is not None and not each.kafka.ready:
            found.append(f"broker {each.name}: does not serve Kafka's clients yet")
    return found


def _orphans(groups: tuple[str, ...]) -> str:
    """Return which Kafka groups have no coordinator meanwhile; an empty text if there are none."""
    if not groups:
        return ""
    named = ", ".join(map(printable, groups[:NAMED_MAX]))
    more = f" and {len(groups) - NAMED_MAX} more" if len(groups) > NAMED_MAX else ""
    return f"; {counted(len(groups), 'Kafka group')} without a coordinator: {named}{more}"
