"""The real mqadmin asks our push consumer, and tells it: through Apache's brokers and ours."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.peers.apache import OLD, SEND_TIMEOUT_MS, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import FROM_FIRST, Member, by_queue
from tests.waiting import until

from steelyard import Producer

pytestmark = pytest.mark.peer


def test_our_consumer_answers_operators(
    any_cluster: Running, peer: Peer, peers: dict[str, Peer], name: str
) -> None:
    """consumerStatus, queryMsgById -d and resetOffsetByTime, of a consumer that consumes in order."""
    nameserver = any_cluster.nameserver
    group, client_id = f"{name}g", f"{name}-1"
    create_topic(any_cluster, peer, name, queues=2)
    with Producer(f"{name}p", nameserver, send_timeout_ms=SEND_TIMEOUT_MS) as producer:
        sent = [producer.send(name, f"{number}") for number in range(8)]
    config = replace(FROM_FIRST, commit_interval_ms=500, pull_hold_ms=1_000)
    with Member(
        nameserver, group, name, orderly=True, client_id=client_id, config=config
    ) as member:
        until(lambda: len(member.views) == 8, "all is consumed")
        words = ("-n", nameserver, "-g", group)

        status = peer.mqadmin("consumerStatus", *words, "-i", client_id, "-s", "true")
        assert re.search(r"PROP_CONSUMEORDERLY +: true", status)
        queues = re.findall(rf"^{name} .* ProcessQueueInfo \[(.*)\]", status, re.MULTILINE)
        assert len(queues) == 2 * len(any_cluster.brokers)
        assert all("locked=true" in queue and "droped=false" in queue for queue in queues)
        assert "#Consumer jstack#" in status
        assert "describe_threads" in status
        overview = peer.mqadmin("consumerStatus", *words)
        assert "Same subscription" in overview
        assert "can't lock" not in overview

        if peer is peers[OLD]:  # that of 5.3.3 ends its JVM after this command
            message_id = sent[0].offset_message_id
            direct = peer.mqadmin("queryMsgById", "-i", message_id, *words, "-d", client_id)
            assert "consumeResult=CR_SUCCESS" in direct
            assert [view.offset_message_id for view in member.views].count(message_id) == 2

        since = len(member.views)
        until(lambda: committed(peers[OLD], words), "the offsets are committed")
        peer.mqadmin("resetOffsetByTime", *words, "-t", name, "-s", "1700000000000")
        until(lambda: len(member.views) == since + 8, "all comes again")
        again = member.steps[since:]
        assert all(
            [step.offset for step in steps] == list(range(len(steps))) for steps in by_queue(again)
        )


def committed(peer: Peer, words: tuple[str, ...]) -> bool:
    """Nothing is left to consume. That of 5.3.3 cannot ask 4.9 brokers this."""
    answer = peer.ask("mqadmin", "consumerProgress", *words)  # before the first commit it fails
    return re.search(r"Diff Total: 0\b", answer["text"]) is not None
