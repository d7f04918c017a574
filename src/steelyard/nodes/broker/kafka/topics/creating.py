"""19 CreateTopics (versions 2-7) and 37 CreatePartitions (0-3): new topics, further partitions.

- Each topic of a request succeeds or fails on its own.
- -1 stands for the broker's default. A replication factor above 1 is accepted if there are as many
  brokers, as in Kafka, but partitions have one replica, and the answer says so.
- Assignments: the first broker named for a partition leads it.
- Partitions of a new topic are spread over the live brokers in contiguous runs; further partitions
  come after them.
- `timeout_ms` is ignored: the answer is sent when all live brokers have the topics, or their calls
  have timed out.
Source: metadata/controller/ReplicationControlManager.java createTopic, createPartitions;
ControllerApis.scala.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from steelyard.errors import ConfigError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.cluster.changes import Changes, Faults
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.topic import KafkaTopic
from steelyard.nodes.broker.kafka.cluster.topic_names import name_fault
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.topics import QUEUES_MAX
from steelyard.nodes.seam import Effect
from steelyard.routes import layout as layouts
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.configs import TOPIC_CONFIG
from steelyard.wire.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from steelyard.wire.kafka.schema import NO_ID, ApiMessage

Asked = TypeVar("Asked", CreatableTopic, CreatePartitionsTopic)

Outcomes = dict[str, KafkaTopic | RequestRefused]
"""By name: the topic as it is to be, or why it is refused."""

Created = Sequence[CreatableTopicResult]


class Creating:
    """Handlers of CreateTopics and CreatePartitions."""

    def __init__(self, cluster: Cluster, changes: Changes, durability: Durability) -> None:
        self._durability = durability
        self._cluster = cluster
        self._changes = changes

    # -- topics ----------------------------------------------------------------------------------

    @serves(CreateTopicsRequest)
    def create_topics(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(CreateTopicsRequest)

        def answer(results: Created, now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, CreateTopicsResponse(topics=results), effects)

        self.create(message, answer, now, effects)
        return None

    def create(
        self,
        message: CreateTopicsRequest,
        then: Callable[[Created, int, list[Effect]], None],
        now: int,
        effects: list[Effect],
    ) -> None:
        """Create topics; `then` gets the result of each. Only for the controller."""

        def answer(outcomes: Outcomes, now: int, effects: list[Effect]) -> None:
            is_made = not message.validate_only
            results = [
                _topic_refused(name, outcome)
                if isinstance(outcome, RequestRefused)
                else self._created(outcome, is_made=is_made)
                for name, outcome in outcomes.items()
            ]
            then(results, now, effects)

        outcomes = _outcomes(message.topics, self._planned)
        self._put(outcomes, answer, now, effects, is_trial=message.validate_only)

    def _planned(self, asked: CreatableTopic) -> KafkaTopic:
        """Return the topic to create. Raises RequestRefused."""
        name = asked.name
        if self._cluster.topic(name) is not None:
            raise RequestRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        fault = name_fault(self._cluster, name)
        if fault is not None:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        readers = self._cluster.readers
        try:
            settings = {each.name: readers.read(each.name, each.value) for each in asked.configs}
            readers.check_all(settings)
        except ConfigError as error:
            raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if asked.assignments:
            return self._assigned(asked, settings)
        factor = asked.replication_factor
        if factor < -1 or factor == 0:
            text = "Replication factor must be larger than 0, or -1 to use the default value."
            raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        if asked.num_partitions < -1 or asked.num_partitions == 0:
            text = "Number of partitions was set to an invalid non-positive value."
            raise RequestRefused(ErrorCode.INVALID_PARTITIONS, text)
        live = len(self._cluster.live_brokers())
        if factor > live:
            raise RequestRefused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {factor} time(s): The target replication factor"
                f" of {factor} cannot be reached because only {live} broker(s) are registered.",
            )
        _check_partitions(asked.num_partitions, live)
        return self._changes.plans.new_topic(name, asked.num_partitions, settings)

    def _assigned(self, asked: CreatableTopic, settings: dict[str, str]) -> KafkaTopic:
        """Return a topic whose partitions are assigned to brokers. Raises RequestRefused."""
        for value, what in (
            (asked.replication_factor, "replication factor"),
            (asked.num_partitions, "numPartitions"),
        ):
            if value != -1:
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        brokers = {item.partition_index: item.broker_ids for item in asked.assignments}
        if len(brokers) < len(asked.assignments):
            text = "Found multiple manual partition assignments for one partition"
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        if sorted(brokers) != list(range(len(brokers))):
            text = "partitions should be a consecutive 0-based integer sequence"
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        leaders = [self._leader(brokers[partition]) for partition in sorted(brokers)]
        _check_partitions(max(Counter(leaders).values()), 1)
        topic = self._changes.plans.new_topic(asked.name, len(leaders), settings)
        return replace(topic, layout=layouts.of_brokers(leaders))

    def _leader(self, broker_ids: Sequence[int]) -> str:
        """Return the name of the broker that is to lead a partition. Raises RequestRefused."""
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if not broker_ids:
            raise RequestRefused(
                code, "The manual partition assignment includes an empty replica list."
            )
        if len(set(broker_ids)) < len(broker_ids):
            raise RequestRefused(code, "The manual partition assignment includes a broker twice.")
        brokers = [self._cluster.live(node_id) for node_id in broker_ids]
        for node_id, broker in zip(broker_ids, brokers, strict=True):
            if broker is None:
                text = (
                    f"The manual partition assignment includes broker {node_id}, but no such broker"
                    " is registered."
                )
                raise RequestRefused(code, text)
        assert brokers[0] is not None
        return brokers[0].name

    def _created(self, topic: KafkaTopic, *, is_made: bool) -> CreatableTopicResult:
        known = self._cluster.readers.known
        configs = [
            CreatableTopicConfigs(
                name,
                topic.settings.get(name, known[name].value),
                config_source=TOPIC_CONFIG if name in topic.settings else known[name].source,
            )
            for name in sorted(known)
        ]
        topic_id = topic.topic_id if is_made else NO_ID
        return CreatableTopicResult(
            topic.name, topic_id, 0, None, 0, topic.layout.partitions, 1, configs
        )

    # -- partitions ------------------------------------------------------------------------------

    @serves(CreatePartitionsRequest)
    def create_partitions(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(CreatePartitionsRequest)

        def answer(outcomes: Outcomes, now: int, effects: list[Effect]) -> None:
            results = [
                CreatePartitionsTopicResult(name, outcome.code, outcome.text)
                if isinstance(outcome, RequestRefused)
                else CreatePartitionsTopicResult(name)
                for name, outcome in outcomes.items()
            ]
            self._durability.answer(call, CreatePartitionsResponse(results=results), effects)

        outcomes = _outcomes(message.topics, self._grown)
        self._put(outcomes, answer, now, effects, is_trial=message.validate_only)
        return None

    def _grown(self, asked: CreatePartitionsTopic) -> KafkaTopic:
        """Return the topic with its new partitions. Raises RequestRefused."""
        topic = self._cluster.topic(asked.name)
        if topic is None:
            text = "This server does not host this topic-partition."
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if topic.is_fixed:
            text = (
                f"Partitions of {asked.name} determine who coordinates what and cannot be changed."
            )
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        have = topic.layout.partitions
        if asked.count == have:
            raise RequestRefused(
                ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
            )
        if asked.count < have:
            raise RequestRefused(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {asked.name} currently has {have} partition(s);"
                f" {asked.count} would not be an increase.",
            )
        more = asked.count - have
        if asked.assignments is None:
            _check_partitions(asked.count, len(self._cluster.live_brokers()))
            extents = self._changes.plans.more_partitions(topic, asked.count)
        else:
            if len(asked.assignments) != more:
                raise RequestRefused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Attempted to add {more} additional partition(s), but only"
                    f" {len(asked.assignments)} assignment(s) were specified.",
                )
            leaders = [self._leader(item.broker_ids) for item in asked.assignments]
            _check_partitions(have + max(Counter(leaders).values()), 1)
            extents = list(layouts.of_brokers(leaders).extents)
        return replace(topic, layout=topic.layout.grown(extents))

    # -- both ------------------------------------------------------------------------------------

    def _put(
        self,
        outcomes: Outcomes,
        answer: Callable[[Outcomes, int, list[Effect]], None],
        now: int,
        effects: list[Effect],
        *,
        is_trial: bool,
    ) -> None:
        """Make the planned changes unless this is a trial, then answer with all outcomes."""
        planned = [topic for topic in outcomes.values() if not isinstance(topic, RequestRefused)]

        def then(faults: Faults, now: int, effects: list[Effect]) -> None:
            outcomes.update((name, RequestRefused(*fault)) for name, fault in faults.items())
            answer(outcomes, now, effects)

        if is_trial or not planned:
            then({}, now, effects)
        else:
            self._changes.put(planned, then, now, effects)


def _outcomes(asked: Sequence[Asked], plan: Callable[[Asked], KafkaTopic]) -> Outcomes:
    """Return what each topic is to become, in request order. `plan` raises RequestRefused."""
    times = Counter(each.name for each in asked)
    outcomes: Outcomes = {}
    for each in asked:
        try:
            if times[each.name] > 1:
                raise RequestRefused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            outcomes[each.name] = plan(each)
        except RequestRefused as error:
            outcomes[each.name] = error
    return outcomes


def _topic_refused(name: str, refused: RequestRefused) -> CreatableTopicResult:
    return CreatableTopicResult(name, NO_ID, refused.code, refused.text, configs=())


def _check_partitions(partitions: int, brokers: int) -> None:
    if partitions > QUEUES_MAX * brokers:
        text = f"{partitions} partitions; a broker takes at most {QUEUES_MAX} of a topic"
        raise RequestRefused(ErrorCode.INVALID_PARTITIONS, text)
