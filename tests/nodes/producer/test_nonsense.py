"""Whatever a broker asks of a producer, it goes on: questions for transactions (39) and replies (326)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.nodes.consumer.remoting.conftest import record
from tests.nodes.producer.test_producer import Bench
from tests.nodes.producer.test_requests import pushed
from tests.nodes.producer.test_transactions import question

from steelyard.nodes.seam import Handled
from steelyard.types import TransactionState
from steelyard.wire.remoting.command import Command, is_oneway

NAMES = st.sampled_from([*question().ext, *pushed("c-1").ext, "bname"])
VALUES = st.sampled_from(["", "x", "-1", str(1 << 70), "null", "a\x01b\x02", "::1:5", "\x00"])
RECORD = record("T", 5, 63, properties=b"PGROUP\x01pg\x02")


@st.composite
def commands(draw: st.DrawFn) -> Command:
    """A proper one with a few things wrong."""
    proper = draw(st.sampled_from([question(), pushed("c-1")]))
    ext = dict(proper.ext) | draw(st.dictionaries(NAMES, VALUES, max_size=2))
    for name in draw(st.lists(NAMES, max_size=2)):
        ext.pop(name, None)
    cut = draw(st.integers(0, len(RECORD)))
    body = draw(st.sampled_from([proper.body, b"", RECORD[:cut], RECORD + RECORD, b"\xff" * 100]))
    flag = draw(st.sampled_from([proper.flag, 0, 2]))
    return Command(proper.code, 4711, flag, ext, body)


@given(st.lists(commands(), min_size=1, max_size=4))
def test_nothing_that_brokers_say_breaks_it(said: list[Command]) -> None:
    bench = Bench(checks=True)
    bench.send()
    bench.rig.sent.clear()
    for command in said:
        bench.rig.push(bench.a, command)
    for hand in bench.rig.hands:
        bench.rig.put(Handled(hand.ticket, TransactionState.COMMIT))
    responses = [c for _, c in bench.rig.sent if c.opaque == 4711]
    asked = [c for c in said if c.code == 326 and not is_oneway(c)]
    assert len(responses) == len(asked)
    bench.result(bench.send())
