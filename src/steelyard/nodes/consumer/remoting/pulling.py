"""The pull loop of each held queue; the broker holds a pull that finds no messages.

What follows each response code (client/impl/consumer/PullAPIWrapper.java,
DefaultMQPushConsumerImpl.pullMessage):

- 0 FOUND: the messages go to the process queue, and the next pull is sent at once.
- 19 NOT_FOUND, 20 RETRY_IMMEDIATELY: the next pull is sent at once, from `nextBeginOffset`.
- 21 OFFSET_MOVED: the queue starts anew at `nextBeginOffset`.
- 2 SYSTEM_BUSY, 215 FLOW_CONTROL: the pull is repeated after 20 ms, and each time after twice as
  long, up to a second.
- 24, 25: the broker does not know this member, or not its latest subscription: a heartbeat is sent,
  and the pull is repeated after `pull_retry_ms`.
- Any other code, or no response: the pull is repeated after `pull_retry_ms`. A broker that does not
  respond to a pull in time is presumed dead, and its link is closed.

A broker that repeatedly responds at once, without any progress, is asked only every
`flow_retry_ms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from steelyard.config import LitePullConfig
from steelyard.consume.flow import Limits, blocked, shared
from steelyard.consume.inner_batches import unwrapped
from steelyard.consume.statistics import ConsumeStatistics
from steelyard.consume.subscription import wanted
from steelyard.errors import CallTimeoutError, ProtocolError, RemotingError
from steelyard.groups.remoting.ownership import LEAVING, HoldingState
from steelyard.nodes.consumer.remoting.held import UNKNOWN, Held
from steelyard.nodes.consumer.remoting.holdings import Holdings
from steelyard.nodes.consumer.remoting.peers import Peers, PullSent
from steelyard.nodes.seam import Address, Effect
from steelyard.types import LogLine, MessageModel
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.bodies import SubscriptionData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import PullFlag
from steelyard.wire.remoting.message import MessageView, decode_records
from steelyard.wire.remoting.names import RETRY_PREFIX
from steelyard.wire.remoting.properties import RETRY_TOPIC

BUSY_RETRY_MS = 20
"""PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL."""
BUSY_RETRY_MAX_MS = 1_000
"""A busy broker is not kept busy by many queues that are each asked for 50 times a second."""

PAUSED_LOOK_MS = 1_000
"""PULL_TIME_DELAY_MILLS_WHEN_SUSPEND."""

_FLOW_CONTROL = 215
_NOTHING = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_BUSY = (ResponseCode.SYSTEM_BUSY, _FLOW_CONTROL)
_UNKNOWN_HERE = (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST)


class PullService:
    """The pull loops of one consumer. Call `begin` once before anything else."""

    def __init__(self, peers: Peers, holdings: Holdings, statistics: ConsumeStatistics) -> None:
        config = peers.config
        self._peers = peers
        self._holdings = holdings
        self._statistics = statistics
        self.paused = False
        """No pull is sent; the responses of those in flight are used."""
        self._limits = Limits(
            config.queue_messages_max,
            config.queue_bytes_max,
            None if config.orderly else config.queue_span_max,
        )
        self._shares: dict[str, Limits] = {}
        """Limits in place of `_limits`, by topic, if topics have limits."""
        self._polled = isinstance(config, LitePullConfig)
        clustering = config.message_model is MessageModel.CLUSTERING
        self._carries_commits = clustering and not self._polled
        # A consumer that polls may read topics that no heartbeat names, so its pulls carry the
        # subscription.
        self._sys_flag = PullFlag.SUSPEND | (PullFlag.SUBSCRIPTION if self._polled else 0)
        self._subscriptions: Mapping[str, SubscriptionData] = {}
        self._tags: dict[str, frozenset[str]] = {}

    def begin(self, subscriptions: Mapping[str, SubscriptionData]) -> None:
        self._subscriptions = subscriptions
        self._tags = {topic: frozenset(s.tags_set) for topic, s in subscriptions.items()}

    def share_out(self) -> None:
        """Divide the limits of topics, and of a client that polls, among the queues held now."""
        config = self._peers.config
        if isinstance(config, LitePullConfig):
            queues = sum(1 for h in self._holdings.all() if h.state not in LEAVING)
            share = max(1, config.messages_max // max(1, queues))
            messages_max = min(config.queue_messages_max, share)
            self._limits = msgspec.structs.replace(self._limits, messages_max=messages_max)
        if not config.topic_messages_max and not config.topic_bytes_max:
            return
        held = Counter(h.queue.topic for h in self._holdings.all() if h.state not in LEAVING)
        self._shares = {
            topic: shared(self._limits, config.topic_messages_max, config.topic_bytes_max, count)
            for topic, count in held.items()
        }

    def pause(self) -> None:
        """Send no pulls until `resume`."""
        self.paused = True

    def resume(self, now: int, effects: list[Effect]) -> None:
        """Pull all queues again."""
        self.paused = False
        for held in self._holdings.all():
            self.look(held, now, effects)

    def look(self, held: Held, now: int, effects: list[Effect]) -> None:
        """Send a pull, unless one is in flight, a limit is exceeded, or the broker is unknown."""
        if held.pull.under_way or held.wishes.paused or held.state is not HoldingState.PULLING:
            return
        config = self._peers.config
        held.pull.looked_at = now
        if self.paused:
            self._holdings.later(held, PAUSED_LOOK_MS, now, effects)
            return
        limits = self._shares.get(held.queue.topic, self._limits)
        if blocked(held.process, limits) is not None:
            self._holdings.later(held, config.flow_retry_ms, now, effects)
            return
        address = self._peers.address(held.queue)
        if address is None:
            self._holdings.later(held, config.pull_retry_ms, now, effects)
            return
        held.pull.address = address
        queue = held.queue
        commit = held.process.committable if self._carries_commits else 0
        sys_flag = self._sys_flag | (PullFlag.COMMIT_OFFSET if commit > 0 else 0)
        subscribed = self._subscriptions[queue.topic]
        header = headers.PullMessageRequestHeader(
            consumer_group=config.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=held.process.next_offset,
            max_msg_nums=config.pull_batch,
            sys_flag=sys_flag,
            commit_offset=commit,
            suspend_timeout_millis=config.pull_hold_ms,
            subscription=subscribed.sub_string if self._polled else None,
            sub_version=subscribed.sub_version,
            expression_type=subscribed.expression_type,
            handed_ms=held.application.tell(now),
            bname=queue.broker_name,
        )
        held.pull.under_way = True
        held.pull.sent_at = now
        held.pull.carried = commit if commit > 0 else UNKNOWN
        if commit > 0:
            self._holdings.commits.rode(held, commit)
        purpose = PullSent(queue, held.epoch, held.process.next_offset)
        self._peers.ask(
            address, RequestCode.PULL_MESSAGE, header, purpose, now, effects, config.pull_timeout_ms
        )

    def answered(
        self,
        sent: PullSent,
        address: Address,
        reply: Command | RemotingError,
        now: int,
        effects: list[Effect],
    ) -> Held | None:
        """Handle the outcome of a pull.

        Returns the queue if it has new messages to deliver, or if it is given up and was waiting
        for this.
        """
        held = self._holdings.find(sent.queue, sent.epoch)
        if held is None:
            return None
        held.pull.under_way = False
        self._holdings.commits.pull_answered(held)
        if held.state is not HoldingState.PULLING:
            return held
        if isinstance(reply, RemotingError):
            self._unanswered(held, address, reply, now, effects)
            return None
        config = self._peers.config
        if reply.code == ResponseCode.SUCCESS or reply.code in _NOTHING:
            return self._taken_in(held, sent, reply, now, effects)
        if reply.code == ResponseCode.PULL_OFFSET_MOVED:
            self._moved(held, sent, reply, now, effects)
            return None
        if reply.code in _BUSY:
            held.pull.in_vain += 1
            delay_ms = min(BUSY_RETRY_MS << min(held.pull.in_vain - 1, 10), BUSY_RETRY_MAX_MS)
            self._holdings.later(held, delay_ms, now, effects)
            return None
        if reply.code in _UNKNOWN_HERE:
            self._holdings.later(held, config.pull_retry_ms, now, effects)
            self._peers.client.register([address], now, effects)
            return None
        text = f"pull from {address} refused: code {reply.code}: {reply.remark}"
        effects.append(LogLine("WARNING", text))
        self._holdings.later(held, config.pull_retry_ms, now, effects)
        return None

    def _taken_in(
        self, held: Held, sent: PullSent, reply: Command, now: int, effects: list[Effect]
    ) -> Held | None:
        try:
            header = headers.read(headers.PullMessageResponseHeader, reply.ext)
            messages = unwrapped(decode_records(reply.body, sent.queue.broker_name), sent.offset)
        except ProtocolError as error:
            text = f"pull reply for {sent.queue.topic} is invalid: {error}"
            effects.append(LogLine("WARNING", text))
            self._holdings.later(held, self._peers.config.pull_retry_ms, now, effects)
            return None
        topic = sent.queue.topic
        if topic.startswith(RETRY_PREFIX):
            restore_topics(messages)
        process = held.process
        added = process.add(wanted(messages, self._tags[topic]), header.next_begin_offset)
        if added:
            self._statistics.pulled(topic, now - held.pull.sent_at, added, now)
        flow_retry_ms = self._peers.config.flow_retry_ms
        if process.next_offset > sent.offset or now - held.pull.sent_at >= flow_retry_ms:
            held.pull.in_vain = 0
        else:
            held.pull.in_vain += 1
            if held.pull.in_vain > 1:
                self._holdings.later(held, flow_retry_ms, now, effects)
                return None
        self.look(held, now, effects)
        return held if added else None

    def _moved(
        self, held: Held, sent: PullSent, reply: Command, now: int, effects: list[Effect]
    ) -> None:
        retry_ms = self._peers.config.pull_retry_ms
        try:
            header = headers.read(headers.PullMessageResponseHeader, reply.ext)
        except ProtocolError as error:
            text = f"pull reply for {sent.queue.topic} is invalid: {error}"
            effects.append(LogLine("WARNING", text))
            self._holdings.later(held, retry_ms, now, effects)
            return
        offset = max(header.next_begin_offset, 0)
        if self._polled and offset > sent.offset:  # messages that wait for a poll remain valid
            held.process.add((), offset)
            text = f"{sent.queue} begins at offset {offset}, beyond {sent.offset}; continuing there"
            effects.append(LogLine("WARNING", text))
            self.look(held, now, effects)
            return
        text = f"offset {sent.offset} of {sent.queue} does not exist; continuing at {offset}"
        fresh = self._holdings.restart(held, offset, now)
        effects.append(LogLine("WARNING", text))
        self._holdings.commits.commit(fresh, now, effects)
        if offset == sent.offset:  # the broker contradicts itself
            self._holdings.later(fresh, retry_ms, now, effects)
        else:
            self.look(fresh, now, effects)

    def _unanswered(
        self, held: Held, address: Address, error: RemotingError, now: int, effects: list[Effect]
    ) -> None:
        self._holdings.commits.lost(held)  # the commit that the pull carried may be lost
        self._holdings.later(held, self._peers.config.pull_retry_ms, now, effects)
        if isinstance(error, CallTimeoutError):
            self._peers.calls.hang_up(address, "a pull was not answered", effects)


def restore_topics(messages: list[MessageView]) -> None:
    """Give messages of the group's retry topic the topics to which they were sent."""
    for message in messages:
        message.topic = message.property_of(RETRY_TOPIC) or message.topic
