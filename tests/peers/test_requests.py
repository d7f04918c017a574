"""Request and reply: the answer finds its way back to the producer that asked."""

from __future__ import annotations

import asyncio

import pytest
from tests.peers.apache import NEW, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running
from tests.peers.ours import Member

import steelyard.aio
from steelyard import MessageView, Producer

pytestmark = pytest.mark.peer

TIMEOUT_MS = 30_000
QUESTIONS = [f"question {number}" for number in range(3)]
REPLIES = [f"reply to {question}" for question in QUESTIONS]


def test_java_asks_java(cluster: Running, peer: Peer, name: str) -> None:
    peer.ask("producer", f"{name}p", cluster.nameserver, f"{name}pg")
    peer.ask("producer", f"{name}r", cluster.nameserver, f"{name}rg")
    peer.ask("send", f"{name}r", name, "s", 0, 1, 10)  # so that the topic is there
    words = (f"{name}c", cluster.nameserver, f"{name}g", name, "*")
    peer.ask("consumer", *words, answer="reply", producer=f"{name}r")
    replies = [
        peer.ask("request", f"{name}p", name, question, TIMEOUT_MS)["reply"]
        for question in QUESTIONS
    ]
    assert [reply["body"] for reply in replies] == REPLIES
    for each in ("c", "r", "p"):
        peer.ask("stop", f"{name}{each}")


def test_java_asks_us(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """Both versions of the Java client ask; we reply to both."""
    with Producer(f"{name}rg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as replier:
        replier.send(name, b"so that the topic is there")

        def reply(view: MessageView) -> None:
            if view.body.startswith(b"question"):
                replier.reply(view, b"reply to " + view.body)

        with Member(any_cluster.nameserver, f"{name}g", name, answer=reply):
            for version, java in peers.items():
                java.ask("producer", f"{name}p", any_cluster.nameserver, f"{name}pg{version[0]}")
                answers = [
                    java.ask("request", f"{name}p", name, question, TIMEOUT_MS)["reply"]
                    for question in QUESTIONS
                ]
                java.ask("stop", f"{name}p")
                assert [answer["body"] for answer in answers] == REPLIES


def test_we_ask_java(any_cluster: Running, peers: dict[str, Peer], name: str) -> None:
    """As blocking and as asyncio client."""
    java = peers[NEW]
    java.ask("producer", f"{name}r", any_cluster.nameserver, f"{name}rg")
    java.ask("send", f"{name}r", name, "s", 0, 1, 10)  # so that the topic is there
    words = (f"{name}c", any_cluster.nameserver, f"{name}g", name, "*")
    java.ask("consumer", *words, answer="reply", producer=f"{name}r")
    with Producer(f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        replies = [producer.request(name, text, timeout_ms=TIMEOUT_MS) for text in QUESTIONS]
    assert [reply.body.decode() for reply in replies] == REPLIES

    async def ask() -> list[MessageView]:
        async with steelyard.aio.Producer(
            f"{name}pg", any_cluster.nameserver, send_timeout_ms=SEND_TIMEOUT_MS
        ) as producer:
            waiting = [producer.request(name, text, timeout_ms=TIMEOUT_MS) for text in QUESTIONS]
            return await asyncio.gather(*waiting)

    assert [reply.body.decode() for reply in asyncio.run(ask())] == REPLIES
    java.ask("stop", f"{name}c")
    java.ask("stop", f"{name}r")
