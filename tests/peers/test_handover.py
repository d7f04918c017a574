"""The clean hand-over: while members of ours come and go, no message is lost and none comes twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.peers.apache import NEW, Peer
from tests.peers.conftest import Running, create_topic
from tests.peers.ours import Member, by_queue
from tests.peers.series import Sending
from tests.waiting import until

pytestmark = pytest.mark.peer

QUEUES = 8


@contextmanager
def sending(cluster: Running, topic: str) -> Iterator[Sending]:
    thread = Sending(cluster.nameserver, topic)
    thread.start()
    try:
        yield thread
    finally:
        thread.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_joins_and_leaves(
    any_cluster: Running, peers: dict[str, Peer], name: str, orderly: bool
) -> None:
    """One, then three, then two, then one member, under load."""
    create_topic(any_cluster, peers[NEW], name, queues=QUEUES // len(any_cluster.brokers))
    members: list[Member] = []

    def join(stack: ExitStack) -> Member:
        member = Member(
            any_cluster.nameserver,
            f"{name}g",
            name,
            work_s=0.005,
            orderly=orderly,
            client_id=f"{name}@{len(members)}",
        )
        members.append(stack.enter_context(member))
        return member

    def share(running: list[Member]) -> None:
        """Wait until the queues are held by these, about equally many each, and all of them read."""
        held: list[list[tuple[str, int]]] = []

        def is_shared() -> bool:
            held[:] = [member.held() for member in running]
            sizes = [len(queues) for queues in held]
            return sum(sizes) == QUEUES and max(sizes) - min(sizes) <= 1

        until(is_shared, held)
        before = [len(member.steps) for member in running]
        until(
            lambda: all(
                len(member.steps) > count + 50
                for member, count in zip(running, before, strict=True)
            ),
            "all of them read",
        )

    with ExitStack() as stack, sending(any_cluster, name) as load:
        first = join(stack)
        share([first])
        second, third = join(stack), join(stack)
        share([first, second, third])
        first.consumer.stop()
        share([second, third])
        second.consumer.stop()
        share([third])
        sent = load.stop()
        until(
            lambda: {number for member in members for number in member.numbers()} >= {*range(sent)},
            "all that was sent",
        )
    counts = Counter(number for member in members for number in member.numbers())
    assert counts == Counter(range(sent))
    if orderly:
        for one in by_queue([step for member in members for step in member.steps]):
            assert [step.offset for step in one] == list(range(len(one)))
