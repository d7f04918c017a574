"""Hostile but well-formed requests of both dialects: nobody else may notice, and the servers must neither end nor swell.

    ./dev fuzz hostile --seconds 600 --seed N

Attackers in a process of their own send requests that are whole and legal: of every API with absurd values, by the thousand
on one connection, with answers that nobody reads, long polls that nobody ends, batches that unpack to sixty megabytes, groups
without end, conditions that match nothing. Meanwhile the clients of `load` must be served: whatever is acknowledged to them
must be there, and their latencies are told.

Exit code 1 when something was wrong; the servers' output is then kept in out/hostile-<seed>/.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from multiprocessing.queues import Queue
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fuzz import garbage  # noqa: E402
from tests.fuzz.cluster import Cluster, FaultError  # noqa: E402
from tests.fuzz.load import Load  # noqa: E402
from tests.fuzz.trial import latencies, parser, run  # noqa: E402
from tests.nodes.broker.kafka.conftest import batch  # noqa: E402
from tests.nodes.broker.kafka.requests import joining, producing  # noqa: E402
from tests.nodes.broker.kafka.test_nonsense import Nonsense, served  # noqa: E402

from steelyard.errors import ProtocolError  # noqa: E402
from steelyard.wire.kafka.apis import APIS  # noqa: E402
from steelyard.wire.kafka.compression import Compression  # noqa: E402
from steelyard.wire.kafka.frame import Request, encode  # noqa: E402
from steelyard.wire.kafka.messages.cluster import (  # noqa: E402
    MetadataRequest,
    MetadataRequestTopic,
)
from steelyard.wire.kafka.messages.data import (  # noqa: E402
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from steelyard.wire.kafka.messages.topics import (  # noqa: E402
    CreatableTopic,
    CreateTopicsRequest,
)
from steelyard.wire.kafka.messages.transactions import InitProducerIdRequest  # noqa: E402
from steelyard.wire.kafka.schema import Api, ApiMessage  # noqa: E402
from steelyard.wire.remoting import bodies, fastjson, frame  # noqa: E402
from steelyard.wire.remoting.command import Command  # noqa: E402

ATTACKERS = 6
GROWTH_BYTES_MAX = 512 * 1024 * 1024
"""How much a server's memory may grow: bounded waiting lists, unfinished frames and unsent answers are in it."""

TOPICS_MAX = 500
"""Topics that the attackers make; each costs for good, as in any broker."""
BOMB_BYTES = 60 * 1024 * 1024
BOMB_TOPIC = "Bombs"


class Attackers:
    """Everything that is thrown at one cluster; runs in a process of its own."""

    def __init__(self, bootstrap: str, nameserver: str, seed: int) -> None:
        self._kafka = bootstrap.split(",")
        self._nameserver = nameserver
        self._rng = Random(f"hostile {seed}")
        self._nonsense = Nonsense(self._rng, [])
        self._apis = served()
        self._serial = count(1)
        self._topics = 0
        self._brokers: list[str] = []
        self.counts: Counter[str] = Counter()
        self._bomb = batch(
            bytes(BOMB_BYTES // 2), bytes(BOMB_BYTES // 2), compression=Compression.ZSTD
        )

    async def run(self, seconds: float) -> None:
        self._brokers = await self._remoting_addresses()
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._attack(until) for _ in range(ATTACKERS)))

    async def _remoting_addresses(self) -> list[str]:
        reader, writer = await asyncio.open_connection(*_place(self._nameserver))
        writer.write(frame.encode(Command(code=106, opaque=1)))
        decoder = frame.Decoder()
        answers: list[Command] = []
        while not answers:
            answers = list(decoder.feed(await reader.read(1 << 20)))
        writer.transport.abort()
        info = fastjson.read(bodies.ClusterInfo, answers[0].body)
        return sorted(
            a for data in info.broker_addr_table.values() for a in data.broker_addrs.values()
        )

    async def _attack(self, until: float) -> None:
        manners: tuple[Callable[[], Awaitable[None]], ...] = (
            *[self.absurd_kafka_requests] * 6,
            *[self.absurd_remoting_requests] * 6,
            self.many_connections,
            self.short_connections,
            self.bombs,
            self.wide_metadata,
            self.groups_without_end,
            self.long_polls,
            self.unread_answers,
            self.conditions,
            self.producer_ids,
            self.new_topics,
            self.wide_heartbeats,
        )
        while time.monotonic() < until:
            manner = self._rng.choice(manners)
            self.counts[manner.__name__] += 1
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                await asyncio.wait_for(manner(), 20)

    # -- sending -----------------------------------------------------------------------------------

    async def _talk(self, address: str, frames: list[bytes], wait_seconds: float = 1.0) -> None:
        """Send frames back to back and read the answers for a while."""
        reader, writer = await asyncio.open_connection(*_place(address))
        try:
            for data in frames:
                writer.write(data)
                await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    while await reader.read(1 << 20):
                        pass
        finally:
            writer.transport.abort()

    def _frame(self, message: ApiMessage, key: int, version: int | None = None) -> bytes:
        api = APIS[key]
        low, high = api.versions
        number = self._rng.randint(low, high) if version is None else version
        return encode(Request(api, number, next(self._serial), "hostile", message))

    def _absurd(self, api: Api) -> bytes:
        """A request with any values. Raises ProtocolError where one has no place in the version drawn."""
        message = self._nonsense.part(api.request)
        assert isinstance(message, ApiMessage)
        return self._frame(message, api.key)

    # -- attacks -----------------------------------------------------------------------------------

    async def absurd_kafka_requests(self) -> None:
        frames = []
        for _ in range(self._rng.choice((1, 5, 50))):
            api = self._rng.choice(self._apis)
            with suppress(ProtocolError):
                frames.append(self._absurd(api))
        await self._talk(self._rng.choice(self._kafka), frames)

    async def absurd_remoting_requests(self) -> None:
        commands = [garbage.any_command(self._rng) for _ in range(self._rng.choice((1, 5, 50)))]
        address = self._rng.choice([self._nameserver, *self._brokers])
        await self._talk(address, [frame.encode(command) for command in commands])

    async def many_connections(self) -> None:
        """Three hundred that say nothing for some seconds."""
        address = self._rng.choice([self._nameserver, *self._brokers, *self._kafka])
        links = []
        try:
            for _ in range(300):
                links.append(await asyncio.open_connection(*_place(address)))  # noqa: PERF401
            await asyncio.sleep(self._rng.uniform(1, 5))
        finally:
            for _, writer in links:
                writer.transport.abort()

    async def short_connections(self) -> None:
        address = self._rng.choice([self._nameserver, *self._brokers, *self._kafka])
        for _ in range(200):
            _, writer = await asyncio.open_connection(*_place(address))
            writer.transport.abort()

    async def bombs(self) -> None:
        """A few kilobytes that unpack to sixty megabytes, read by clients of both dialects."""
        kafka = self._rng.choice(self._kafka)
        await self._make_topic(BOMB_TOPIC)
        await self._talk(kafka, [self._frame(producing(BOMB_TOPIC, 0, self._bomb), 0, 9)])
        ext = {
            "consumerGroup": "hostile",
            "topic": BOMB_TOPIC,
            "queueId": "0",
            "queueOffset": str(self._rng.randrange(3)),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "1000",
            "subscription": self._rng.choice(("*", "TagA")),
            "subVersion": "0",
        }
        pull = frame.encode(Command(code=11, opaque=1, ext=ext))
        for address in self._brokers:
            await self._talk(address, [pull] * self._rng.choice((1, 10)), 3)

    async def _make_topic(self, name: str) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, 2, 1)])
        await self._talk(self._kafka[0], [self._frame(request, 19, 7)], 0.3)

    async def wide_metadata(self) -> None:
        names = [MetadataRequestTopic(name=f"no-such-{n}") for n in range(20_000)]
        request = MetadataRequest(names, allow_auto_topic_creation=False)
        frames = [self._frame(request, 3, 8), self._frame(MetadataRequest(None), 3, 8)]
        await self._talk(self._rng.choice(self._kafka), frames, 3)

    async def groups_without_end(self) -> None:
        """Members that join and are never heard of again."""
        frames = [
            self._frame(joining(f"hostile-{self._rng.randrange(20_000)}", "Records"), 11, 5)
            for _ in range(200)
        ]
        await self._talk(self._rng.choice(self._kafka), frames, 2)

    async def long_polls(self) -> None:
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=2**31 - 1,
            topics=[
                FetchTopic(
                    "Records", partitions=[FetchPartition(p, fetch_offset=0) for p in range(6)]
                )
            ],
        )
        ext = {
            "consumerGroup": "hostile",
            "topic": "Sends",
            "queueId": "0",
            "queueOffset": "999999999",
        }
        ext |= {
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": "30000",
        }
        ext |= {"subscription": "*", "subVersion": "0"}
        await self._talk(self._rng.choice(self._kafka), [self._frame(request, 1, 11)] * 300, 2)
        pull = frame.encode(Command(code=11, opaque=1, ext=ext))
        await self._talk(self._rng.choice(self._brokers), [pull] * 1_000, 2)

    async def unread_answers(self) -> None:
        """Ask for everything there is, again and again, and take nothing."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(
                    "Records",
                    partitions=[
                        FetchPartition(p, fetch_offset=0, partition_max_bytes=2**30)
                        for p in range(6)
                    ],
                )
            ],
        )
        data = self._frame(request, 1, 11)
        _, writer = await asyncio.open_connection(*_place(self._rng.choice(self._kafka)))
        try:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # sockets can
            for _ in range(500):
                writer.write(data)
                await asyncio.wait_for(writer.drain(), 1)
            await asyncio.sleep(2)
        finally:
            writer.transport.abort()

    async def conditions(self) -> None:
        """SQL92 that matches nothing over everything, and queries for keys that nobody has."""
        condition = " AND ".join(f"(a{n} IS NOT NULL OR b > {n})" for n in range(40))
        ext = {"consumerGroup": "hostile", "topic": "Sends", "queueId": "0", "queueOffset": "0"}
        ext |= {
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
        }
        ext |= {"subscription": condition, "expressionType": "SQL92", "subVersion": "0"}
        pull = frame.encode(Command(code=11, opaque=1, ext=ext))
        query = {"topic": self._rng.choice(("Sends", "Records")), "key": "nobody", "maxNum": "64"}
        query |= {"beginTimestamp": "0", "endTimestamp": str(2**62)}
        asking = frame.encode(Command(code=12, opaque=2, ext=query))
        await self._talk(self._rng.choice(self._brokers), [pull] * 50 + [asking] * 5, 5)

    async def producer_ids(self) -> None:
        frames = [
            self._frame(
                InitProducerIdRequest(f"hostile-{self._rng.randrange(5_000)}", 60_000), 22, 4
            )
            for _ in range(200)
        ]
        await self._talk(self._rng.choice(self._kafka), frames, 2)

    async def new_topics(self) -> None:
        if self._topics >= TOPICS_MAX:
            return
        self._topics += 20
        topics = [CreatableTopic(f"hostile-{next(self._serial)}", 10, 1) for _ in range(20)]
        await self._talk(
            self._rng.choice(self._kafka), [self._frame(CreateTopicsRequest(topics), 19, 7)], 5
        )

    async def wide_heartbeats(self) -> None:
        subscribed = (bodies.SubscriptionData("Sends"),)
        body = bodies.HeartbeatData(
            f"hostile-{self._rng.randrange(50)}",
            (),
            tuple(
                bodies.ConsumerData(f"hostile-{n}", subscription_data_set=subscribed)
                for n in range(500)
            ),
        )
        beat = frame.encode(Command(code=34, opaque=1, body=fastjson.write(body)))
        await self._talk(self._rng.choice(self._brokers), [beat] * 3, 2)


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def attack(
    bootstrap: str, nameserver: str, seed: int, seconds: float, told: Queue[Counter[str]]
) -> None:
    """What the attackers' process runs."""
    attackers = Attackers(bootstrap, nameserver, seed)
    asyncio.run(attackers.run(seconds))
    told.put(attackers.counts)


def hostile(seconds: float, seed: int) -> int:
    """One run; the exit code."""
    context = multiprocessing.get_context("spawn")

    def work(cluster: Cluster, load: Load) -> list[str]:
        told: Queue[Counter[str]] = context.Queue()
        arguments = (cluster.bootstrap, cluster.nameserver, seed, seconds, told)
        attackers = context.Process(target=attack, args=arguments, daemon=True)
        at_first = {name: cluster.process(name).memory_info().rss for name in cluster.names}
        peak = dict(at_first)
        attackers.start()
        try:
            while attackers.is_alive():
                attackers.join(1)
                cluster.check()
                load.check()
                for name, before in at_first.items():
                    peak[name] = max(peak[name], cluster.process(name).memory_info().rss)
                    if peak[name] - before > GROWTH_BYTES_MAX:
                        raise FaultError(f"{name} grew from {before} to {peak[name]} bytes")
        finally:
            attackers.kill()
        if attackers.exitcode:
            raise FaultError("the attackers failed: their traceback is above")
        thrown = ", ".join(f"{manner} {number}" for manner, number in sorted(told.get().items()))
        return [
            f"attacks: {thrown}",
            *load.verify(),
            latencies("RocketMQ sends", load.sends.seconds),
            latencies("Kafka produces (5 ms linger)", load.produces.seconds),
            *[
                f"{name}: memory {at_first[name] >> 20} MiB, at most {peak[name] >> 20} MiB"
                for name in cluster.names
            ],
        ]

    return run("hostile", seconds, seed, work, pause_seconds=0.05)


def main() -> int:
    given = parser("hostile", "legal but hostile requests", 600).parse_args()
    return hostile(given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
