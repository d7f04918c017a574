"""What a node's bug costs: one link, one call or one timer; the process only where the node's state is broken."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from steelyard.driver.failures import (
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    KINDS_MAX,
    LINE_MAX,
    REPEATS_MAX,
    WINDOW_MS,
    Failures,
    brief,
)
from steelyard.errors import ClosedError, InternalError
from steelyard.nodes.seam import (
    Answer,
    Asked,
    Closed,
    Due,
    Effect,
    Event,
    HandlerError,
    Opened,
    Received,
    Send,
    SetTimer,
)
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import Decoder, encode

Run = Callable[[Callable[..., object]], None]

BAD = 666
"""The request code that the test's nodes fail on."""


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opaque: int) -> None:
    """The other end still answers."""
    writer.write(encode(Command(1, opaque=opaque)))
    decoder = Decoder()
    commands: list[Command] = []
    async with asyncio.timeout(60):
        while not commands:
            data = await reader.read(65536)
            assert data, "the connection was closed"
            commands += decoder.feed(data)
    assert commands == [Command(1, opaque=opaque)]


def raises_on_bad(event: Event, now: int) -> list[Effect]:
    if isinstance(event, Received):
        assert isinstance(event.message, Command)
        if event.message.code == BAD:
            raise KeyError("a bug")
        return [Send(event.link, event.message)]
    return []


# -- who pays --------------------------------------------------------------------------------------


def test_a_bug_in_one_handler_costs_that_link_only(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node(raises_on_bad)
        address = await bench.serve(node)
        good, bad = await bench.connect(address), await bench.connect(address)
        bad[1].write(encode(Command(1, opaque=5)) + encode(Command(BAD)) + encode(Command(2)))
        answered = Decoder().feed(await read_to_end(bad[0]))
        assert answered == [Command(1, opaque=5)], "what came before the bug is answered"
        await echoed(good[0], good[1], 7)
        assert Command(2) not in node.commands(), "the link is closed: nothing after the bug counts"
        assert [e.reason for e in node.events if isinstance(e, Closed)] == ["an internal error"]
        assert not bench.drivers[0].failed.done()
        good[1].close()
        bad[1].close()

    with caplog.at_level(logging.ERROR, "steelyard"):
        run_scenario(scenario)
    failed, events = caplog.records
    assert failed.exc_info is not None
    assert "KeyError('a bug')" in failed.getMessage()
    assert f"Received(link=2, message=Command(code={BAD}" in events.getMessage()
    assert "raised" in events.getMessage()


def test_effects_of_a_handler_that_failed_half_way_are_made_true(run_scenario: Run) -> None:
    """The error reply reaches the client before its link is closed; the other link's message goes out, too."""

    def reaction(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            effects: list[Effect] = [Send(1, Command(40)), Send(event.link, Command(1, opaque=9))]
            raise HandlerError(effects) from KeyError("a bug")
        return []

    async def scenario(bench: Any) -> None:
        node = bench.node(reaction)
        address = await bench.serve(node)
        first = await bench.connect(address)
        await bench.until(lambda: Opened in map(type, node.events))
        second = await bench.connect(address)
        second[1].write(encode(Command(BAD)))
        assert Decoder().feed(await read_to_end(second[0])) == [Command(1, opaque=9)]
        async with asyncio.timeout(60):
            assert Decoder().feed(await first[0].read(65536)) == [Command(40)]
        for _, writer in (first, second):
            writer.close()

    run_scenario(scenario)


def test_a_call_that_meets_a_bug_ends_with_its_cause(run_scenario: Run) -> None:
    def reaction(event: Event, now: int) -> list[Effect]:
        assert isinstance(event, Asked)
        if event.call == "bad":
            raise KeyError("a bug")
        return [Answer(event.call_id, event.call)]

    async def scenario(bench: Any) -> None:
        driver = bench.drive(bench.node(reaction))
        with pytest.raises(InternalError, match="a bug") as caught:
            await driver.ask("bad")
        assert isinstance(caught.value.__cause__, KeyError)
        assert await driver.ask("good") == "good"

    run_scenario(scenario)


def test_a_timer_whose_handler_raises_comes_again(
    run_scenario: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steelyard.driver.driver.DUE_AGAIN_MS", 5)

    async def scenario(bench: Any) -> None:
        node = bench.node(begin=[SetTimer("tick", 0)])

        def reaction(event: Event, now: int) -> list[Effect]:
            if len(node.events) < 5:
                raise KeyError("a bug")
            return [SetTimer("other", now)]

        node.reaction = reaction
        bench.drive(node)
        await bench.until(lambda: Due("other") in node.events)
        assert node.events[:6] == [*[Due("tick")] * 5, Due("other")]

    run_scenario(scenario)


def test_a_reply_that_cannot_be_encoded_costs_its_link_and_nothing_after_it(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def reaction(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            unfit = Command(1, body=5)  # type: ignore[arg-type]  # a bug
            return [Send(event.link, unfit), Send(1, Command(40)), SetTimer("after", now)]
        return []

    async def scenario(bench: Any) -> None:
        node = bench.node(reaction)
        address = await bench.serve(node)
        first = await bench.connect(address)
        await bench.until(lambda: node.events)
        second = await bench.connect(address)
        second[1].write(encode(Command(BAD)))
        assert await read_to_end(second[0]) == b""
        async with asyncio.timeout(60):
            assert Decoder().feed(await first[0].read(65536)) == [Command(40)]
        await bench.until(lambda: Due("after") in node.events)
        for _, writer in (first, second):
            writer.close()

    with caplog.at_level(logging.ERROR, "steelyard"):
        run_scenario(scenario)
    assert "Send(link=2" in caplog.records[0].getMessage()


class Broken:
    def feed(self, data: bytes) -> list[object]:
        raise IndexError("a bug of a decoder")


def test_a_bug_in_a_decoder_costs_its_link_and_not_what_others_sent_meanwhile(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node)
        peers = [await bench.connect(address) for _ in range(3)]
        await bench.until(lambda: len(node.events) == 3)
        driver = bench.drivers[0]
        driver._links[2].decoder = Broken()
        for link in (1, 2, 3):  # read in one pass
            driver.link_read(driver._links[link], encode(Command(1, opaque=link)))
        assert await read_to_end(peers[1][0]) == b""
        for number in (0, 2):
            async with asyncio.timeout(60):
                data = await peers[number][0].read(65536)
            assert Decoder().feed(data) == [Command(1, opaque=number + 1)]
        assert not driver.failed.done()
        for _, writer in peers:
            writer.close()

    with caplog.at_level(logging.ERROR, "steelyard"):
        run_scenario(scenario)
    assert "a bug of a decoder" in caplog.records[0].getMessage()


# -- when the node has to stop ---------------------------------------------------------------------


def test_a_broken_invariant_stops_the_node_and_callers_are_told_why(
    run_scenario: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node(raises_on_bad)

        def check() -> None:
            assert Command(BAD) not in node.commands(), "two owners of one queue"

        node.check = check
        reader, writer = await bench.connect(await bench.serve(node))
        driver = bench.drivers[0]
        call = driver.ask("no answer comes")
        writer.write(encode(Command(BAD)))
        async with asyncio.timeout(60):
            assert "two owners" in str(await driver.failed)
        await read_to_end(reader)
        for waiting in (call, driver.ask("too late")):
            with pytest.raises(ClosedError, match="two owners of one queue"):
                await waiting
        events = len(node.events)
        driver.handle(Due("later"))
        assert len(node.events) == events, "a stopped node got another event"
        writer.close()

    with caplog.at_level(logging.ERROR, "steelyard"):
        run_scenario(scenario)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["ERROR", "ERROR", "CRITICAL", "ERROR"]
    assert f"code={BAD}" in caplog.records[-1].getMessage(), "the last events are not in the log"


def test_checks_that_take_long_are_put_off_and_serve_many_errors(run_scenario: Run) -> None:
    """1. The check takes 30 ms. 2. Ten errors follow each other. 3. One check at once, one for all others, later."""

    async def scenario(bench: Any) -> None:
        node = bench.node(lambda event, now: [][1])  # IndexError
        checks = []

        def check() -> None:
            checks.append(len(node.events))
            before = asyncio.get_running_loop().time()
            time.sleep(0.03)
            assert asyncio.get_running_loop().time() >= before

        node.check = check
        driver = bench.drive(node)
        asked = [driver.ask(number) for number in range(10)]  # handled at once
        assert checks == [1]
        for each in asked:
            with pytest.raises(InternalError):
                await each
        await bench.until(lambda: len(checks) == 2)
        assert checks == [1, 10]

    run_scenario(scenario)


def test_a_node_that_cannot_start_is_stopped(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        node.start = lambda now: [][1]
        driver = bench.drive(node)
        assert isinstance(driver.failed.result(), IndexError)

    run_scenario(scenario)


# -- what is logged --------------------------------------------------------------------------------


def raised(text: str) -> KeyError:
    try:
        raise KeyError(text)
    except KeyError as error:
        return error


def test_an_error_that_repeats_is_counted_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(logging.getLogger("steelyard.test"))
    with caplog.at_level(logging.ERROR, "steelyard"):
        for _ in range(1000):
            failures.report("it failed", raised("x"), 5)
        assert len(caplog.records) == REPEATS_MAX + 1  # the events are logged once
        assert [record.exc_info is not None for record in caplog.records] == [True, *[False] * 10]
        assert "only counted" in caplog.records[-1].getMessage()
        failures.report("it failed", raised("x"), WINDOW_MS + 5)
        assert "990 more of these" not in caplog.records[-1].getMessage()
        assert "990 more of these" in caplog.records[-2].getMessage()
    assert failures.count == 1001


def test_different_errors_are_logged_each_but_the_events_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = Failures(logging.getLogger("steelyard.test"))
    with caplog.at_level(logging.ERROR, "steelyard"):
        failures.report("it failed", raised("x"), 5)
        failures.report("it failed", ValueError("y"), 6)
    texts = [record.getMessage() for record in caplog.records]
    assert [text.startswith("the last") for text in texts] == [False, True, False]


def test_kinds_of_errors_have_a_bound() -> None:
    failures = Failures(logging.getLogger("steelyard.silent"))
    failures._log.setLevel(logging.CRITICAL + 1)
    for number in range(3 * KINDS_MAX):
        failures.report("it failed", type(f"E{number}", (Exception,), {})(), 5)
        assert len(failures._kinds) <= KINDS_MAX


def test_the_last_events_are_kept_and_their_bytes_are_not(run_scenario: Run) -> None:
    """Messages of 100 KB go to and fro: the driver remembers that, but not the bytes."""
    large = b"x" * 100_000

    async def scenario(bench: Any) -> None:
        node = bench.node()
        reader, writer = await bench.connect(await bench.serve(node))
        driver = bench.drivers[0]
        count = EVENTS_MAX + 20
        for number in range(count):
            writer.write(encode(Command(1, opaque=number, body=large)))
        decoder, answers = Decoder(), 0
        async with asyncio.timeout(30):
            while answers < count:
                answers += len(decoder.feed(await reader.read(1 << 20)))
        events = driver._failures._events
        assert len(events) == EVENTS_MAX
        for _, event, effects in events:
            assert isinstance(event, str)
            assert "<100000 bytes>" in event
            assert effects == (Send,)
        node.events.clear()
        writer.close()

    run_scenario(scenario)


def test_a_value_is_shown_briefly() -> None:
    long = Command(
        1, ext={str(n): "v" * 500 for n in range(50)}, body=bytes(1000), remark="é\n\x1b"
    )
    text = brief(Received(3, long))
    assert "<1000 bytes>" in text
    assert "50 in all" in text
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 3 * LINE_MAX
    secret = Command(1, ext={"AccessKey": "k-1", "Signature": "s-1", "SecurityToken": "t-1"})
    assert brief(secret).count("***") == 3
    assert "-1" not in brief(secret.ext)

    class Rude:
        def __repr__(self) -> str:
            raise ValueError

        def __len__(self) -> int:
            raise ValueError

    assert brief(Rude()) == "<Rude>"
    assert brief(list(range(EVENT_BYTES_MAX))).endswith("... 16384 in all]")
