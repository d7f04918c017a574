"""Questions to Kafka listeners: versions that both sides speak, and what becomes of a call when the connection ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from steelyard.driver.awaited_links import KafkaRequester
from steelyard.errors import CallTimeoutError, ConnectError, ProtocolError, RemotingError
from steelyard.wire.kafka.frame import Reply, Request, RequestDecoder, encode
from steelyard.wire.kafka.messages.cluster import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    ApiVersion,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

Answer = Callable[[Request], bytes | None]
"""What a server sends for a request; None: nothing, and it closes the connection."""


class Listener:
    """A server that speaks Metadata 1 to 5. `connections`: how many there were."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.connections = 0
        self.versions: list[int] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        decoder = RequestDecoder()
        while data := await reader.read(1_000):
            for request in decoder.feed(data):
                if request.api is API_VERSIONS:
                    found = ApiVersionsResponse(api_keys=(ApiVersion(METADATA.key, 1, 5),))
                    reply = Reply(API_VERSIONS, request.version, request.correlation_id, found)
                    writer.write(encode(reply))
                    continue
                self.versions.append(request.version)
                answer = self.answer(request)
                if answer is None:
                    writer.close()
                    return
                writer.write(answer)
        writer.close()


def metadata(request: Request) -> bytes:
    found = MetadataResponse(cluster_id=f"v{request.version}")
    return encode(Reply(METADATA, request.version, request.correlation_id, found))


@asynccontextmanager
async def listening(
    answer: Answer, timeout_ms: int = 60_000
) -> AsyncIterator[tuple[Listener, str, KafkaRequester]]:
    listener = Listener(answer)
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    requester = KafkaRequester("tester", timeout_ms=timeout_ms)
    try:
        yield listener, f"{host}:{port}", requester
    finally:
        await requester.close()
        server.close()


def played(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_one_connection_and_the_newest_version_of_both() -> None:
    async def story() -> None:
        async with listening(metadata) as (listener, address, requester):
            asked = (
                requester.call(address, METADATA, MetadataRequest(), MetadataResponse)
                for _ in range(3)
            )
            found = await asyncio.gather(*asked)
            assert [one.cluster_id for one in found] == ["v5"] * 3
            older = await requester.call(
                address, METADATA, MetadataRequest(), MetadataResponse, version_max=3
            )
            assert older.cluster_id == "v3"
            assert listener.connections == 1
            assert await requester.supports(address, METADATA)
            assert not await requester.supports(address, FIND_COORDINATOR)

    played(story)


def test_what_the_server_does_not_speak() -> None:
    async def story() -> None:
        async with listening(metadata) as (listener, address, requester):
            wanted = FindCoordinatorRequest("g")
            with pytest.raises(ProtocolError, match="does not support"):
                await requester.call(address, FIND_COORDINATOR, wanted, FindCoordinatorResponse)
            request = MetadataRequest()
            with pytest.raises(ProtocolError, match="does not support"):
                await requester.call(address, METADATA, request, MetadataResponse, version_max=0)
            assert listener.versions == []

    played(story)


def test_a_connection_that_ends_fails_its_calls_and_the_next_opens_another() -> None:
    answers: list[Answer] = [lambda _: None, metadata]

    async def story() -> None:
        async with listening(lambda one: answers.pop(0)(one)) as (listener, address, requester):
            with pytest.raises(RemotingError, match="closed the connection"):
                await requester.call(address, METADATA, MetadataRequest(), MetadataResponse)
            await requester.call(address, METADATA, MetadataRequest(), MetadataResponse)
            assert listener.connections == 2

    played(story)


def test_no_answer_and_nonsense() -> None:
    async def silent() -> None:
        async with listening(lambda _: b"", 50) as (_, address, requester):
            with pytest.raises(CallTimeoutError, match="within the time-out"):
                await requester.call(address, METADATA, MetadataRequest(), MetadataResponse)

    async def nonsense() -> None:
        async with listening(lambda _: b"\xff" * 20) as (_, address, requester):
            with pytest.raises(ProtocolError):
                await requester.call(address, METADATA, MetadataRequest(), MetadataResponse)

    async def nobody() -> None:
        requester = KafkaRequester("tester", timeout_ms=5_000)
        with pytest.raises(ConnectError, match="cannot connect"):
            await requester.call("127.0.0.1:1", METADATA, MetadataRequest(), MetadataResponse)
        await requester.close()

    for story in (silent, nonsense, nobody):
        played(story)
