"""How long the messages of each topic are kept: the broker's setting, unless the topic has settings of its own.

They are Kafka's (retention.ms, retention.bytes, cleanup.policy), are set through the Kafka door, and hold without it as well.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.nodes.broker.topics import Topics
from steelyard.store.store import Retention


def retentions(topics: Topics, usual_ms: int) -> Callable[[str], Retention]:
    """The retention of a topic by name. `usual_ms`: of topics without one of their own; 0 keeps all."""
    usual = Retention(usual_ms or -1)

    def of(name: str) -> Retention:
        topic = topics.get(name)
        if topic is None or not topic.attributes:
            return usual
        settings = topic.attributes
        if "delete" not in settings.get("cleanup.policy", "delete"):
            return Retention(-1)
        return Retention(
            _number(settings.get("retention.ms"), usual.ms),
            _number(settings.get("retention.bytes"), -1),
        )

    return of


def _number(text: str | None, usual: int) -> int:
    try:
        return usual if text is None else int(text)
    except ValueError:
        return usual  # a stranger wrote it there
