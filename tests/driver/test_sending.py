"""Answers that lie in files: sent as they lie, in their order, to peers that read fast, slowly or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from steelyard.driver.disk import LiveFile
from steelyard.driver.links import LinkLimits
from steelyard.driver.listening import advertised, bind
from steelyard.nodes.seam import KAFKA, Closed, Effect, Event, Hang, Received, Send
from steelyard.wire.kafka.frame import (
    APART_MIN,
    Reply,
    ReplyDecoder,
    Request,
    encode,
    read_reply,
)
from steelyard.wire.kafka.messages.data import (
    FETCH,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from steelyard.wire.kafka.schema import Records

Run = Callable[[Callable[..., object]], None]

VERSION = 12
SIZE = 4 * 1024 * 1024


class Shelf:
    """A file of random bytes, and a node that answers fetches from it: each partition asked for by place and size."""

    def __init__(self, path: Path, hang_after: int = -1) -> None:
        self.path = path
        self.data = random.Random(7).randbytes(SIZE)
        path.write_bytes(self.data)
        self.asked = 0
        self.closed: list[str] = []
        self._file: LiveFile | None = LiveFile(str(path))
        self._hang_after = hang_after

    def close(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None

    def is_open(self) -> bool:
        return str(self.path) in [file.path for file in psutil.Process().open_files()]

    def react(self, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Closed):
            self.closed.append(event.reason)
        if not isinstance(event, Received):
            return []
        request = event.message
        assert isinstance(request, Request)
        assert isinstance(request.message, FetchRequest)
        assert self._file is not None
        self.asked += 1
        position, size = request.message.min_bytes, request.message.max_bytes
        lent = self._file.lend(position, size)
        given = lent if size >= APART_MIN else lent.read()
        topic = FetchableTopicResponse(partitions=[PartitionData(records=given)])
        reply = Reply(FETCH, VERSION, request.correlation_id, FetchResponse(responses=[topic]))
        effects: list[Effect] = [Send(event.link, reply)]
        if self.asked == self._hang_after:
            effects.append(Hang(event.link, "enough"))
        return effects


async def serve(bench: Any, shelf: Shelf, limits: LinkLimits | None = None) -> str:
    driver = bench.drive(bench.node(shelf.react), limits)
    listener = bind("127.0.0.1", 0)
    await driver.listen(listener, KAFKA)
    return advertised("127.0.0.1", listener)


def ask(number: int, position: int, size: int) -> bytes:
    request = FetchRequest(min_bytes=position, max_bytes=size)
    return encode(Request(FETCH, VERSION, number, "test", request))


async def read_records(reader: asyncio.StreamReader, count: int) -> list[Records | None]:
    """Of the answers to the requests 0, 1, ..., in their order."""
    decoder = ReplyDecoder()
    found: list[Records | None] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            data = await reader.read(100_000)
            assert data, f"closed after {len(found)} of {count} answers"
            for raw in decoder.feed(data):
                assert raw.correlation_id == len(found)
                answer = read_reply(FETCH, VERSION, raw)
                assert isinstance(answer, FetchResponse)
                found.append(answer.responses[0].partitions[0].records)
    return found


def test_files_and_bytes_come_in_their_order(run_scenario: Run, tmp_path: Path) -> None:
    """Small answers, which are bytes, between large ones, many at once and one by one."""
    shelf = Shelf(tmp_path / "shelf")
    chance = random.Random(11)
    places = []
    for _ in range(200):
        size = chance.choice([0, 10, APART_MIN - 1, APART_MIN, 100_000, 1_000_000])
        places.append((chance.randrange(SIZE - size), size))
    wanted = [shelf.data[position : position + size] for position, size in places]

    async def scenario(bench: Any) -> None:
        reader, writer = await bench.connect(await serve(bench, shelf))
        for number, place in enumerate(places[:100]):
            writer.write(ask(number, *place))
        writer.write(b"".join([ask(100 + n, *place) for n, place in enumerate(places[100:])]))
        assert await read_records(reader, 200) == wanted
        writer.close()
        reader, writer = await bench.connect(await serve(bench, shelf))
        for place, data in zip(places[:50], wanted, strict=False):
            writer.write(ask(0, *place))
            assert await read_records(reader, 1) == [data]
        writer.close()

    run_scenario(scenario)


def test_files_are_read_where_no_descriptor_is_left_to_send_them_with(
    run_scenario: Run, tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def scenario(bench: Any) -> None:
        address = await serve(bench, shelf, LinkLimits(accepted_max=1))
        reader, writer = await bench.connect(address)
        writer.write(ask(0, 5, 1_000_000) + ask(1, 7, 10) + ask(2, 9, 500_000))
        wanted = [shelf.data[5:1_000_005], shelf.data[7:17], shelf.data[9:500_009]]
        assert await read_records(reader, 3) == wanted
        assert bench.drivers[0].accepting.descriptors == 1
        writer.close()
        await bench.until(lambda: bench.drivers[0].accepting.descriptors == 0)

    run_scenario(scenario)


def test_a_file_after_bytes_that_wait(run_scenario: Run, tmp_path: Path) -> None:
    """The peer has not read the small answers when the large one comes: they are the transport's."""
    shelf = Shelf(tmp_path / "shelf")
    places = [(number, APART_MIN - 1) for number in range(1000)] + [(0, SIZE), (1, 10)]

    async def scenario(bench: Any) -> None:
        address = await serve(bench, shelf, LinkLimits(write_high=64 * 1024 * 1024))
        reader, writer = await bench.connect(address)
        asked = [ask(number, *place) for number, place in enumerate(places)]
        writer.write(b"".join(asked[:1000]))
        await bench.until(lambda: shelf.asked == 1000)
        writer.write(b"".join(asked[1000:]))
        await bench.until(lambda: shelf.asked == 1002)
        found = await read_records(reader, len(places))
        assert found == [shelf.data[position : position + size] for position, size in places]
        writer.close()

    run_scenario(scenario)


def test_a_file_may_be_deleted_while_it_is_sent(run_scenario: Run, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def scenario(bench: Any) -> None:
        reader, writer = await bench.connect(await serve(bench, shelf))
        writer.write(b"".join([ask(number, 0, SIZE) for number in range(4)]))
        await bench.until(lambda: shelf.asked)
        shelf.path.unlink()
        assert await read_records(reader, 4) == [shelf.data] * 4
        writer.close()

    run_scenario(scenario)


def test_a_peer_that_does_not_read_files_is_not_read_either(
    run_scenario: Run, tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def scenario(bench: Any) -> None:
        reader, writer = await bench.connect(await serve(bench, shelf))
        for number in range(50):
            writer.write(ask(number, 0, SIZE))
            await asyncio.sleep(0.002)
        await bench.until(lambda: shelf.asked)
        assert shelf.asked < 50
        assert await read_records(reader, 50) == [shelf.data] * 50
        writer.close()

    run_scenario(scenario)


def test_hang_comes_after_the_file(run_scenario: Run, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf", hang_after=2)

    async def scenario(bench: Any) -> None:
        reader, writer = await bench.connect(await serve(bench, shelf))
        writer.write(ask(0, 0, SIZE) + ask(1, 100, SIZE - 100))
        assert await read_records(reader, 2) == [shelf.data, shelf.data[100:]]
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()

    run_scenario(scenario)


def test_a_file_is_let_go_of_with_its_link(run_scenario: Run, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def scenario(bench: Any) -> None:
        _, writer = await bench.connect(await serve(bench, shelf))
        writer.write(b"".join([ask(number, 0, SIZE) for number in range(8)]))
        await bench.until(lambda: shelf.asked)
        shelf.close()
        assert shelf.is_open(), "somebody still waits for its bytes"
        writer.transport.abort()
        await bench.until(lambda: shelf.closed and not shelf.is_open())

    run_scenario(scenario)


def test_a_file_that_was_cut_ends_the_link(run_scenario: Run, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")

    async def scenario(bench: Any) -> None:
        reader, writer = await bench.connect(await serve(bench, shelf))
        shelf.path.write_bytes(shelf.data[: SIZE // 2])
        writer.write(ask(0, 0, SIZE))
        async with asyncio.timeout(60):
            while await reader.read(1 << 20):
                """What is left of it."""
        await bench.until(lambda: shelf.closed)
        assert "the file has been cut" in shelf.closed[0]

    run_scenario(scenario)
