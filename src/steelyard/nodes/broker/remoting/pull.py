"""11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE: messages of a queue from an offset on, now or later.

361 is the same request from lite pull consumers of 5.x. 15 UPDATE_CONSUMER_OFFSET is received here
as well: after the commit (`offsets`), the waiting pulls of a Steelyard member that gives the queue
up are answered. The first pull of a queue's new owner may wait for the old one (`handovers`).

A pull is refused, in RocketMQ's order, if

- the group must not consume (16),
- the topic does not exist (17) or must not be read (16),
- the queue does not exist (29),
- the subscription that comes with the pull (`PullFlag.SUBSCRIPTION`) has an expression by which the
  broker does not filter (1), or that cannot be parsed (23),
- no subscription comes with the pull, and the group is unknown (24), broadcasts although it must
  not (16), does not subscribe to the topic (24), or has an older version of the subscription than
  the pull expects (25), or the expression is one by which the broker does not filter (1), or that
  could not be parsed (27).

Otherwise the answer depends on the offset: 0 with messages; 20 if the filter rejects those that
were examined; 19 at the end, or at offset 0 of an empty queue, after waiting if the peer allows it
(`PullFlag.SUSPEND`); 21 with a better offset elsewhere. A waiting pull is examined again with every
message appended to its queue; after its deadline it gets 19. If messages are damaged on the disk,
the answer is 1, after REFUSED_MS if the pull may wait. A change of the group, the topic or the
member's subscription may end a wait: see `changed` and `refiltered`.

What Kafka's producers wrote is converted (`conversion`), up to the last stable offset; a pull
without a filter may ask for it as it is stored (`takes_batches`). A pull that takes long waits for
its turn (`turns`). A message that does not fit into a frame is skipped (`skipped`).

Differences from RocketMQ: a member is judged by its own subscription, not by the group's latest; an
offset beyond the end is sent to the end (as in 5.x; 4.x sends it to 0 in a young queue).
Source: broker/processor/PullMessageProcessor.java, PullRequestHoldService.java,
store/DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from steelyard.conversion.messages import CONVERT_EFFORT
from steelyard.errors import ProtocolError, StorageError
from steelyard.groups.remoting.registry import BROADCASTING
from steelyard.groups.remoting.subscriptions import ALL, Filter, is_tag, parse
from steelyard.ledger.events import Delivered
from steelyard.nodes.broker.conversion.to_rocketmq import Batches, Conversion
from steelyard.nodes.broker.filters import not_filtering, read_matching
from steelyard.nodes.broker.parked import Parked, Queue
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.checked_pull import CheckedPull
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.handovers import Handovers
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets, OffsetHandlers
from steelyard.nodes.broker.remoting.renewals import Renewals
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, no_topic, serves
from steelyard.nodes.broker.turns import AT_ONCE, SLICE
from steelyard.nodes.seam import Effect, Link, Send, earliest
from steelyard.store.log import Log
from steelyard.store.reads import Slice
from steelyard.types import Effort
from steelyard.wire.remoting.bodies import SubscriptionGroupConfig
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag, SysFlag
from steelyard.wire.remoting.frame import ANSWER_BYTES_MAX, too_large
from steelyard.wire.remoting.headers import (
    PullMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from steelyard.wire.remoting.names import FAQ, PERM_READ

COMMIT_OFFSET = int(PullFlag.COMMIT_OFFSET)
SUSPEND = int(PullFlag.SUSPEND)
SUBSCRIPTION = int(PullFlag.SUBSCRIPTION)
CLASS_FILTER = int(PullFlag.CLASS_FILTER)
BORN_HOST_V6 = int(SysFlag.BORN_HOST_V6)

_SYS_FLAG = struct.Struct(">i")
_STORED = struct.Struct(">q")

SLOT_MS = 50
"""Deadlines of waiting pulls are rounded up to this."""
REFUSED_MS = 1_000
"""How long a pull that may wait does so if messages cannot be read.

The C++ client repeats a pull as soon as it is refused.
"""
AT_ONCE_ROWS = 1_024
"""Index rows examined for tags before a pull waits for its turn, some 150 µs of work."""


class Pulls:
    """The pulls of this broker, above all those that wait; see the module docstring."""

    def __init__(
        self,
        parts: Parts,
        groups: SubscriptionGroups,
        committed: CommittedOffsets,
        offsets: OffsetHandlers,
        handovers: Handovers,
        renewals: Renewals,
        conversion: Conversion,
    ) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._groups = groups
        self._registry = parts.registry
        self._committed = committed
        self._offsets = offsets
        self.handovers = handovers
        self.renewals = renewals
        self._ledger = parts.ledger
        self._durability = parts.durability
        self._statistics = parts.statistics
        self._turns = parts.turns
        self.parked: Parked[CheckedPull] = Parked(parts.config.hold_waiting_max, SLOT_MS)
        self._conversion = conversion

    # -- requests --------------------------------------------------------------------------------

    @serves(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
    def pull(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        header = request.header(PullMessageRequestHeader)
        try:
            pull = self._checked(request, header, now)
        except Refusal as refusal:
            if refusal.code != ResponseCode.SUBSCRIPTION_NOT_LATEST or not self.renewals.wait(
                request, header.consumer_group, now, effects
            ):
                raise
            return None
        key, link = pull.key, pull.link
        self.handovers.asked(key, link, now)
        if (
            header.sys_flag & COMMIT_OFFSET
            and header.commit_offset >= 0
            and not self.handovers.is_echo(key, link, header.commit_offset)
        ):
            self._offsets.store(*key, header.commit_offset, request.peer, now)
        if header.handed_ms is not None:
            self._ledger.handed_over(
                pull.group, pull.topic, pull.queue_id, request.peer, header.handed_ms, now
            )
        start = self._begin(pull, now)
        if start is None:
            self._wait_for_owner(pull, effects)
            return None
        if start != pull.offset:
            return self._moved_on(pull, start)
        answer = self._attempt(pull, now, Effort(AT_ONCE))
        if request.is_oneway:
            return None
        if answer is None:
            self._wait_for_turn(pull, now, effects)
            return None
        queues: tuple[Queue, ...] = ()
        hold_ms = pull.hold_ms
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            queues = ((pull.topic, pull.queue_id),)
        elif answer.code == ResponseCode.SYSTEM_ERROR:
            hold_ms = min(hold_ms, REFUSED_MS)  # new messages do not help
        else:
            return answer
        if hold_ms <= 0:
            return answer
        self._ledger.requested(pull.group, pull.topic, pull.queue_id, request.peer, now)
        if not self.parked.add(pull, queues, request.peer.link, now + hold_ms):
            return request.reply(ResponseCode.SYSTEM_BUSY, "too many pulls wait on this broker")
        return None

    @serves(RequestCode.UPDATE_CONSUMER_OFFSET)
    def commit(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        """Handle 15 UPDATE_CONSUMER_OFFSET.

        A Steelyard member that gives the queue up says what it handed over; its waiting pulls are
        answered.
        """
        header = request.header(UpdateConsumerOffsetRequestHeader)
        link, key = request.peer.link, (header.consumer_group, header.topic, header.queue_id)
        if self.handovers.is_echo(key, link, header.commit_offset):
            committed = self._committed.get(*key) or 0
            header = replace(header, commit_offset=max(header.commit_offset, committed))
        answer = self._offsets.commit(request, header, now)
        self.handovers.committed(key, link, now)
        if header.handed_offset is not None:
            self.given_up(link, *key, now, effects)
        return answer

    def wake(self, topic: str, queue_id: int, now: int, effects: list[Effect]) -> None:
        """Answer the pulls that wait for messages just appended."""
        waiting = self.parked.of_queue((topic, queue_id))
        if waiting is None:
            return
        effort = Effort(SLICE)
        for serial, pull in list(waiting.items()):
            answer = self._attempt(pull, now, effort)
            if answer is None:
                self._wait_for_turn(self.parked.remove(serial), now, effects)
                continue
            if answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and self._at_end(pull):
                continue  # its filter rejects them: it goes on waiting
            self.parked.remove(serial)
            effects.append(Send(pull.request.peer.link, answer))

    def _at_end(self, pull: CheckedPull) -> bool:
        log = self._store.log(pull.topic, pull.queue_id)
        return log is not None and pull.offset >= self._readable_end(log)

    def _readable_end(self, log: Log) -> int:
        return self._conversion.readable_end(log, self._durability.readable_end(log))

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Answer the pulls whose deadline has passed, and those that need not wait for an owner."""
        self._answer(self.parked.due(now), now, effects)
        for pull in self.handovers.due(now):
            self._decide(pull, now, effects)

    @property
    def next_at(self) -> int | None:
        """When a pull that waits, for whatever reason, is due next; None if none waits."""
        return earliest(self.parked.next_at, self.handovers.next_at, self.renewals.next_at)

    # -- queues that change hands ----------------------------------------------------------------

    def _begin(self, pull: CheckedPull, now: int) -> int | None:
        """Return the offset at which a pull begins, None if it waits for an old owner.

        If too many pulls wait already, it begins at once. Clients repeat a pull that found nothing
        as soon as they are told so, which would add to the load.
        """
        if not self.handovers.concern(pull):
            return pull.offset
        has_room = len(self.parked) + len(self.handovers) < self._config.hold_waiting_max
        committed = self._committed.get(*pull.key)
        return self.handovers.begin(pull, committed, now, has_room=has_room)

    def _wait_for_owner(self, pull: CheckedPull, effects: list[Effect]) -> None:
        """Let the first pull of a new owner wait, in place of one that waited before."""
        before = self.handovers.wait(pull)
        if before is not None:
            effects.append(Send(before.link, self._nothing_yet(before)))

    def _decide(self, pull: CheckedPull, now: int, effects: list[Effect]) -> None:
        """Decide again about a pull that waited for an old owner."""
        start = self._begin(pull, now)
        if start is None and now < pull.answer_at:
            self._wait_for_owner(pull, effects)
        elif start is None:
            effects.append(Send(pull.link, self._nothing_yet(pull)))
        elif start != pull.offset:
            effects.append(Send(pull.link, self._moved_on(pull, start)))
        else:
            self._answer([pull], now, effects)

    def _moved_on(self, pull: CheckedPull, start: int) -> Command:
        """Return the answer without messages that sends a client to another offset."""
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return _found_nothing(pull, code, "NO_MATCHED_MESSAGE", start, *self._reach(pull))

    def _nothing_yet(self, pull: CheckedPull) -> Command:
        code = ResponseCode.PULL_NOT_FOUND
        return _found_nothing(pull, code, "OFFSET_OVERFLOW_ONE", pull.asked, *self._reach(pull))

    def _reach(self, pull: CheckedPull) -> tuple[int, int]:
        """Return the first offset of a pull's queue and the one after the last."""
        log = self._store.log(pull.topic, pull.queue_id)
        return (0, 0) if log is None else (log.min_offset, self._readable_end(log))

    def given_up(
        self, link: Link, group: str, topic: str, queue_id: int, now: int, effects: list[Effect]
    ) -> None:
        """Handle that a member gave a queue up: answer its pulls, let the new owner begin."""
        self.end(link, group, (topic, queue_id), now, effects)
        self.handovers.given_up((group, topic, queue_id), link, now)

    def end(self, link: Link, group: str, queue: Queue, now: int, effects: list[Effect]) -> None:
        """Answer a member's waiting pulls of a queue (topic, id) that it has given up."""
        ended = [
            self.parked.remove(serial)
            for serial, pull in list((self.parked.of_queue(queue) or {}).items())
            if pull.request.peer.link == link and pull.group == group
        ]
        self._answer(ended, now, effects)

    def _answer(self, pulls: list[CheckedPull], now: int, effects: list[Effect]) -> None:
        """Answer pulls that do not wait for messages any more."""
        effort = Effort(SLICE)
        for pull in pulls:
            answer = self._attempt(pull, now, effort)
            if answer is None:
                self._wait_for_turn(pull, now, effects)
            else:
                effects.append(Send(pull.request.peer.link, answer))

    def _wait_for_turn(self, pull: CheckedPull, now: int, effects: list[Effect]) -> None:
        """Continue a pull that takes long in its turn."""
        if not self._turns.add(pull.request.peer.link, partial(self._turn, pull), now, effects):
            remark = "too many pulls wait for their turn on this broker"
            busy = pull.request.reply(ResponseCode.SYSTEM_BUSY, remark)
            effects.append(Send(pull.request.peer.link, busy))

    def _turn(self, pull: CheckedPull, now: int, effects: list[Effect]) -> bool:
        answer = self._attempt(pull, now, None)
        if answer is None:
            return False
        effects.append(Send(pull.request.peer.link, answer))
        return True

    def closed(self, link: Link) -> None:
        """Forget the waiting pulls of a closed link."""
        self.parked.closed(link)
        self.handovers.closed(link)
        self.renewals.closed(link)

    def refiltered(
        self, link: Link, group: str, topics: Collection[str], effects: list[Effect]
    ) -> None:
        """Handle that a member wants other messages of these topics than before.

        Its waiting pulls are to be repeated from where they began: what their filters rejected may
        pass now, if the client changed its subscription before the broker heard of it. (RocketMQ
        reads again by the new subscription, but Java's client drops what does not fit the one with
        which it pulled.)
        """
        if not topics:
            return
        ended = [
            self.parked.remove(serial)
            for serial, pull in self.parked.of_link(link)
            if pull.group == group and pull.topic in topics and not pull.has_own_filter
        ]
        ended += self.handovers.taken_back(link, group, topics)
        effects.extend(Send(link, self._moved_on(pull, pull.asked)) for pull in ended)

    def changed(self, group: str, topic: str, effects: list[Effect]) -> None:
        """Refuse the waiting pulls that a change of this group or of this topic forbids."""
        for serial, pull in self.parked.all():
            if group == pull.group or topic == pull.topic:
                request = pull.request
                try:
                    self._permit(request, pull.group, pull.topic, pull.queue_id)
                except Refusal as refusal:
                    self.parked.remove(serial)
                    answer = request.reply(refusal.code, str(refusal))
                    effects.append(Send(request.peer.link, answer))

    # -- checks ----------------------------------------------------------------------------------

    def _checked(
        self, request: RemotingRequest, header: PullMessageRequestHeader, now: int
    ) -> CheckedPull:
        """Check a pull. Raises Refusal."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        group_config = self._permit(request, group, topic, queue_id)
        if header.sys_flag & SUBSCRIPTION:
            found = self._brought(header)
        else:
            found = self._subscribed(request, header, group_config.consume_broadcast_enable)
        bytes_max = self._config.pull_bytes_max
        if header.max_msg_bytes is not None and header.max_msg_bytes > 0:
            bytes_max = min(bytes_max, header.max_msg_bytes)
        hold_ms = 0
        if header.sys_flag & SUSPEND and not request.is_oneway:
            hold_ms = min(header.suspend_timeout_millis, self._config.hold_max_ms)
        return CheckedPull(
            request,
            group,
            topic,
            queue_id,
            header.queue_offset,
            header.queue_offset,
            max(1, min(header.max_msg_nums, self._config.pull_messages_max)),
            min(bytes_max, ANSWER_BYTES_MAX),
            found,
            hold_ms,
            now + hold_ms,
            header.takes_batches is True and found == ALL,
            header.sys_flag & SUBSCRIPTION != 0,
        )

    def _permit(
        self, request: RemotingRequest, group: str, topic: str, queue_id: int
    ) -> SubscriptionGroupConfig:
        """Return the settings of a group that may read this queue. Raises Refusal."""
        group_config = self._groups.get(group)
        if not group_config.consume_enable:
            remark = f"subscription group no permission, {group}"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        config = self._topics.get(topic)
        if config is None:
            raise no_topic(topic)
        if not config.perm & PERM_READ:
            remark = f"the topic[{topic}] pulling message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= queue_id < config.read_queue_nums:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic}]"
                f" topicConfig.readQueueNums:[{config.read_queue_nums}]"
                f" consumer:[{request.peer.address}]"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return group_config

    def _brought(self, header: PullMessageRequestHeader) -> Filter:
        """Return the filter that comes with the pull. Raises Refusal."""
        kind = header.expression_type
        if not is_tag(kind) and not self._config.property_filter:
            raise not_filtering(kind)
        try:
            return parse(header.subscription, kind)
        except ProtocolError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None

    def _subscribed(
        self,
        request: RemotingRequest,
        header: PullMessageRequestHeader,
        broadcast_enabled: bool,
    ) -> Filter:
        """Return the filter of the heartbeat's subscription. Raises Refusal."""
        group, topic = header.consumer_group, header.topic
        member = self._registry.member(group, request.peer.link) or self._registry.newest(group)
        if member is None:
            remark = f"the consumer's group info not exist{FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if member.data.message_model == BROADCASTING and not broadcast_enabled:
            remark = f"the consumer group[{group}] can not consume by broadcast way"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        subscription = self._registry.subscription(group, request.peer.link, topic)
        if subscription is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not self._registry.is_latest(group, topic, subscription, header.sub_version):
            remark = "the consumer's subscription not latest"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        kind = subscription.data.expression_type
        if not is_tag(kind) and not self._config.property_filter:
            raise not_filtering(kind)
        if subscription.fault:
            remark = (
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
                f" {subscription.fault}"
            )
            raise Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        return subscription.filter

    # -- reading ---------------------------------------------------------------------------------

    def _attempt(self, pull: CheckedPull, now: int, effort: Effort | None) -> Command | None:
        """Return the answer to a pull, whose offset moves past messages that its filter rejects.

        None if there is more to do than `effort` allows. `effort`: None for a turn of the pull's
        own, which answers with what was found by then, and is to be repeated only if not even the
        first message was reached.
        """
        log = self._store.log(pull.topic, pull.queue_id)
        try:
            low, high = (0, 0) if log is None else (log.min_offset, self._readable_end(log))
        except StorageError as error:  # the pull's error, not that of a producer who woke it
            return pull.request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if log is None or not low <= pull.offset < high:
            self._statistics.missed += 1
            return _outside(pull, low, high)
        try:
            found = self._read(log, pull, high, effort)
        except (StorageError, ProtocolError) as error:
            return pull.request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        if found is None:
            return None
        if found.count == 0:
            pull.offset = found.next_offset
            if effort is not None and effort.left <= 0:
                return None
            self._statistics.missed += 1
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return _found_nothing(pull, code, "NO_MATCHED_MESSAGE", found.next_offset, low, high)
        is_cut = effort is not None and effort.left <= 0
        if is_cut and found.count < pull.count_max and found.next_offset < high:
            return None
        self._note(pull, found, high, now)
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(found.next_offset),
            "minOffset": str(low),
            "maxOffset": str(high),
        }
        if isinstance(found, Batches):
            ext["uniquePrefix"] = found.prefix
        return pull.request.reply(ResponseCode.SUCCESS, "FOUND", ext, found.data)

    def _read(self, log: Log, pull: CheckedPull, high: int, effort: Effort | None) -> Slice | None:
        """Return what passes the filter, with Kafka's batches converted; None as in `_attempt`."""
        offset, count_max, bytes_max = pull.offset, pull.count_max, pull.bytes_max
        wanted = pull.filter
        own = effort or Effort(SLICE)
        if wanted.condition is not None:
            found = read_matching(log, offset, count_max, bytes_max, wanted, high, own)
        elif wanted.codes is None or effort is None:
            found = log.read(offset, count_max, bytes_max, wanted.codes, high)
        else:
            near = min(high, offset + AT_ONCE_ROWS)
            found = log.read(offset, count_max, bytes_max, wanted.codes, near)
            if found.next_offset == near < high and found.count < count_max:
                effort.left = 0
        if found.count == 1 and len(found.data) > ANSWER_BYTES_MAX:
            self._conversion.passed.note(log, found.first_offset, 1, too_large(len(found.data)))
            return Slice(b"", 0, found.next_offset, found.next_offset)
        if found.next_offset > offset:
            return found
        if pull.takes_batches:
            batches = self._conversion.read_batches(log, offset, count_max, bytes_max, high)
            if batches is not None:
                return batches
        if effort is not None and effort.left <= AT_ONCE:
            most = min(count_max, high - offset) * CONVERT_EFFORT
            if effort.left < most:
                return None  # messages converted now would be thrown away
        return self._conversion.read(log, offset, count_max, bytes_max, wanted, high, own)

    def _note(self, pull: CheckedPull, found: Slice, high: int, now: int) -> None:
        self._statistics.found += 1
        self._statistics.got(pull.group, pull.topic, found.count, now)
        if isinstance(found, Batches):
            stored = found.stored
        else:
            v6 = _SYS_FLAG.unpack_from(found.data, 36)[0] & BORN_HOST_V6
            stored = _STORED.unpack_from(found.data, 68 if v6 else 56)[0]
        delivery = Delivered(
            at=now,
            broker=self._ledger.broker,
            group=pull.group,
            client=self._ledger.client(pull.group, pull.request.peer),
            topic=pull.topic,
            queue=pull.queue_id,
            until=now,
            first=found.first_offset,
            next=found.next_offset,
            count=found.count,
            stored=stored,
        )
        self.handovers.delivered(pull.key, pull.link, found.next_offset, now)
        if self._ledger.delivered(delivery, pull.asked, now):
            self._ledger.requested(pull.group, pull.topic, pull.queue_id, pull.request.peer, now)


def _outside(pull: CheckedPull, low: int, high: int) -> Command:
    """Return the answer to a pull whose offset is not in its queue, `low` to `high` - 1."""
    offset = pull.offset
    moved = ResponseCode.PULL_OFFSET_MOVED
    nothing = ResponseCode.PULL_NOT_FOUND
    if high == 0:
        code = nothing if offset == 0 else moved
        return _found_nothing(pull, code, "NO_MESSAGE_IN_QUEUE", 0, low, high)
    if offset < low:
        return _found_nothing(pull, moved, "OFFSET_TOO_SMALL", low, low, high)
    if offset > high:
        return _found_nothing(pull, moved, "OFFSET_OVERFLOW_BADLY", high, low, high)
    return _found_nothing(pull, nothing, "OFFSET_OVERFLOW_ONE", offset, low, high)


def _found_nothing(
    pull: CheckedPull, code: ResponseCode, remark: str, next_offset: int, low: int, high: int
) -> Command:
    ext = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(next_offset),
        "minOffset": str(low),
        "maxOffset": str(high),
    }
    return pull.request.reply(code, remark, ext)
