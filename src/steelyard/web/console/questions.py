"""What requests may ask: the parameters of paths and queries, and the bodies of changes.

Each operation has one structure with all its parameters; names, bounds and defaults are read from
it by the API and by its description. A field without a default must be given.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from steelyard.web.console.answers import Dialect

NAME_MAX = 255
"""Longest name of a group, topic or queue; both dialects allow less."""

LIST_MAX = 200
"""Most rebalances or messages in one answer."""

MEMBERS_MAX = 1_000
"""Most members that a what-if is computed for."""

MINUTES_MAX = 120
"""Longest time that a history of lag may be asked of."""

_DATE = (
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|[12][0-9]))"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?"
_ZONE = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_ROW = "[!-+\\--<>-~]{1,300}=[0-9]{1,18}"
_CURSOR = f"next:{_ROW}(,{_ROW})*"
PLACE = f"^(earliest|latest|[0-9]{{1,16}}|{_DATE}([T ]{_TIME}{_ZONE}?)?|{_CURSOR})$"
"""Where browsing of messages may begin; see `places`."""

Strategy = Literal[
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "MACHINE_ROOM_NEARBY-AVG",
    "MACHINE_ROOM",
    "CONFIG",
    "EVEN",
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "uniform",
    "even",
]
"""Strategies of RocketMQ groups, and assignors of Kafka groups."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MAX)]
Filter = Annotated[str, msgspec.Meta(max_length=1_000)]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one operation."""


class NoQuestion(Question, frozen=True, kw_only=True):
    """An operation without parameters."""


class GroupQuestion(Question, frozen=True, kw_only=True):
    """A group."""

    dialect: Dialect
    group: Name


class RebalancesQuestion(GroupQuestion, frozen=True, kw_only=True):
    """The latest rebalances of a group."""

    limit: Annotated[
        int, msgspec.Meta(ge=1, le=LIST_MAX, description="Most rebalances that are returned.")
    ] = 50


class LagQuestion(GroupQuestion, frozen=True, kw_only=True):
    """The lag of a group over the last minutes."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=MINUTES_MAX, description="How far back.")] = 60


class WhatIfQuestion(GroupQuestion, frozen=True, kw_only=True):
    """How strategies would divide a group's queues."""

    members: (
        Annotated[
            int,
            msgspec.Meta(
                ge=1,
                le=MEMBERS_MAX,
                description="Number of members: those that there are, in the order of their ids,"
                " then new ones. Default: as many as there are.",
            ),
        ]
        | None
    ) = None
    strategy: (
        Annotated[Strategy, msgspec.Meta(description="Only this one. Default: all that fit.")]
        | None
    ) = None


class TopicQuestion(Question, frozen=True, kw_only=True):
    """A topic."""

    dialect: Dialect
    topic: Name


class MessagesQuestion(Question, frozen=True, kw_only=True):
    """Messages of a topic, or of one of its queues."""

    dialect: Dialect
    topic: Name
    queue: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=2 * NAME_MAX,
                description="Key of a queue. Default: all queues.",
            ),
        ]
        | None
    ) = None
    from_: Annotated[
        str,
        msgspec.Meta(
            pattern=PLACE,
            max_length=16_000,
            description="Where to begin: `earliest`, `latest` (the last messages), an offset, a"
            " time (ISO 8601, or milliseconds since the epoch, which have 12 digits or more), or"
            " `next` of the answer before.",
        ),
    ] = msgspec.field(name="from", default="latest")
    key: Filter | None = None
    tag: Filter | None = None
    limit: Annotated[
        int, msgspec.Meta(ge=1, le=LIST_MAX, description="Most messages that are returned.")
    ] = 50


class EventsQuestion(Question, frozen=True, kw_only=True):
    """The events of a cluster, and of one group."""

    group: (
        Annotated[
            str,
            msgspec.Meta(
                pattern="^(rocketmq|kafka)/",
                max_length=NAME_MAX + 10,
                description="Also of this group: `kafka/NAME` or `rocketmq/NAME`.",
            ),
        ]
        | None
    ) = None


# -- bodies ----------------------------------------------------------------------------------------


class ResetOffsets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Make a group continue elsewhere in all queues of a topic.

    `to`: `earliest`, `latest`, or a time in milliseconds since the epoch. `dry_run`: only say what
    would change.
    """

    topic: Name
    to: Literal["earliest", "latest"] | Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    dry_run: bool = True


class CreateTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Create a topic. `queues`: on each broker in RocketMQ, in all in Kafka."""

    dialect: Dialect
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=249, pattern="^[A-Za-z0-9._-]+$")]
    queues: Annotated[int, msgspec.Meta(ge=1, le=1_000)]
