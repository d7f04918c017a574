"""The options of `df.write.format("rocketmq")` and `df.writeStream.format("rocketmq")`.

Names are those of the source where the meaning is the same, and are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from steelyard.errors import MessageError
from steelyard.produce.rules import check_topic
from steelyard.sasl.login import Login
from steelyard.spark.options.access import PLAIN, Access
from steelyard.spark.options.given import Given
from steelyard.spark.options.logins import SASL, login_among
from steelyard.spark.options.table import DEFAULT_GROUP, SINK_OPTIONS, Reads, markdown

__all__ = ["SinkOptions", "read_sink_options"]

__doc__ = f"{__doc__}\n{markdown(SINK_OPTIONS)}\n"

SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The validated options of a write; see the table above.

    `messages_max` is sendBatchSize.
    """

    nameservers: tuple[str, ...]
    topic: str = ""
    """Empty: that of each row."""
    exactly_once: bool = False
    sink_id: str = ""
    """Empty in streams, whose query has an id."""
    batch_id: int = 0
    transaction_timeout_ms: int = 300_000
    producer_group: str = DEFAULT_GROUP
    access: Access = PLAIN
    messages_max: int = 1_000
    timeout_ms: int = 10_000
    retry_timeout_ms: int = 60_000


def read_sink_options(given: Mapping[str, str], writes: Reads) -> SinkOptions:
    """Validate the options. Raises ConfigError that names the wrong one and what is expected."""
    return _Given(given, SINK_OPTIONS, writes, "df.write").options()


class _Given(Given):
    """The options of a write as the user wrote them."""

    def options(self) -> SinkOptions:
        return SinkOptions(
            nameservers=self._nameservers(),
            topic=self._topic(),
            exactly_once=self._exactly_once(),
            sink_id=self._sink_id(),
            batch_id=self._number("batchId", 0, least=0) or 0,
            transaction_timeout_ms=self._number("transactionTimeoutMs", 300_000, 86_400_000) or 0,
            producer_group=self._group("producerGroup") or DEFAULT_GROUP,
            access=replace(self._access(), login=self._login()),
            messages_max=self._number("sendBatchSize", 1_000, 100_000) or 0,
            timeout_ms=self._number("timeoutMs", 10_000, 600_000) or 0,
            retry_timeout_ms=self._number("retryTimeoutMs", 60_000, 86_400_000, least=0) or 0,
        )

    def _topic(self) -> str:
        topic = self._text("topic")
        try:
            if topic:
                check_topic(topic)
        except MessageError as error:
            self._refuse("topic", f"cannot be written to: {error}")
        return topic

    def _exactly_once(self) -> bool:
        exactly_once = self._flag("exactlyOnce", False)
        if exactly_once and self._use == "batch" and not self._text("sinkId"):
            self._refuse(
                "exactlyOnce",
                "is true, but needs the option 'sinkId': a name by which a repeated run of this job"
                " is recognized",
            )
        return exactly_once

    def _login(self) -> Login | None:
        given = [(name, self._text(name)) for name in SASL if self._text(name)]
        if given and not self._flag("exactlyOnce", False):
            self._refuse(given[0][0], "is given, but 'exactlyOnce' is not true")
        return login_among(given)[1]

    def _sink_id(self) -> str:
        sink_id = self._text("sinkId")
        if sink_id and not SINK_ID.fullmatch(sink_id):
            self._refuse(
                "sinkId", f"is {sink_id!r}; it must be 1 to 200 letters, digits and '.', '_', '-'"
            )
        for name in ("sinkId", "batchId"):
            if self._text(name) and not self._flag("exactlyOnce", False):
                self._refuse(name, "is given, but 'exactlyOnce' is not true")
        if self._text("batchId") and not sink_id:
            self._refuse("batchId", "needs the option 'sinkId'")
        return sink_id
