"""An operator moves a group to another place in a topic (222), or where another group is (314).

222 INVOKE_BROKER_TO_RESET_OFFSET:

Members keep their offsets to themselves, so each is told over its own connection (220, one-way); it
commits and reads on from there. The place in each queue is the first message stored at the given
time or later, or the end for -1; without `isForce`, a group is only moved back. The answer says
where each queue continues.

- Nobody online: 206; tools then commit the offsets (15) themselves.
- The broker knows neither members nor offsets of the group: 1. (4.9 also refuses if one queue has
  no offset.)
- A single queue, with `queueId` and `offset` (5.x): likewise, but the broker itself moves a group
  without members, and `isForce` does not matter.
- 5.x brokers tell no member, but refuse its commits until it has pulled from the new place, because
  their members need not know 220. This broker tells them, as one of 4.9 does; that is the version
  that it reports.

314 CLONE_GROUP_OFFSET gives a group the offsets that another one has committed, in one topic or in
all. A topic that the other group's members do not subscribe to is left out, unless `offline` is
set. Members of the group are not told: it should have none. Without a topic Apache's broker copies
nothing, which is an oversight there (it passes on the topic that was not given).
Source: Broker2Client.resetOffset (4.9.8), AdminBrokerProcessor.resetOffsetInner (5.x).
"""

from __future__ import annotations

from steelyard.groups.remoting.registry import ClientChannel
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.admin import STEP_QUEUES
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets, OffsetHandlers
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, serves
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect, Send
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    Body,
    QueueOffsetForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    ResetOffsetRequestHeader,
)

NO_OFFSET = -1


class OffsetResets:
    """Handlers of 222 and 314; see the module docstring."""

    def __init__(self, parts: Parts, committed: CommittedOffsets, offsets: OffsetHandlers) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._committed = committed
        self._offsets = offsets
        self._registry = parts.registry
        self._durability = parts.durability

    @serves(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(ResetOffsetRequestHeader)
        table = self._places(header)
        clients = [m.client for m in self._registry.memberships(header.group)]
        if not clients:
            if header.queue_id < 0:
                remark = (
                    f"Consumer not online, so can not reset offset, Group: {header.group}"
                    f" Topic: {header.topic} Timestamp: {header.timestamp}"
                )
                raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
            for queue, offset in table.items():
                self._offsets.store(
                    header.group, queue.topic, queue.queue_id, offset, request.peer, now
                )
        effects.extend(Send(client.link, _order(header, table, client)) for client in clients)
        return request.reply(body=fastjson.write(ResetOffsetBody(table)))

    @serves(RequestCode.CLONE_GROUP_OFFSET)
    def clone(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Steps[Command]:
        header = request.header(CloneGroupOffsetRequestHeader)
        subscribed = self._registry.subscriptions(header.src_group)
        offsets = self._committed.of_group(header.src_group)
        for number, ((topic, queue_id), offset) in enumerate(offsets.items(), 1):
            is_read = header.offline or not subscribed or topic in subscribed
            is_wanted = topic == header.topic if header.topic else True
            if is_read and is_wanted and self._topics.get(topic) is not None:
                self._offsets.store(header.dest_group, topic, queue_id, offset, request.peer, now)
            if number % STEP_QUEUES == 0:
                yield
        return request.reply()

    def _places(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        """Return where each queue continues. Raises Refusal."""
        topic, group = header.topic, header.group
        config = self._topics.get(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if not self._committed.of_group(group) and not self._registry.memberships(group):
            remark = f"THe consumer group <{group}> not exist"  # sic
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        queue_ids = range(config.read_queue_nums)
        if header.queue_id >= 0:
            if header.queue_id not in queue_ids:
                remark = (
                    f"queue {header.queue_id} of topic {topic} is not on this broker:"
                    f" 0 to {len(queue_ids) - 1} are"
                )
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            queue_ids = range(header.queue_id, header.queue_id + 1)
            if header.offset is not None and header.offset != NO_OFFSET:
                return self._place_given(header, header.offset)
        table: dict[MessageQueue, int] = {}
        for queue_id in queue_ids:
            place = self._place_at(topic, queue_id, header.timestamp)
            committed = self._committed.get(group, topic, queue_id)
            if committed is not None and not header.is_force and header.queue_id < 0:
                place = min(place, committed)
            table[MessageQueue(topic, self._config.name, queue_id)] = place
        return table

    def _place_given(
        self, header: ResetOffsetRequestHeader, offset: int
    ) -> dict[MessageQueue, int]:
        low, high = self._reach(header.topic, header.queue_id)
        if not low <= offset <= high:
            remark = f"Target offset {offset} not in consume queue range [{low}-{high}]"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return {MessageQueue(header.topic, self._config.name, header.queue_id): offset}

    def _place_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the first offset stored at the time or later.

        The end if there is none, or for a negative time.
        """
        _, high = self._reach(topic, queue_id)
        log = self._store.log(topic, queue_id)
        if log is None or timestamp < 0:
            return high
        return min(high, log.offset_at_time(timestamp))

    def _reach(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue, and the one after the last that may be read."""
        log = self._store.log(topic, queue_id)
        return (0, 0) if log is None else (log.min_offset, self._durability.readable_end(log))


def _order(
    header: ResetOffsetRequestHeader, table: dict[MessageQueue, int], client: ClientChannel
) -> Command:
    """Build request 220 for one member.

    Members written in C++ read another body. (In RocketMQ, the operator requests that one with -c.)
    """
    body: Body = ResetOffsetBody(table)
    if client.language == "CPP":
        body = ResetOffsetBodyForC(
            tuple(QueueOffsetForC(*queue, offset) for queue, offset in table.items())
        )
    ext = headers.write(
        ResetOffsetRequestHeader(group=header.group, topic=header.topic, timestamp=header.timestamp)
    )
    code = int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    return Command(code, 0, ONEWAY_FLAG, ext, fastjson.write(body))
