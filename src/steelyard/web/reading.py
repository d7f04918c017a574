"""Asks a cluster for its figures: the nameservers who is there, and every broker for its own.

A scrape has three rounds, each limited by `timeout_ms`: the nameservers; all brokers at once; and,
because the offsets of Kafka's groups are at their coordinators and the messages elsewhere, the
brokers of these messages, for the times at which they were stored. Whoever does not answer in time
is missing from the result, which says why; the others are not delayed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from steelyard.client.administration.asking import masters_of
from steelyard.client.aio.admin import Admin
from steelyard.config import HttpConfig
from steelyard.driver.logs import logger
from steelyard.errors import BrokerError, SteelyardError
from steelyard.types import MessageQueue
from steelyard.wire import figures
from steelyard.wire.figures import (
    TIMES_MAX,
    BrokerFigures,
    KafkaFigures,
    PartitionRow,
)
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ClusterInfo
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode

T = TypeVar("T")

FORGET_SECONDS = 3_600.0
"""Time after which a broker that no nameserver lists any more is forgotten."""

BROKERS_MAX = 1_000
"""Most brokers that are asked; further ones are left out."""

_log = logger("steelyard.http")


class BrokerReading(NamedTuple):
    """What a broker answered. `error`: why it did not, empty if it did.

    `is_wanted`: a nameserver lists it, or it is one of those that must be there. `kafka` is None
    without a Kafka listener. `figures` is None for a broker that is not Steelyard's. `orphans`: of
    a broker that did not answer, the Kafka groups that it coordinated when it last did.
    """

    name: str
    address: str
    is_wanted: bool
    seconds: float
    error: str = ""
    figures: BrokerFigures | None = None
    kafka: KafkaFigures | None = None
    orphans: tuple[str, ...] = ()


Waiting = Mapping[tuple[MessageQueue, int], int]
"""When the message at an offset of a queue was stored, in ms."""


class ClusterReading(NamedTuple):
    """What a cluster answered. `nameservers`: why each did not, or an empty text.

    `waiting`: when the messages were stored that Kafka's groups have not committed. `left_out`:
    brokers that were not asked.
    """

    nameservers: Mapping[str, str]
    brokers: tuple[BrokerReading, ...]
    waiting: Waiting
    left_out: int = 0


class _Known(NamedTuple):
    address: str
    listed_at: float


class ClusterReader:
    """Reads one cluster, again and again. `admin` must be running."""

    def __init__(self, admin: Admin, config: HttpConfig) -> None:
        self._admin = admin
        self._config = config
        self._known: dict[str, _Known] = {}
        self._coordinated: dict[str, tuple[str, ...]] = {}
        self._last: ClusterReading | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[ClusterReading] | None = None

    async def read(self) -> ClusterReading:
        """Return the cluster's figures, which may be `fresh_ms` old.

        Whoever asks while the cluster is being read gets the same result.
        """
        age_ms = (time.monotonic() - self._read_at) * 1000
        if self._last is not None and age_ms < self._config.fresh_ms:
            return self._last
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> ClusterReading:
        nameservers, listed = await self._listed()
        now = time.monotonic()
        for name, address in listed.items():
            self._known[name] = _Known(address, now)
        for name, known in list(self._known.items()):
            if now - known.listed_at >= FORGET_SECONDS and name not in self._config.brokers:
                del self._known[name]
                self._coordinated.pop(name, None)
        names = sorted({*self._known, *self._config.brokers})
        asked = names[:BROKERS_MAX]
        wanted = {*listed, *self._config.brokers}
        brokers = await asyncio.gather(*(self._broker(name, name in wanted) for name in asked))
        waiting = await self._waiting(brokers)
        self._last = ClusterReading(nameservers, tuple(brokers), waiting, len(names) - len(asked))
        self._read_at = time.monotonic()
        return self._last

    # -- nameservers -------------------------------------------------------------------------------

    async def _listed(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return what each nameserver's error is, and the address of each broker's master."""
        answers = await asyncio.gather(*map(self._table, self._admin.nameservers))
        listed: dict[str, str] = {}
        errors: dict[str, str] = {}
        for nameserver, answer in zip(self._admin.nameservers, answers, strict=True):
            errors[nameserver] = answer if isinstance(answer, str) else ""
            if not isinstance(answer, str):
                listed |= answer
        return errors, listed

    async def _table(self, nameserver: str) -> dict[str, str] | str:
        try:
            reply = await self._admin.ask(
                nameserver,
                RequestCode.GET_BROKER_CLUSTER_INFO,
                timeout_ms=self._config.timeout_ms,
            )
            return masters_of(fastjson.read(ClusterInfo, reply.body))
        except SteelyardError as error:
            return str(error) or type(error).__name__

    # -- brokers -----------------------------------------------------------------------------------

    async def _broker(self, name: str, is_wanted: bool) -> BrokerReading:
        """Ask a broker. A group stays with its coordinator, also while that one is away."""
        reading = await self._answer(name, is_wanted)
        if reading.error:
            return reading._replace(orphans=self._coordinated.get(name, ()))
        groups = reading.kafka.groups if reading.kafka else ()
        self._coordinated[name] = tuple(sorted(each.group for each in groups))
        return reading

    async def _answer(self, name: str, is_wanted: bool) -> BrokerReading:
        known = self._known.get(name)
        if known is None:
            return BrokerReading(name, "", is_wanted, 0.0, "no nameserver lists it")
        began = time.monotonic()
        try:
            mine, kafka = await asyncio.gather(
                self._ask(known.address, SteelyardCode.FIGURES, BrokerFigures),
                self._ask(known.address, SteelyardCode.KAFKA_FIGURES, KafkaFigures),
            )
        except SteelyardError as error:
            seconds = time.monotonic() - began
            text = str(error) or type(error).__name__
            return BrokerReading(name, known.address, is_wanted, seconds, text)
        seconds = time.monotonic() - began
        if mine is not None and mine.name != name:
            text = f"{known.address} is the broker {mine.name} now"
            return BrokerReading(name, known.address, is_wanted, seconds, text)
        return BrokerReading(name, known.address, is_wanted, seconds, "", mine, kafka)

    async def _ask(
        self, address: str, code: SteelyardCode, kind: type[T], body: bytes = b""
    ) -> T | None:
        """Return the answer to one of our own requests; None if the broker does not know it."""
        try:
            reply = await self._admin.ask(
                address, code, body=body, timeout_ms=self._config.timeout_ms
            )
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return figures.read(reply.body, kind)

    # -- times -------------------------------------------------------------------------------------

    async def _waiting(self, brokers: Iterable[BrokerReading]) -> Waiting:
        """Ask when the messages were stored that Kafka's groups have not committed."""
        by_name = {each.name: each for each in brokers if each.figures is not None}
        ends = {
            (name, row.topic, row.queue_id): row.end
            for name, each in by_name.items()
            if each.figures is not None
            for row in each.figures.queues
        }
        wanted: dict[str, dict[MessageQueue, set[int]]] = {}
        room = min(self._config.group_series_max, TIMES_MAX)
        for row in _committed(by_name.values()):
            end = ends.get((row.broker, row.topic, row.queue_id), 0)
            if room and row.reached < end:
                queue = MessageQueue(row.topic, row.broker, row.queue_id)
                wanted.setdefault(row.broker, {}).setdefault(queue, set()).add(row.reached)
                room -= 1
        answers = await asyncio.gather(
            *(self._times(by_name[name].address, asked) for name, asked in wanted.items())
        )
        return {place: at for answer in answers for place, at in answer.items()}

    async def _times(
        self, address: str, asked: Mapping[MessageQueue, set[int]]
    ) -> Mapping[tuple[MessageQueue, int], int]:
        try:
            timeout_ms = self._config.timeout_ms
            return (await self._admin.store_times(address, asked, timeout_ms=timeout_ms)).times
        except SteelyardError as error:
            _log.info("%s does not say when messages were stored: %s", address, error)
            return {}


def _committed(brokers: Iterable[BrokerReading]) -> Iterable[PartitionRow]:
    """Yield how far each Kafka group has come in each of its partitions."""
    for each in brokers:
        for group in each.kafka.groups if each.kafka else ():
            yield from group.offsets
