"""The driver against real sockets, real time and real threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from steelyard.driver.links import LinkLimits
from steelyard.driver.listening import advertised, bind
from steelyard.errors import ClosedError, ProtocolError
from steelyard.nodes.seam import (
    KAFKA,
    REMOTING,
    Answer,
    Asked,
    Closed,
    Deliver,
    Dial,
    DropTimer,
    Due,
    Effect,
    Event,
    Flush,
    Flushed,
    Handled,
    Hang,
    Mute,
    Opened,
    Received,
    Refused,
    Send,
    SetTimer,
)
from steelyard.types import ConsumeStatus, LogLine
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.frame import Decoder, encode
from steelyard.wire.strangers import Signs, recognise, refusal

Run = Callable[[Callable[..., object]], None]


async def read_commands(reader: asyncio.StreamReader, count: int) -> list[Command]:
    decoder = Decoder()
    commands: list[Command] = []
    async with asyncio.timeout(60):
        while len(commands) < count:
            data = await reader.read(65536)
            assert data, f"closed after {len(commands)} of {count} commands"
            commands += decoder.feed(data)
    return commands


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the peer closes; a reset is a close too."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


# -- bytes -----------------------------------------------------------------------------------------


def test_replies_come_in_order_however_the_bytes_are_cut(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        address = await bench.serve(bench.node())
        reader, writer = await bench.connect(address)
        sent = [Command(10, opaque=number, body=b"x" * number) for number in range(20)]
        data = b"".join(map(encode, sent))
        position = 0
        for size in (1, 2, 3, 5, 7, 11, 200, 1000, len(data)):
            writer.write(data[position : position + size])
            await writer.drain()
            await asyncio.sleep(0)
            position += size
        assert await read_commands(reader, 20) == sent
        writer.close()

    run_scenario(scenario)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x7f\xff\xff\xff" + b"\0" * 64,
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\x08\0\0\0\x04nope",
        b"\0\0\0\x00\0\0\0\x00",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["http", "two-gigabytes", "negative", "no-json", "zero", "tls"],
)
def test_garbage_closes_its_own_connection_only(
    run_scenario: Run, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node)
        good_reader, good = await bench.connect(address)
        bad_reader, bad = await bench.connect(address)
        bad.write(garbage)
        async with asyncio.timeout(60):
            answer = await read_to_end(bad_reader)
        stranger = recognise(garbage)
        assert answer == (b"" if stranger is None else refusal(stranger, Signs()))
        good.write(encode(Command(1, opaque=7)))
        assert await read_commands(good_reader, 1) == [Command(1, opaque=7)]
        closed = [event for event in node.events if isinstance(event, Closed)]
        assert len(closed) == 1
        assert ("broke the protocol" if stranger is None else "speaks") in closed[0].reason
        good.close()
        bad.close()

    with caplog.at_level(logging.WARNING, "steelyard"):
        run_scenario(scenario)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_frame_cut_by_the_peers_end_is_no_message(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        _, writer = await bench.connect(await bench.serve(node))
        writer.write(encode(Command(1))[:-1])
        writer.close()
        await bench.until(lambda: any(isinstance(event, Closed) for event in node.events))
        assert [type(event) for event in node.events] == [Opened, Closed]

    run_scenario(scenario)


def test_hundreds_of_connections_are_served(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        address = await bench.serve(bench.node())
        peers = [await bench.connect(address) for _ in range(400)]
        for number, (_, writer) in enumerate(peers):
            writer.write(encode(Command(1, opaque=number)))
        for number, (reader, writer) in enumerate(peers):
            assert await read_commands(reader, 1) == [Command(1, opaque=number)]
            writer.close()

    run_scenario(scenario)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_max", [1, 2_000, 1_000_000])
def test_many_links_that_send_a_lot_at_once(run_scenario: Run, read_max: int) -> None:
    """However many bytes one pass takes, each link's replies come whole and in order."""
    sent = [Command(10, opaque=number, body=b"x" * 500) for number in range(50)]

    async def scenario(bench: Any) -> None:
        address = await bench.serve(bench.node(), LinkLimits(read_max=read_max))
        peers = [await bench.connect(address) for _ in range(20)]
        for _, writer in peers:
            writer.write(b"".join(map(encode, sent)))
        for reader, writer in peers:
            assert await read_commands(reader, len(sent)) == sent
            writer.close()

    run_scenario(scenario)


def test_connections_past_the_limit_are_closed_and_room_comes_back(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node, LinkLimits(accepted_max=2))
        kept = [await bench.connect(address) for _ in range(2)]
        for reader, writer in kept:
            writer.write(encode(Command(1)))
            assert await read_commands(reader, 1) == [Command(1)]
        reader, writer = await bench.connect(address)
        async with asyncio.timeout(60):
            assert await read_to_end(reader) == b""
        writer.close()
        kept[0][1].close()
        await bench.until(lambda: isinstance(node.events[-1], Closed))
        reader, writer = await bench.connect(address)
        writer.write(encode(Command(1)))
        assert await read_commands(reader, 1) == [Command(1)]
        writer.close()
        kept[1][1].close()

    run_scenario(scenario)


def test_a_peer_that_does_not_read_pushes_is_cut_off(run_scenario: Run) -> None:
    push = Command(40, body=b"x" * 100_000)

    def push_on_request(event: Event, now: int) -> list[Effect]:
        return [Send(1, push)] if isinstance(event, Asked) else []

    async def scenario(bench: Any) -> None:
        node = bench.node(push_on_request)
        limits = LinkLimits(write_high=100_000, write_max=1_000_000)
        address = await bench.serve(node, limits)
        driver = bench.drivers[0]
        _, writer = await bench.connect(address)
        await bench.until(lambda: node.events)
        for number in range(1000):
            driver.handle(Asked(number, None))
            if number % 10 == 0:
                await asyncio.sleep(0)
            if any(isinstance(event, Closed) for event in node.events):
                break
        await bench.until(lambda: any(isinstance(event, Closed) for event in node.events))
        (closed,) = (event for event in node.events if isinstance(event, Closed))
        assert closed.reason == "does not read the data sent to it"
        writer.close()

    run_scenario(scenario)


def test_a_peer_that_does_not_read_replies_is_not_read_either(run_scenario: Run) -> None:
    """1. A peer sends 3,000 requests at once and reads nothing. 2. The driver answers some, then waits:
    what it keeps stays small. 3. The peer reads: every reply comes, in order."""
    reply = b"x" * 50_000

    def answer_large(event: Event, now: int) -> list[Effect]:
        if not isinstance(event, Received):
            return []
        assert isinstance(event.message, Command)
        return [Send(event.link, Command(0, opaque=event.message.opaque, body=reply))]

    async def scenario(bench: Any) -> None:
        node = bench.node(answer_large)
        address = await bench.serve(node, LinkLimits(write_high=100_000))
        reader, writer = await bench.connect(address)
        writer.write(b"".join(encode(Command(1, opaque=number)) for number in range(3000)))
        await bench.until(lambda: len(node.commands()) > 10)
        handled = -1
        while handled != len(node.commands()):
            handled = len(node.commands())
            await asyncio.sleep(0.05)
        assert handled < 1500, "the requests of a peer that reads nothing were all answered"
        replies = await read_commands(reader, 3000)
        assert [command.opaque for command in replies] == list(range(3000))
        writer.close()

    run_scenario(scenario)


def test_requests_read_in_the_pass_in_which_a_link_chokes_are_neither_lost_nor_mixed_up(
    run_scenario: Run,
) -> None:
    """1. Large requests come in several reads. 2. The answers to the first of them choke the link: the rest of that read
    is kept. 3. The other reads were taken in already; their requests have to come after what is kept."""

    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node, LinkLimits(write_high=100_000))
        reader, writer = await bench.connect(address)
        sent = [Command(1, opaque=number, body=b"x" * 100_000) for number in range(200)]
        writer.write(b"".join(map(encode, sent)))
        await bench.until(lambda: len(node.commands()) > 3)
        await asyncio.sleep(0.05)  # what it has read by now is more than one read
        assert await read_commands(reader, 200) == sent
        assert node.commands() == sent
        writer.close()

    run_scenario(scenario)


def test_unfinished_frames_have_a_bound(run_scenario: Run) -> None:
    """1. A client sends a request, and begins a large one. 2. Two peers that never end a frame begin 1 MB each, and
    exceed the bound: one of them is cut off. 3. The client, and who is left, end theirs."""

    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node, LinkLimits(unfinished_max=4_500_000))
        driver = bench.drivers[0]
        client_reader, client = await bench.connect(address)
        request = encode(Command(2))
        large = encode(Command(1, body=b"x" * 3_000_000))
        client.write(request)
        assert len(await read_commands(client_reader, 1)) == 1
        client.write(large[:-1])
        await bench.until(lambda: driver.unfinished == len(large) - 1)
        data = encode(Command(1, body=b"x" * 1_000_000))
        peers = [await bench.connect(address) for _ in range(2)]
        for number, (_, writer) in enumerate(peers, 1):
            writer.write(data[:-1])
            if number == 1:
                await bench.until(lambda: driver.unfinished == len(large) + len(data) - 2)
        async with asyncio.timeout(60):
            assert await read_to_end(peers[0][0]) == b""
        client.write(large[-1:])
        assert len(await read_commands(client_reader, 1)) == 1
        peers[1][1].write(data[-1:])
        assert len(await read_commands(peers[1][0], 1)) == 1
        assert driver.unfinished == 0
        for _, writer in peers:
            writer.close()
        client.close()

    run_scenario(scenario)


def test_a_silent_link_is_closed(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node()
        address = await bench.serve(node, LinkLimits(idle_ms=50, sweep_ms=10))
        reader, writer = await bench.connect(address)
        async with asyncio.timeout(60):
            assert await read_to_end(reader) == b""
        await bench.until(lambda: len(node.events) == 2)
        assert node.events[1] == Closed(1, "idle for too long")
        writer.close()

    run_scenario(scenario)


def test_kafkas_links_have_a_silence_of_their_own(run_scenario: Run) -> None:
    """1. Two clients are silent. 2. RocketMQ's is closed. 3. Kafka's, in whose protocol requests wait for longer, is not yet."""

    async def scenario(bench: Any) -> None:
        node = bench.node()
        driver = bench.drive(node, LinkLimits(idle_ms=50, kafka_idle_ms=500, sweep_ms=10))
        peers = []
        for name in (KAFKA, REMOTING):
            listener = bind("127.0.0.1", 0)
            await driver.listen(listener, name)
            peers.append(await bench.connect(advertised("127.0.0.1", listener)))
            await bench.until(lambda: len(node.events) == len(peers))
        async with asyncio.timeout(60):
            for reader, _ in peers:
                assert await read_to_end(reader) == b""
        await bench.until(lambda: len(node.events) == 4)
        reason = "idle for too long"
        assert node.events[2:] == [Closed(2, reason), Closed(1, reason)]
        assert node.times[3] - node.times[0] >= 500 - 2  # the sweep reads the clock by itself
        for _, writer in peers:
            writer.close()

    run_scenario(scenario)


def test_nothing_is_taken_from_a_muted_link(run_scenario: Run) -> None:
    """1. It is muted with a reply. 2. What comes then waits, however idle links are. 3. It is taken in the end."""
    muted_ms = 300

    def answer_and_mute(event: Event, now: int) -> list[Effect]:
        if not isinstance(event, Received):
            return []
        effects: list[Effect] = [Send(event.link, event.message)]
        if event.message == Command(1):
            effects += [Mute(event.link, now + 10), Mute(event.link, now + muted_ms)]
        return effects

    async def scenario(bench: Any) -> None:
        node = bench.node(answer_and_mute)
        limits = LinkLimits(idle_ms=200, sweep_ms=10)
        reader, writer = await bench.connect(await bench.serve(node, limits))
        decoder = Decoder()
        writer.write(encode(Command(1)))
        async with asyncio.timeout(60):
            assert decoder.feed(await reader.read(1000)) == [Command(1)]
            writer.write(encode(Command(2)))
            assert decoder.feed(await reader.read(1000)) == [Command(2)]
        first, second = node.times[1:3]
        assert second - first >= muted_ms - 2  # the clocks of timers and of the node are read apart
        writer.close()
        await bench.until(lambda: isinstance(node.events[-1], Closed))

    run_scenario(scenario)


def test_a_muted_link_may_be_hung_up_on(run_scenario: Run) -> None:
    def mute_and_hang(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            return [Mute(event.link, now + 60_000), Hang(event.link, "enough")]
        return []

    async def scenario(bench: Any) -> None:
        node = bench.node(mute_and_hang)
        reader, writer = await bench.connect(await bench.serve(node))
        writer.write(encode(Command(1)))
        async with asyncio.timeout(60):
            assert await read_to_end(reader) == b""
        await bench.until(lambda: isinstance(node.events[-1], Closed))
        writer.close()

    run_scenario(scenario)


# -- dialing ---------------------------------------------------------------------------------------


def test_two_drivers_talk(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        address = await bench.serve(bench.node())

        def register(event: Event, now: int) -> list[Effect]:
            return [Send(event.link, Command(34))] if isinstance(event, Opened) else []

        node = bench.node(register, [Dial(address)])
        bench.drive(node)
        await bench.until(lambda: len(node.events) == 2)
        assert node.events == [Opened(1, address, dialed=True), Received(1, Command(34))]

    run_scenario(scenario)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:80", "nonsense", "a:b"])
def test_a_dial_to_nobody_is_refused(run_scenario: Run, address: str) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node(begin=[Dial(address)])
        bench.drive(node)
        await bench.until(lambda: node.events)
        (refused,) = node.events
        assert isinstance(refused, Refused)
        assert refused.address == address
        assert refused.reason

    run_scenario(scenario)


def test_a_dial_without_a_thread_to_look_up_the_name_is_refused(run_scenario: Run) -> None:
    """Otherwise the node would wait for ever, because it does not dial an address twice at a time."""

    async def scenario(bench: Any) -> None:
        executor = ThreadPoolExecutor()
        executor.shutdown()
        asyncio.get_running_loop().set_default_executor(executor)  # uvloop has threads of its own
        node = bench.node(begin=[Dial("no.such.host.invalid:80")])
        bench.drive(node)
        await bench.until(lambda: [type(event) for event in node.events] == [Refused])

    run_scenario(scenario)


def test_hang_closes_after_what_was_sent(run_scenario: Run) -> None:
    def answer_and_hang(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            return [Send(event.link, Command(0, body=b"x" * 300_000)), Hang(event.link, "enough")]
        return []

    async def scenario(bench: Any) -> None:
        node = bench.node(answer_and_hang)
        reader, writer = await bench.connect(await bench.serve(node))
        writer.write(encode(Command(1)) * 3)
        async with asyncio.timeout(60):
            assert Decoder().feed(await reader.read()) == [Command(0, body=b"x" * 300_000)]
        await bench.until(lambda: isinstance(node.events[-1], Closed))
        assert node.events[1:] == [Received(1, Command(1)), Closed(1, "enough")]
        writer.close()

    run_scenario(scenario)


def test_hang_at_once_does_not_wait_for_a_peer_that_reads_nothing(run_scenario: Run) -> None:
    is_over = asyncio.Event()

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # asyncio types it as a BaseTransport
        await is_over.wait()
        writer.transport.abort()  # the server waits for it from Python 3.12 on

    def send_and_hang(event: Event, now: int) -> list[Effect]:
        if isinstance(event, Opened):
            return [
                Send(event.link, Command(1, body=b"x" * 16_000_000)),
                SetTimer("hang", now + 50),
            ]
        return [Hang(1, "dead", at_once=True)] if isinstance(event, Due) else []

    async def scenario(bench: Any) -> None:
        async with await asyncio.start_server(never_read, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            node = bench.node(send_and_hang, [Dial(f"127.0.0.1:{port}")])
            bench.drive(node)
            await bench.until(lambda: node.events[-1:] == [Closed(1, "dead")])
            is_over.set()
            server.close()

    run_scenario(scenario)


def test_sending_to_a_dead_link_is_silent(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node(begin=[Send(17, Command(1)), Hang(17, "gone")])
        driver = bench.drive(node)
        await asyncio.sleep(0)
        assert not driver.failed.done()
        assert node.events == []

    run_scenario(scenario)


# -- timers ----------------------------------------------------------------------------------------


def test_timers_fire_once_and_in_time(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        now = time.time_ns() // 1_000_000
        begin: list[Effect] = [
            SetTimer("past", now - 1000),
            SetTimer("plain", now + 20),
            SetTimer("moved later", now + 10),
            SetTimer("moved later", now + 40),
            SetTimer("moved earlier", now + 60_000),
            SetTimer("moved earlier", now + 30),
            SetTimer("dropped", now + 5),
            DropTimer("dropped"),
            DropTimer("never set"),
            SetTimer(("a", "tuple"), now + 50),
        ]
        node = bench.node(begin=begin)
        bench.drive(node)
        await bench.until(lambda: Due(("a", "tuple")) in node.events)
        # On a machine that stalls several are due at once: in which order they fire then is not promised.
        due = {"past": 0, "plain": 20, "moved earlier": 30, "moved later": 40, ("a", "tuple"): 50}
        await bench.until(lambda: len(node.events) >= len(due))
        fired = dict(zip(node.events, node.times, strict=True))
        assert len(fired) == len(node.events)
        assert fired.keys() == {Due(key) for key in due}
        assert all(fired[Due(key)] >= now + after for key, after in due.items())

    run_scenario(scenario)


def test_a_timer_may_be_set_anew_when_it_fires(run_scenario: Run) -> None:
    def again(event: Event, now: int) -> list[Effect]:
        return [SetTimer("tick", now + 2)]

    async def scenario(bench: Any) -> None:
        node = bench.node(again, [SetTimer("tick", 0)])
        bench.drive(node)
        await bench.until(lambda: len(node.events) >= 5)

    run_scenario(scenario)


def test_time_never_goes_back(run_scenario: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Any) -> None:
        driver = bench.drive(bench.node())
        wall = [5_000]
        monkeypatch.setattr(driver, "_time_last", 0)
        monkeypatch.setattr("steelyard.driver.driver.time.time_ns", lambda: wall[0] * 1_000_000)
        seen = []
        for step in (5_000, 5_010, 4_000, 4_001, 4_500, 4_500, 9_000):
            wall[0] = step
            seen.append(driver.clock())
        assert seen == [5_000, 5_010, 5_010, 5_011, 5_510, 5_510, 10_010]

    run_scenario(scenario)


# -- calls, hands, threads ---------------------------------------------------------------------------


def answer_calls(event: Event, now: int) -> list[Effect]:
    if isinstance(event, Asked):
        return [Answer(event.call_id, event.call)]
    return []


def test_a_call_gets_its_answer_or_error(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        driver = bench.drive(bench.node(answer_calls))
        assert await driver.ask("a value") == "a value"
        with pytest.raises(ProtocolError, match="wrong"):
            await driver.ask(ProtocolError("wrong"))

    run_scenario(scenario)


def test_calls_end_when_the_driver_closes(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        driver = bench.drive(bench.node(lambda event, now: []))
        waiting = driver.ask("no answer comes")
        await driver.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await driver.ask("too late")

    run_scenario(scenario)


def test_threads_post_and_ask(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        node = bench.node(answer_calls)
        driver = bench.drive(node)
        answers: list[object] = []

        def work(thread: int) -> None:
            for number in range(2000):
                driver.post(Handled(thread * 10_000 + number, ConsumeStatus.CONSUME_SUCCESS))
            driver.ask_from_thread(thread, answers.append)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        await bench.until(lambda: len(answers) == 4)
        for thread in threads:
            thread.join()
        tickets = [event.ticket for event in node.events if isinstance(event, Handled)]
        assert len(tickets) == 8000
        for number in range(4):
            mine = [ticket for ticket in tickets if ticket // 10_000 == number]
            assert mine == sorted(mine), "posts of one thread were mixed up"
        assert sorted(answers) == [0, 1, 2, 3]  # type: ignore[type-var]  # all of them ints

    run_scenario(scenario)


def test_a_thread_that_asks_a_closed_driver_is_told(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        driver = bench.drive(bench.node(answer_calls))
        await driver.close()
        answers: list[object] = []
        await asyncio.to_thread(driver.ask_from_thread, "hello", answers.append)
        assert [type(answer) for answer in answers] == [ClosedError]

    run_scenario(scenario)


def test_hands_reach_the_application(run_scenario: Run) -> None:
    async def scenario(bench: Any) -> None:
        handed: list[tuple[int, object]] = []
        node = bench.node(begin=[Deliver(1, "first"), Deliver(2, "second")])
        bench.drive(node, on_hand=lambda ticket, batch: handed.append((ticket, batch)))
        assert handed == [(1, "first"), (2, "second")]

    run_scenario(scenario)


def test_tell_is_logged(run_scenario: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Any) -> None:
        bench.drive(bench.node(begin=[LogLine("ERROR", "100 % wrong"), LogLine("INFO", "fine")]))

    with caplog.at_level(logging.INFO, "steelyard"):
        run_scenario(scenario)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "100 % wrong"),
        ("INFO", "fine"),
    ]


# -- flushing --------------------------------------------------------------------------------------


def test_tickets_that_wait_share_a_flush(run_scenario: Run) -> None:
    """1. Ticket 1 starts a flush, which blocks. 2. Tickets 2 to 5 come. 3. It ends; one more flush serves all."""

    async def scenario(bench: Any) -> None:
        def flush_on_call(event: Event, now: int) -> list[Effect]:
            return [Flush(event.call_id)] if isinstance(event, Asked) else []

        node = bench.node(flush_on_call)
        gate = threading.Event()
        flushes: list[str] = []

        def flush() -> None:
            gate.wait(60)
            flushes.append("done")

        def prepare() -> Callable[[], None]:
            flushes.append("prepared")
            return flush

        driver = bench.drive(node, prepare_flush=prepare)
        driver.handle(Asked(1, None))
        await bench.until(lambda: flushes == ["prepared"])
        for ticket in range(2, 6):
            driver.handle(Asked(ticket, None))
        assert not any(isinstance(event, Flushed) for event in node.events)
        gate.set()
        await bench.until(lambda: Flushed(5) in node.events)
        done = [event for event in node.events if isinstance(event, Flushed)]
        assert done == [Flushed(ticket) for ticket in range(1, 6)]
        assert flushes == ["prepared", "done", "prepared", "done"]

    run_scenario(scenario)


def test_a_failed_flush_stops_the_node(run_scenario: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Any) -> None:
        def fail() -> None:
            raise OSError(5, "Input/output error")

        node = bench.node(begin=[Flush(1)])
        driver = bench.drive(node, prepare_flush=lambda: fail)
        async with asyncio.timeout(60):
            error = await driver.failed
        assert isinstance(error, OSError)
        assert node.events == [], "a flush that failed was acknowledged"

    with caplog.at_level(logging.CRITICAL, "steelyard"):
        run_scenario(scenario)
    assert len(caplog.records) == 1
