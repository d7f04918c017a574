"""What the API answers: one structure for each kind of answer, and the parts of these.

`openapi` makes the schemas of the API's description from them. Times are in milliseconds since the
epoch, durations in milliseconds; what is unknown is null, never -1 or an empty text.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Dialect = Literal["rocketmq", "kafka"]
ClusterKind = Literal["steelyard", "apache-rocketmq", "apache-kafka"]

GroupKind = Annotated[
    Literal["classic", "consumer", "streams", "share", "rocketmq"],
    msgspec.Meta(
        description="The protocol of a Kafka group: classic, that of KIP-848 (consumer), KIP-1071"
        " (streams) or KIP-932 (share). RocketMQ's groups are rocketmq."
    ),
]

Time = Annotated[int, msgspec.Meta(description="Milliseconds since the epoch.")]
Duration = Annotated[int, msgspec.Meta(description="Milliseconds.")]
QueueKey = Annotated[
    str,
    msgspec.Meta(
        description="A queue: `topic/partition` in Kafka, `topic/broker/queue` in RocketMQ."
    ),
]


class ApiAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Every part of an answer; all of its fields are always there."""


# -- the cluster -----------------------------------------------------------------------------------


class NameserverView(ApiAnswer, frozen=True, kw_only=True):
    """A nameserver of RocketMQ's protocol. `error`: why it does not answer."""

    address: str
    error: str | None


class BrokerView(ApiAnswer, frozen=True, kw_only=True):
    """A broker. `error`: why it does not answer.

    Rates are messages per second since the reading before. `log_bytes`: size of its queues' files.
    `disk_used_ratio`: how full its file system is, 0 to 1.
    """

    name: str
    address: str
    kafka_address: str | None
    version: str | None
    error: str | None
    started_at: Time | None
    in_per_second: float | None
    out_per_second: float | None
    log_bytes: int | None
    disk_used_ratio: float | None


class ClusterView(ApiAnswer, frozen=True, kw_only=True):
    """The cluster, as its servers answered now.

    `kind`: `apache-kafka` is any cluster that is reached by Kafka's protocol. `version`: of
    Steelyard, which serves this API. `allow_changes`: whether requests may change the cluster.
    """

    name: str
    kind: ClusterKind
    allow_changes: bool
    version: str
    nameservers: list[NameserverView]
    brokers: list[BrokerView]


# -- groups ----------------------------------------------------------------------------------------


class GroupLine(ApiAnswer, frozen=True, kw_only=True):
    """A group in the list.

    `state`: as in `GroupPicture`, but some seconds older where members are asked. `protocol`: how
    members share the queues, such as `push orderly`, `classic: range` or `consumer: uniform`.
    `lag`: messages that wait. `oldest_wait_ms`: how long the oldest of them has waited.
    `last_rebalance_at`: when the last rebalance that is known began.
    """

    dialect: Dialect
    kind: GroupKind
    name: str
    state: str
    protocol: str | None
    members: int
    topics: list[str]
    lag: int | None
    oldest_wait_ms: Duration | None
    rebalancing: bool
    last_rebalance_at: Time | None


class GroupsAnswer(ApiAnswer, frozen=True, kw_only=True):
    """All groups, by name. `left_out`: groups beyond the most that are listed."""

    groups: list[GroupLine]
    left_out: int


class SubtopologyTasks(ApiAnswer, frozen=True, kw_only=True):
    """Tasks of one subtopology of a Kafka Streams application, by their partitions."""

    subtopology: str
    partitions: list[int]


class StreamsTasks(ApiAnswer, frozen=True, kw_only=True):
    """What a member of a streams group (KIP-1071) runs, which is a thread of an application.

    `process_id`: of its instance, whose threads share a state directory. `active`: tasks that it
    processes; `standby`: tasks whose state it keeps as a copy; `warmup`: tasks whose state it
    restores, to process them next.
    """

    process_id: str
    active: list[SubtopologyTasks]
    standby: list[SubtopologyTasks]
    warmup: list[SubtopologyTasks]


class MemberView(ApiAnswer, frozen=True, kw_only=True):
    """A member of a group.

    `state`: `stable`, or what it does in a rebalance: `joining`, `waiting` (for others), `revoking`
    (it has to give up queues), `syncing`; `silent`: it does not answer its broker, so that nobody
    knows which queues it reads (RocketMQ only). `waited_for`: the rebalance waits for it, `since`
    that time. `assigned`: number of queues that it reads. `tasks`: of a streams group's member.
    """

    id: str
    client_id: str
    host: str
    version: str | None
    state: str
    waited_for: bool
    since: Time | None
    assigned: int
    tasks: StreamsTasks | None


class GroupQueue(ApiAnswer, frozen=True, kw_only=True):
    """A queue of a group, with who reads it and how far it came.

    `owner`: the member that reads it; `next_owner`: the member that will read it after the
    rebalance, if it is known and another one. `committed`: the offset that the group continues at.
    `end`: the offset of the next message. `wait_ms`: how long the oldest message that is not
    consumed has waited.

    In a share group (KIP-932) members read it together: they are `readers`, and `owner` is null.
    `share_start`: the share-partition start offset, before which everything is done; `lag`: records
    that are still to be delivered or acknowledged, as the group's coordinator counts them.

    In a streams group (KIP-1071) `task` is the task that reads it, such as `1_0`, and `owner` the
    member that runs it; `standbys` and `warmups`: members with a standby or warm-up task of it.
    """

    key: QueueKey
    topic: str
    broker: str | None
    queue: int
    owner: str | None
    next_owner: str | None
    committed: int | None
    end: int | None
    lag: int | None
    wait_ms: Duration | None
    readers: list[str]
    share_start: int | None
    task: str | None
    standbys: list[str]
    warmups: list[str]


class RebalanceNow(ApiAnswer, frozen=True, kw_only=True):
    """The rebalance that a group is in.

    `trigger`: a word for programs; `reason`: what happened, in words; `waits_for`: member ids;
    `text`: all this in one sentence.
    """

    since: Time
    trigger: str
    reason: str
    waits_for: list[str]
    text: str


class SubtopologyView(ApiAnswer, frozen=True, kw_only=True):
    """A part of a topology that is processed without other parts; it has a task per partition.

    Names of topics: which it reads and others write, which it reads from other subtopologies,
    which it writes for them, and which keep its state.
    """

    id: str
    source_topics: list[str]
    repartition_source_topics: list[str]
    repartition_sink_topics: list[str]
    changelog_topics: list[str]


class TopologyView(ApiAnswer, frozen=True, kw_only=True):
    """The topology of a Kafka Streams application, as its members told the coordinator."""

    epoch: int
    subtopologies: list[SubtopologyView]


class GroupPicture(ApiAnswer, frozen=True, kw_only=True):
    """A group as it is now.

    `state`: Kafka's, of a RocketMQ group `Stable`, `Empty`, `Rebalancing` or `Degraded` (a member
    does not answer). `generation`: of a Kafka group, its generation or group epoch.
    `assignment_epoch`: of the assignment that members are to have, in groups with epochs; it is
    less than the group epoch until there is a new assignment. `topology`: of a streams group.
    `warning`: what is wrong although no rebalance is under way, in a sentence.
    """

    dialect: Dialect
    kind: GroupKind
    name: str
    state: str
    protocol: str | None
    generation: int | None
    assignment_epoch: int | None
    topology: TopologyView | None
    members: list[MemberView]
    queues: list[GroupQueue]
    rebalance: RebalanceNow | None
    warning: str | None


# -- history ---------------------------------------------------------------------------------------


class HandoffView(ApiAnswer, frozen=True, kw_only=True):
    """A queue that moved in a rebalance, or stood still (`from` and `to` are the same then).

    `reprocessed`: messages of it passed to an application again, at least; `reprocessed_upper`: at
    most. They are equal if the members report what they passed on; others may have processed any
    number from the one to the other.
    """

    queue: QueueKey
    from_: str | None = msgspec.field(name="from")
    to: str | None
    pause_ms: Duration | None
    reprocessed: int | None
    reprocessed_upper: int | None


class RebalanceView(ApiAnswer, frozen=True, kw_only=True):
    """A rebalance, and what it cost: the figures of `docs/LEDGER.md`.

    `moved`: hand-offs; a queue that changes hands twice counts twice. `pause_ms`: longest pause of
    a queue; `pause_p50_ms`: the median; `stalled_ms`: the longest of the queues that stayed with
    their owner. `reprocessed`: messages passed to an application again, at least;
    `reprocessed_upper`: at most. `spike`: peak backlog divided by the usual one. `confidence`: how
    sure an estimate is; null for what was measured.

    `at`: when it began, which is the last sign of life of a member that died; `noticed_at`: when a
    broker knew of it; `ended_at`: when every member had its share; null if nobody recorded it.
    `took_ms`: from `noticed_at` to `ended_at`.
    """

    id: str
    at: Time
    noticed_at: Time | None
    ended_at: Time | None
    trigger: str
    reason: str
    members_before: list[str]
    members_after: list[str]
    moved: int
    pause_ms: Duration | None
    pause_p50_ms: Duration | None
    stalled_ms: Duration | None
    reprocessed: int | None
    reprocessed_upper: int | None
    spike: float | None
    took_ms: Duration | None
    handoffs: list[HandoffView]
    confidence: str | None


class FlappingView(ApiAnswer, frozen=True, kw_only=True):
    """A member that joins and goes again and again: `joins` times within the last `window_ms`."""

    member: str
    joins: int
    window_ms: Duration


class RebalancesAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The rebalances of a group, the latest first.

    `source`: `ledger` is what Steelyard's brokers recorded; `observed` is what this console has
    seen since it was started. `note`: since when. `incomplete`: which rebalances or figures are
    missing for now, and why, in words; null if none are.
    """

    rebalances: list[RebalanceView]
    flapping: list[FlappingView]
    source: Literal["ledger", "observed"]
    note: str | None
    incomplete: str | None


# -- lag, findings, what if ------------------------------------------------------------------------


class LagHistory(ApiAnswer, frozen=True, kw_only=True):
    """The lag of a group over time, as sampled by this console; the latest sample is the last.

    All lists are as long as `times`. `total`: of all queues; `wait_ms`: how long the oldest message
    had waited.
    """

    times: list[Time]
    total: list[int | None]
    wait_ms: list[Duration | None]
    queues: dict[str, list[int | None]]


class FindingView(ApiAnswer, frozen=True, kw_only=True):
    """Something that keeps a group from working well, and what to do about it."""

    severity: Literal["error", "warning", "info"]
    title: str
    text: str
    what_to_do: str
    queues: list[str]


class FindingsAnswer(ApiAnswer, frozen=True, kw_only=True):
    """What the doctor found; empty for a group in good health."""

    findings: list[FindingView]


class ShareView(ApiAnswer, frozen=True, kw_only=True):
    """The queues that a member would have."""

    id: str
    queues: list[QueueKey]


class WhatIfResult(ApiAnswer, frozen=True, kw_only=True):
    """What a strategy would do.

    `moved`: queues that would have another owner than now. `smallest`, `largest`: number of queues
    of the members with the fewest and the most. `idle`: members without queues. `text`: all this in
    one sentence.
    """

    strategy: str
    members: list[ShareView]
    moved: int
    smallest: int
    largest: int
    idle: int
    text: str


class WhatIf(ApiAnswer, frozen=True, kw_only=True):
    """How each strategy would divide a group's queues. `strategies`: all that fit the group."""

    strategies: list[str]
    results: list[WhatIfResult]


# -- topics and messages ---------------------------------------------------------------------------


class TopicLine(ApiAnswer, frozen=True, kw_only=True):
    """A topic in the list.

    `messages`: those that are kept, as offsets tell. `groups`: those that consume it, or have.
    `internal`: it is used by the servers themselves.
    """

    dialect: Dialect
    name: str
    queues: int
    messages: int | None
    bytes: int | None
    in_per_second: float | None
    groups: list[str]
    internal: bool


class TopicsAnswer(ApiAnswer, frozen=True, kw_only=True):
    """All topics, by name. `left_out`: topics beyond the most that are listed."""

    topics: list[TopicLine]
    left_out: int


class TopicQueue(ApiAnswer, frozen=True, kw_only=True):
    """A queue of a topic: messages from `first` to before `end`, stored from when to when."""

    key: QueueKey
    broker: str | None
    queue: int
    first: int | None
    end: int | None
    first_at: Time | None
    last_at: Time | None


class TopicPicture(ApiAnswer, frozen=True, kw_only=True):
    """A topic. `settings`: by the names of the servers."""

    dialect: Dialect
    name: str
    queues: list[TopicQueue]
    groups: list[str]
    settings: dict[str, str]


class BodyView(ApiAnswer, frozen=True, kw_only=True):
    """The body of a message.

    `text`: if it is UTF-8, at most 64 KiB of it; `json`: whether all of it is JSON. `hex`: its
    first 512 bytes. `size`: of all of it, in bytes. `cut`: `text` is not all of it.
    """

    text: str | None
    json: bool
    hex: str
    size: int
    cut: bool


class BrowsedMessage(ApiAnswer, frozen=True, kw_only=True):
    """A message.

    `key`: a Kafka record's; `keys` and `tag`: a RocketMQ message's. `properties`: of a RocketMQ
    message. `headers`: of a Kafka record, name and value. `size`: bytes of key and body.
    """

    id: str | None
    key: str | None
    keys: list[str]
    tag: str | None
    queue: QueueKey
    offset: int
    stored_at: Time
    born_at: Time | None
    size: int
    properties: dict[str, str]
    headers: list[tuple[str, str | None]]
    body: BodyView | None


class MessagesAnswer(ApiAnswer, frozen=True, kw_only=True):
    """Messages by time. `next`: the value of `from` that continues after them; null at the end."""

    messages: list[BrowsedMessage]
    next: str | None


# -- changes and errors ----------------------------------------------------------------------------


class OffsetChange(ApiAnswer, frozen=True, kw_only=True):
    """A queue whose offset is changed. `before`: null if the group had none, or nobody knows."""

    queue: QueueKey
    before: int | None
    after: int


class ResetResult(ApiAnswer, frozen=True, kw_only=True):
    """The offsets that a reset sets. `dry_run`: nothing was changed."""

    dry_run: bool
    offsets: list[OffsetChange]


class Done(ApiAnswer, frozen=True, kw_only=True):
    """A change was made. `text`: which."""

    text: str


class ApiError(ApiAnswer, frozen=True, kw_only=True):
    """Why a request failed, in one sentence: what was wrong, what would be right."""

    error: str
