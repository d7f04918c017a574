"""A broadcasting consumer: everything of everybody's, offsets of its own, no group."""

from __future__ import annotations

from tests.nodes.consumer.remoting.conftest import (
    Broker,
    Group,
    Nameserver,
    Rig,
    offsets_of,
    queues,
    rng,
)

from steelyard.config import ConsumerConfig, LitePullConfig
from steelyard.nodes.consumer.remoting.contract import Commit, Poll, Stop
from steelyard.nodes.consumer.remoting.node import ConsumerNode
from steelyard.nodes.consumer.remoting.offsets import read_kept
from steelyard.nodes.consumer.remoting.questions import QueryConsumerOffset
from steelyard.nodes.seam import Handled
from steelyard.types import ConsumeFrom, ConsumeOrderlyStatus, MessageModel, Subscription
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import HeartbeatData, OffsetTable
from steelyard.wire.remoting.command import Command

(Q0,) = queues("T", "a", 0)
BROADCASTING = MessageModel.BROADCASTING


class Alone:
    """A broadcasting consumer of T, with one queue on each of two brokers. `lives`: how often it started."""

    def __init__(self, config: type[ConsumerConfig] = ConsumerConfig, **settings: object) -> None:
        self.a, self.b, self.ns = Broker("a", "a:1"), Broker("b", "b:1"), Nameserver()
        self.ns.add("T", self.a, self.b, queues=1)
        values = {
            "nameservers": ("ns:9876",),
            "group": "g",
            "client_id": "c1",
            "subscriptions": (Subscription("T"),),
            "message_model": BROADCASTING,
        } | settings
        self.config = config(**values)  # type: ignore[arg-type]
        self.rig = self.live(b"")

    def live(self, kept: bytes) -> Rig:
        """A new life of the consumer, with what was kept of the last one."""
        for broker in (self.a, self.b):
            broker.held.clear()
        node = ConsumerNode(self.config, rng(), kept=kept)
        self.rig = Rig(node, self.ns, self.a, self.b).start()
        self.rig.advance(0)
        return self.rig

    def kept(self) -> dict[str, int]:
        """What was kept last: offset by broker."""
        table = read_kept(self.rig.kept[-1])
        return {queue.broker_name: offset for queue, offset in table.items()}

    def starts(self, broker: Broker) -> list[int]:
        return [int(command.ext["queueOffset"]) for command in self.rig.to(broker, 11)]


def test_it_reads_all_queues_and_asks_nobody() -> None:
    alone = Alone()
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 2)
    rig.publish(alone.b, "T", 0, 1)
    assert sorted(rig.handle_all()) == [0, 0, 1]
    rig.advance(60_000)
    codes = {command.code for _, command in rig.sent}
    assert codes == {105, 34, 30, 11}  # no member list, no locks, no offset asked or told
    assert {command.ext["topic"] for command in rig.to(alone.ns, 105)} == {"T"}
    (heartbeat, *_) = rig.to(alone.a, 34)
    (data,) = fastjson.read(HeartbeatData, heartbeat.body).consumer_data_set
    assert data.message_model == "BROADCASTING"
    assert [item.topic for item in data.subscription_data_set] == ["T"]
    assert {command.ext["sysFlag"] for command in rig.to(alone.a, 11)} == {"2"}


def test_its_offsets_are_kept_at_each_interval_that_brings_news() -> None:
    alone = Alone()
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 3)
    rig.handled(rig.hands[0])
    assert rig.kept == []
    rig.advance(5_000)
    assert alone.kept() == {"a": 1, "b": 0}
    rig.advance(20_000)
    assert len(rig.kept) == 1
    rig.handle_all()
    rig.advance(5_000)
    assert alone.kept() == {"a": 3, "b": 0}
    assert rig.kept[-1] == (
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:3,'
        b'{"brokerName":"b","queueId":0,"topic":"T"}:0}}'
    )


def test_a_stop_keeps_what_is_finished_and_the_next_life_goes_on_there() -> None:
    alone = Alone(consume_from=ConsumeFrom.FIRST_OFFSET)
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 3)
    rig.handled(rig.hands[0])
    rig.handled(rig.hands[0])
    stop = rig.ask(Stop())
    rig.handled(rig.hands[0])
    assert rig.answers[stop] is None
    assert alone.kept() == {"a": 3, "b": 0}
    alone.a.fill("T", 0, 2)
    rig = alone.live(rig.kept[-1])
    assert alone.starts(alone.a)[0] == 3
    assert [offsets_of(hand) for hand in rig.hands] == [[3], [4]]


def test_a_queue_without_an_offset_starts_as_the_settings_say() -> None:
    alone = Alone()
    alone.a.fill("T", 0, 7)
    kept = fastjson.write(OffsetTable({Q0: 2}))
    alone.b.fill("T", 0, 5)
    alone.live(kept)
    assert alone.starts(alone.a)[0] == 2
    assert alone.starts(alone.b)[0] == 5


def test_a_broker_missing_for_a_while_takes_no_offset_along() -> None:
    """apache/rocketmq#4016: 1. read up to 3; 2. the broker leaves the routes; 3. its queue goes; 4. it comes back."""
    alone = Alone()
    rig = alone.rig
    rig.publish(alone.b, "T", 0, 3)
    rig.handle_all()
    rig.advance(5_000)
    alone.ns.add("T", alone.a, queues=1)
    rig.advance(60_000)
    assert alone.kept() == {"a": 0, "b": 3}
    alone.b.fill("T", 0, 4)
    alone.b.held.clear()
    alone.ns.add("T", alone.a, alone.b, queues=1)
    rig.sent.clear()
    rig.advance(60_000)
    assert alone.starts(alone.b)[0] == 3
    assert rig.handle_all() == [3, 4, 5, 6]


def test_the_commit_of_a_queue_that_goes_away_is_not_lost() -> None:
    alone = Alone()
    rig = alone.rig
    rig.publish(alone.b, "T", 0, 3)
    rig.handle_all()
    alone.ns.add("T", alone.a, queues=1)
    rig.advance(35_000)
    assert alone.kept() == {"a": 0, "b": 3}


def test_a_failed_message_is_dropped() -> None:
    alone = Alone(consume_timeout_ms=10)
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 2)
    rig.handled(rig.hands[0], ok=False)
    rig.advance(120_000)  # nor is one sent back that is overdue
    assert rig.to(alone.a, 36, 310) == []
    assert ["is dropped" in tell.text for tell in rig.tells if tell.level == "WARNING"] == [True]
    assert alone.kept()["a"] == 1


def test_an_orderly_one_needs_no_locks_and_drops_what_failed_too_often() -> None:
    alone = Alone(orderly=True, retry_max=1, suspend_ms=1_000)
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 2)
    seen: list[int] = []
    for _ in range(3):
        (hand,) = rig.hands
        rig.hands.clear()
        seen += offsets_of(hand)
        failed = seen[-1] == 0
        rig.put(
            Handled(
                hand.ticket,
                ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                if failed
                else ConsumeOrderlyStatus.SUCCESS,
            )
        )
        rig.advance(1_000)
    assert seen == [0, 0, 1]
    assert rig.to(alone.a, 41, 42, 310) == []
    assert ["is dropped" in tell.text for tell in rig.tells if tell.level == "WARNING"] == [True]


def test_one_that_polls_commits_to_its_own_disk() -> None:
    alone = Alone(LitePullConfig, auto_commit=False)
    rig = alone.rig
    rig.publish(alone.a, "T", 0, 3)
    poll = rig.answers[rig.ask(Poll(2, 0))]
    assert isinstance(poll, tuple)
    assert len(poll) == 2
    assert rig.answers[rig.ask(QueryConsumerOffset(Q0))] is None
    assert rig.answers[rig.ask(Commit())] is None
    assert alone.kept() == {"a": 2, "b": 0}
    assert rig.answers[rig.ask(QueryConsumerOffset(Q0))] == 2
    assert rig.to(alone.a, 14, 15) == []


def test_a_notification_means_nothing_to_it() -> None:
    alone = Alone()
    rig = alone.rig
    rig.push(alone.a, Command(40, opaque=9, flag=2, ext={"consumerGroup": "g"}))
    rig.advance(1_000)
    assert rig.to(alone.a, 38) == []


def test_offsets_that_java_wrote_are_read() -> None:
    """PrettyFormat of fastjson, as LocalFileOffsetStore writes it."""
    data = (
        b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n'
        b"\t\t}:5\n\t}\n}"
    )
    assert read_kept(data) == {Q0: 5}
    assert read_kept(b"") == {}


def test_a_clustering_consumer_keeps_nothing() -> None:
    group = Group(1)
    rig = group.start()
    rig.publish(group.a, "T", 0, 1)
    rig.handle_all()
    rig.advance(30_000)
    assert rig.kept == []
    assert group.a.offsets["T", 0] == 1
