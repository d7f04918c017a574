"""Sure commits to a broker: the first one of a topic goes alone."""

from __future__ import annotations

from tests.effects import effects_of
from tests.nodes.consumer.remoting.conftest import rng

from steelyard.config import ConsumerConfig
from steelyard.nodes.consumer.remoting.offsets import BrokerOffsets
from steelyard.nodes.consumer.remoting.peers import Handed, LastCommitSent, Peers
from steelyard.nodes.seam import Dial, Effect, Opened, Send
from steelyard.types import MessageQueue
from steelyard.wire.remoting.command import Command


class Bench:
    """Commits of offset 7 to a broker at a:1."""

    def __init__(self) -> None:
        self.peers = Peers(ConsumerConfig(group="g", client_id="c"), rng())
        self.offsets = BrokerOffsets(self.peers)
        assert effects_of(self.peers.calls.tell, "a:1", Command(code=1)) == [Dial("a:1")]
        effects_of(self.peers.calls.opened, Opened(1, "a:1", dialed=True))

    def commit(self, queue: MessageQueue) -> list[tuple[str, str]]:
        last = LastCommitSent(queue, 1, Handed(7, None))
        return sent(effects_of(self.offsets.write_surely, last, "a:1", 7, 0))

    def end(self, queue: MessageQueue) -> list[tuple[str, str]]:
        return sent(effects_of(self.offsets.answered, queue, "a:1", 0))


def sent(effects: list[Effect]) -> list[tuple[str, str]]:
    """Topic and queue of each commit that goes out."""
    found = []
    for effect in effects:
        if isinstance(effect, Send):
            assert isinstance(effect.message, Command)
            found.append((effect.message.ext["topic"], effect.message.ext["queueId"]))
    return found


def test_the_first_commit_of_a_topic_goes_alone_and_the_others_follow_it() -> None:
    bench = Bench()
    first, second, third = (MessageQueue("T", "a", number) for number in range(3))
    assert bench.commit(first) == [("T", "0")]
    assert bench.commit(second) == []
    assert bench.commit(third) == []
    assert bench.commit(MessageQueue("U", "a", 0)) == [("U", "0")]
    assert bench.end(first) == [("T", "1"), ("T", "2")]
    assert bench.end(second) == []
    assert bench.commit(first) == [("T", "0")]
    assert bench.commit(second) == [("T", "1")]
