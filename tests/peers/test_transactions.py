"""Transactional messages: what the local transaction decides, at once or when the broker asks again."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import msgspec
import pytest
from tests.peers.apache import NEW, Peer
from tests.peers.conftest import Running
from tests.peers.ours import Member
from tests.peers.series import message
from tests.waiting import until

import steelyard.aio
from steelyard import Message, MessageView, Producer, TransactionState

pytestmark = pytest.mark.peer

VERDICTS = [
    ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE"),  # what was said first stands: the broker never asks
    ("ROLLBACK_MESSAGE", "COMMIT_MESSAGE"),
    ("UNKNOW", "COMMIT_MESSAGE"),
    ("UNKNOW", "ROLLBACK_MESSAGE"),
]
"""What a transaction says when it is done, and when it is asked. Two messages of each, numbered in this order."""
COMMITTED = [0, 1, 4, 5]
ASKED_AFTER = [4, 5, 6, 7]


class Undecided:
    """The messages of one producer of ours, and which of them the broker asked after."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.asked: set[int] = set()

    def messages(self) -> list[Message]:
        made = []
        for index in range(2 * len(VERDICTS)):
            sent = message(self.topic, "s", index, 60)
            said = {"checked": VERDICTS[index // 2][1]}
            made.append(msgspec.structs.replace(sent, properties={**sent.properties, **said}))
        return made

    def execute(self, sent: Message) -> TransactionState:
        return TransactionState(VERDICTS[int(sent.properties["number"]) // 2][0])

    def check(self, view: MessageView) -> TransactionState:
        self.asked.add(int(view.properties["number"]))
        return TransactionState(view.properties["checked"])


def send_by_java(peer: Peer, producer: str, topic: str) -> list[str]:
    states = []
    for place, (executed, checked) in enumerate(VERDICTS):
        words = ("transact", producer, topic, "s", 2 * place, 2, 60)
        results = peer.ask(*words, executed=executed, checked=checked)["results"]
        states += [result["state"] for result in results]
    return states


def asked_by_broker(peer: Peer, producer: str) -> set[int]:
    """Which messages the broker asked a Java producer after."""
    checks = [event for event in peer.notices if event["event"] == "check"]
    mine = [event for event in checks if event["consumer"] == producer]
    return {int(event["properties"]["number"]) for event in mine}


async def send_by_asyncio(producer: steelyard.aio.Producer, undecided: Undecided) -> list[str]:
    async def execute(sent: Message) -> TransactionState:
        return undecided.execute(sent)

    results = [
        await producer.send_in_transaction(sent, execute=execute) for sent in undecided.messages()
    ]
    return [result.state.value for result in results]


def test_transactions(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Producers of both Java versions and both of ours at once, for the broker takes its time before it asks.

    What Java's send our consumers read, and the other way round.
    """
    nameserver = any_cluster.nameserver
    states: dict[str, list[str]] = {}
    blocking, waiting = Undecided(f"{name}blocking"), Undecided(f"{name}asyncio")
    java = {f"{name}{version[0]}": peer for version, peer in peers.items()}
    readers: dict[str, Member] = {}

    def asked() -> dict[str, set[int]]:
        of_java = {topic: asked_by_broker(peer, f"{topic}p") for topic, peer in java.items()}
        return {**of_java, blocking.topic: blocking.asked, waiting.topic: waiting.asked}

    def got() -> dict[str, list[int]]:
        by_ours = {topic: sorted(member.numbers()) for topic, member in readers.items()}
        by_java = {
            each.topic: sorted(peers[NEW].numbers(f"{each.topic}c")) for each in (blocking, waiting)
        }
        return {**by_ours, **by_java}

    async def check(view: MessageView) -> TransactionState:
        return waiting.check(view)

    with ExitStack() as stack:
        for topic, peer in java.items():
            peer.ask("producer", f"{topic}p", nameserver, f"{topic}pg", transactions=True)
            states[topic] = send_by_java(peer, f"{topic}p", topic)
            readers[topic] = stack.enter_context(Member(nameserver, f"{topic}g", topic))
        producer = Producer(f"{blocking.topic}pg", nameserver, transaction_check=blocking.check)
        stack.enter_context(producer)
        results = [
            producer.send_in_transaction(sent, execute=blocking.execute)
            for sent in blocking.messages()
        ]
        states[blocking.topic] = [result.state.value for result in results]
        for each in (blocking, waiting):
            words = (nameserver, f"{each.topic}g", each.topic, "*")
            peers[NEW].ask("consumer", f"{each.topic}c", *words)

        seen: dict[str, object] = {}

        def decided() -> bool:
            seen.update(asked=asked(), got=got())
            return all(numbers == {*ASKED_AFTER} for numbers in asked().values()) and all(
                {*numbers} >= {*COMMITTED} for numbers in got().values()
            )

        async def run() -> None:
            group = f"{waiting.topic}pg"
            async with steelyard.aio.Producer(
                group, nameserver, transaction_check=check
            ) as producer:
                states[waiting.topic] = await send_by_asyncio(producer, waiting)
                await asyncio.to_thread(until, decided, seen)

        asyncio.run(run())
        for topic, peer in java.items():
            peer.ask("stop", f"{topic}p")
        for each in (blocking, waiting):
            peers[NEW].ask("stop", f"{each.topic}c")

    executed = [executed for executed, _ in VERDICTS for _ in range(2)]
    assert states == dict.fromkeys([*java, blocking.topic, waiting.topic], executed)
    for numbers in got().values():
        # A broker may ask again before it has noted the answer, and then has the message twice.
        assert sorted(set(numbers)) == COMMITTED
        assert [numbers.count(number) for number in (0, 1)] == [1, 1]
