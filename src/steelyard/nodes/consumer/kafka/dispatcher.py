"""Accepts the application's calls, and answers them (see `contract`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from steelyard.config import KafkaConsumerConfig
from steelyard.errors import (
    AuthenticationError,
    CallTimeoutError,
    ClosedError,
    ConfigError,
    KafkaError,
    SteelyardError,
)
from steelyard.nodes.calls.kafka import KafkaCalls
from steelyard.nodes.consumer.kafka import contract
from steelyard.nodes.consumer.kafka.commits import AUTOMATIC, CLOSING, LEAVE_MS_MAX, Commits
from steelyard.nodes.consumer.kafka.coordinator import CoordinatorSearch
from steelyard.nodes.consumer.kafka.held import Holdings
from steelyard.nodes.consumer.kafka.lookups import Lookups
from steelyard.nodes.consumer.kafka.membership import Membership
from steelyard.nodes.consumer.kafka.metadata import Metadata
from steelyard.nodes.consumer.kafka.progress import Progress
from steelyard.nodes.seam import Answer, Call, Effect
from steelyard.types import LogLine, TopicPartition
from steelyard.wire.kafka.errors import code_name

STOP_MS_MAX = 30_000
"""Limit of the duration of a clean stop (KafkaConsumer.close without a timeout)."""

LATER = object()
"""Placeholder for an answer that comes later."""


class _Polling:
    """A poll that waits for records."""

    def __init__(self, call_id: int, poll: contract.Poll, now: int) -> None:
        self.call_id = call_id
        self.number = poll.number
        self.records_max = poll.records_max
        self.deadline = now + poll.timeout_ms


class _Waiting:
    """A call that waits for information: the position in a partition, or a topic's partitions."""

    def __init__(self, call_id: int, what: TopicPartition | str, deadline: int) -> None:
        self.call_id = call_id
        self.what = what
        self.deadline = deadline


class Dispatcher:
    """Calls of the application that wait, and their answers."""

    def __init__(
        self,
        config: KafkaConsumerConfig,
        calls: KafkaCalls[object],
        metadata: Metadata,
        coordinator: CoordinatorSearch,
        holdings: Holdings,
        lookups: Lookups,
        commits: Commits,
        membership: Membership,
        progress: Progress,
    ) -> None:
        self.stopped = False
        self._config = config
        self._calls = calls
        self._metadata = metadata
        self._coordinator = coordinator
        self._holdings = holdings
        self._lookups = lookups
        self._commits = commits
        self._membership = membership
        self._progress = progress
        self._polling: _Polling | None = None
        self._polled = 0
        """The number of the poll answered last."""
        self._waiting: list[_Waiting] = []
        self._leavers: list[int] = []
        """Calls to be answered once the group has been left."""
        self._stop: tuple[int, int] | None = None
        """Call id and deadline of a stop."""
        self._commits_until = 0
        """Until when the stop of a consumer without a group waits for the application's commits."""
        self._refusal: AuthenticationError | None = None
        self._takers: Mapping[type[Call[object]], Callable[..., object]] = {
            contract.Subscribe: self._subscribe,
            contract.Assign: self._assign,
            contract.Poll: self._poll,
            contract.GiveBack: self._give_back,
            contract.Commit: self._commit,
            contract.FetchCommitted: self._ask_committed,
            contract.ListOffsets: self._list_offsets,
            contract.Position: self._position,
            contract.Seek: self._seek,
            contract.SeekToEnd: self._seek_to_end,
            contract.Pause: self._pause,
            contract.Resume: self._resume,
            contract.Paused: lambda *_: self._holdings.paused(),
            contract.Assignment: lambda *_: self._holdings.partitions(),
            contract.PartitionsFor: self._partitions_for,
            contract.Describe: lambda *_: self._membership.describe(),
            contract.Rejoin: self._rejoin,
            contract.Stop: self._begin_stop,
        }

    def take(self, call_id: int, call: object, now: int, effects: list[Effect]) -> None:
        """Accept a call."""
        assert isinstance(call, Call), f"a Kafka consumer cannot answer {call!r}"
        try:
            result = self._takers[type(call)](call_id, call, now, effects)
        except SteelyardError as error:
            result = error
        if result is not LATER:
            effects.append(Answer(call_id, result))

    def topics(self) -> Iterable[str]:
        """Return the topics that must be known."""
        return [waiting.what for waiting in self._waiting if isinstance(waiting.what, str)]

    @property
    def due(self) -> int | None:
        """Return when to call `act` again."""
        times = [waiting.deadline for waiting in self._waiting]
        if self._polling is not None and not self._membership.withholds:
            times.append(self._polling.deadline)
        if self._stop is not None:
            times += [self._stop[1], self._commits_until or self._stop[1]]
        return min(times, default=None)

    def act(self, now: int, effects: list[Effect]) -> None:
        """Answer the calls that can be answered."""
        self._answer_poll(now, effects)
        self._answer_waiting(now, effects)
        if now >= self._commits_until:
            self._commits_until = 0
        commits = self._commits
        waits = commits.waits(CLOSING) or (commits.pending and self._commits_until)
        if not self._membership.leaving and not waits:
            effects += [Answer(call_id, None) for call_id in self._leavers]
            self._leavers.clear()
            if self._stop is not None:
                self._end_stop(effects)
        elif self._stop is not None and now >= self._stop[1]:
            effects.append(LogLine("WARNING", "the consumer closes without leaving its group"))
            self._end_stop(effects)

    # -- what is read ------------------------------------------------------------------------------

    def _subscribe(
        self, call_id: int, call: contract.Subscribe, now: int, effects: list[Effect]
    ) -> object:
        membership = self._membership
        if not call.topics and not call.pattern:
            self._metadata.match(None)
            if not membership.active:
                self._holdings.drop(self._holdings.partitions())
                return None
            self._holdings.poll_began()  # as in a close, what polls returned is consumed
            membership.leave("the consumer unsubscribed from all topics")
            self._leavers.append(call_id)
            return LATER
        if not self._config.group_id:
            raise ConfigError("a subscription needs a group; give group_id='...', or assign(...)")
        if not membership.active and self._holdings.by_partition:
            raise ConfigError("partitions were assigned; unsubscribe() first")
        if membership.leaving:
            raise ConfigError("the consumer is leaving its group; wait for unsubscribe()")
        try:
            self._metadata.match(re.compile(call.pattern) if call.pattern else None)
        except re.error as error:
            raise ConfigError(f"pattern {call.pattern!r}: {error}") from None
        membership.subscribe(call.topics, now, effects)
        return None

    def _assign(
        self, call_id: int, call: contract.Assign, now: int, effects: list[Effect]
    ) -> object:
        if self._membership.active:
            raise ConfigError("topics were subscribed to; unsubscribe() first")
        gone = set(self._holdings.by_partition) - set(call.partitions)
        self._progress.commit_consumed(AUTOMATIC, tuple(sorted(gone)), now)
        self._holdings.drop(gone)
        self._holdings.hold(call.partitions)
        self._coordinator.wanted = bool(self._config.group_id)
        return None

    def _partitions_for(
        self, call_id: int, call: contract.PartitionsFor, now: int, effects: list[Effect]
    ) -> object:
        return self._wait(call_id, call.topic, now)

    def _rejoin(
        self, call_id: int, call: contract.Rejoin, now: int, effects: list[Effect]
    ) -> object:
        if not self._membership.active:
            raise ConfigError("no topics are subscribed to: there is no group to rebalance")
        if self._config.group_protocol == "consumer":
            raise ConfigError(
                "group_protocol is 'consumer': the coordinator decides when a group rebalances"
            )
        self._membership.rejoin(call.reason, now, effects)
        return None

    # -- records -----------------------------------------------------------------------------------

    def _poll(self, call_id: int, call: contract.Poll, now: int, effects: list[Effect]) -> object:
        if self._polling is not None:
            raise ConfigError("another poll is in progress; one thread or task polls at a time")
        if self._stop is None and not self._membership.active and not self._holdings.by_partition:
            raise ConfigError("nothing to read; subscribe(...) or assign(...) first")
        self._holdings.poll_began()
        self._membership.poll_began(now, effects)
        self._polling = _Polling(call_id, call, now)
        return LATER

    def _answer_poll(self, now: int, effects: list[Effect]) -> None:
        polling = self._polling
        if polling is None or self._membership.withholds:
            return
        result: object
        try:
            self._raise_failure(now)
            result = self._holdings.take(polling.records_max)
        except SteelyardError as error:
            result = error
        if result == () and now < polling.deadline:
            return
        self._polling = None
        self._polled = polling.number
        self._membership.poll_ended(now, effects)
        effects.append(Answer(polling.call_id, result))

    def refused(self, error: AuthenticationError) -> None:
        """Note that a login was refused: the next poll, and calls that wait, raise the error."""
        self._refusal = error

    def _raise_failure(self, now: int) -> None:
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        error = self._membership.take_failure(now)
        if error is not None:
            raise error
        for topic in sorted(self._metadata.errors):
            code = self._metadata.errors[topic]
            raise KafkaError(code, f"topic {topic!r}: {code_name(code)}")

    def _give_back(
        self, call_id: int, call: contract.GiveBack, now: int, effects: list[Effect]
    ) -> object:
        if self._polling is not None and self._polling.number == call.number:
            effects.append(Answer(self._polling.call_id, ()))
            self._polling = None
            self._membership.poll_ended(now, effects)
        elif self._polled == call.number:
            self._holdings.give_back()
        return None

    # -- positions ---------------------------------------------------------------------------------

    def _position(
        self, call_id: int, call: contract.Position, now: int, effects: list[Effect]
    ) -> object:
        self._holdings.of(call.partition)
        return self._wait(call_id, call.partition, now)

    def _seek(self, call_id: int, call: contract.Seek, now: int, effects: list[Effect]) -> object:
        if call.offset < 0:
            raise ConfigError(f"offset {call.offset}; it must be 0 or more")
        self._holdings.of(call.partition).move(call.offset)
        return None

    def _seek_to_end(
        self, call_id: int, call: contract.SeekToEnd, now: int, effects: list[Effect]
    ) -> object:
        for held in self._holdings.chosen(call.partitions):
            held.move(None, call.timestamp)
        return None

    def _pause(self, call_id: int, call: contract.Pause, now: int, effects: list[Effect]) -> object:
        for held in [self._holdings.of(partition) for partition in call.partitions]:
            held.paused = True
        return None

    def _resume(
        self, call_id: int, call: contract.Resume, now: int, effects: list[Effect]
    ) -> object:
        for held in [self._holdings.of(partition) for partition in call.partitions]:
            held.paused = False
        return None

    def _list_offsets(
        self, call_id: int, call: contract.ListOffsets, now: int, effects: list[Effect]
    ) -> object:
        if not call.timestamps:
            return {}
        self._lookups.ask(call_id, call.timestamps, now)
        return LATER

    def _wait(self, call_id: int, what: TopicPartition | str, now: int) -> object:
        deadline = now + self._config.default_api_timeout_ms
        self._waiting.append(_Waiting(call_id, what, deadline))
        return LATER

    def _answer_waiting(self, now: int, effects: list[Effect]) -> None:
        still = []
        refusal = self._refusal
        if self._waiting:
            self._refusal = None
        for waiting in self._waiting:
            try:
                if refusal is not None:
                    raise refusal
                result = self._known(waiting.what)
            except SteelyardError as error:
                result = error
            if result is LATER and now >= waiting.deadline:
                text = "no broker answered within the time-out"
                trouble = self._metadata.trouble
                result = CallTimeoutError(f"{text}: {trouble}" if trouble else text)
            if result is LATER:
                still.append(waiting)
            else:
                effects.append(Answer(waiting.call_id, result))
        self._waiting = still

    def _known(self, what: TopicPartition | str) -> object:
        if isinstance(what, TopicPartition):
            held = self._holdings.of(what)
            if held.fault is not None:
                fault, held.fault = held.fault, None
                raise fault
            return LATER if held.position is None else held.position
        if not self._metadata.knows((what,)):
            return LATER
        numbers = self._metadata.topics.get(what, ())
        return tuple(TopicPartition(what, number) for number in sorted(numbers))

    # -- commits -----------------------------------------------------------------------------------

    def _needs_group(self) -> None:
        if not self._config.group_id:
            raise ConfigError("commits need a group; give group_id='...'")
        self._coordinator.wanted = True

    def _commit(
        self, call_id: int, call: contract.Commit, now: int, effects: list[Effect]
    ) -> object:
        self._needs_group()
        return LATER if self._progress.commit(call_id, call, now) else None

    def _ask_committed(
        self, call_id: int, call: contract.FetchCommitted, now: int, effects: list[Effect]
    ) -> object:
        self._needs_group()
        if not call.partitions:
            return {}
        self._lookups.ask(call_id, dict.fromkeys(call.partitions), now)
        return LATER

    # -- the end -----------------------------------------------------------------------------------

    def _begin_stop(
        self, call_id: int, call: contract.Stop, now: int, effects: list[Effect]
    ) -> object:
        if self._stop is not None:
            raise ClosedError("the consumer is being closed already")
        self._stop = (call_id, now + STOP_MS_MAX)
        if self._polling is not None:
            effects.append(Answer(self._polling.call_id, ()))
            self._polling = None
        elif call.returned:
            self._holdings.poll_began()
        for partition, offset in call.unread.items():
            held = self._holdings.by_partition.get(partition)
            if held is not None and call.returned:
                held.consumed = offset
        if self._membership.active and not self._leavers:
            self._membership.leave("the consumer is being closed")
        elif not self._membership.active:
            self._progress.commit_consumed(CLOSING, self._holdings.partitions(), now)
            self._commits_until = now + LEAVE_MS_MAX
        return LATER

    def _end_stop(self, effects: list[Effect]) -> None:
        assert self._stop is not None
        self.stopped = True
        closed = ClosedError("the consumer was closed")
        effects += [Answer(waiting.call_id, closed) for waiting in self._waiting]
        self._calls.hang_up_all(effects)
        effects.append(Answer(self._stop[0], None))
