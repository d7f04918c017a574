"""A rig that drives one broker through the seam: clients of our own, scripted nameservers, a store in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from tests.nodes.broker.driver import START, TOPIC, Driver

from steelyard.config import BrokerConfig
from steelyard.ledger.events import LEDGER_TOPIC, Record, decode
from steelyard.nodes.seam import Answer, Dial, Effect, Opened, Received, Refused
from steelyard.store.memory import MemoryDisk
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import (
    Body,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command
from steelyard.wire.remoting.message import MessageView, decode_records

GROUP = "group-a"


Answering = Callable[[Command], Command | None]


class Rig(Driver):
    """`ask` sends a request and gives the reply. Links from 1000 on are those that the broker dialed."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        disk: MemoryDisk | None = None,
        nameservers: Mapping[str, Answering] | None = None,
        now: int = START,
    ) -> None:
        self.link = 0
        self.dialed = 1000
        self.opaque = 0
        self.sent: list[tuple[int, Command]] = []
        self.answers: dict[int, object] = {}
        self.nameservers = dict(nameservers or {})
        """Who listens at an address, by what they reply."""
        self.dials = 0
        self.dialed_links: dict[int, str] = {}
        super().__init__(config or BrokerConfig(), disk, now)

    def restart(self) -> None:
        self.sent.clear()
        super().restart()

    # -- the driver ------------------------------------------------------------------------------

    def _make_other_true(self, effect: Effect) -> None:
        match effect:
            case Dial(address):
                self._dial(address)
            case Answer(call_id, result):
                assert call_id not in self.answers
                self.answers[call_id] = result
            case _:
                super()._make_other_true(effect)

    def _dial(self, address: str) -> None:
        self.dials += 1
        if address not in self.nameservers:
            self.event(Refused(address, "nobody listens"))
            return
        self.dialed += 1
        self.dialed_links[self.dialed] = address
        self.event(Opened(self.dialed, address, dialed=True))

    def _carry(self, link: int, message: object) -> None:
        assert isinstance(message, Command)
        self.sent.append((link, message))
        address = self.dialed_links.get(link)
        if address is None:
            return
        answer = self.nameservers[address](message)
        if answer is not None and not message.flag & ONEWAY_FLAG:
            self.event(Received(link, msgspec.structs.replace(answer, opaque=message.opaque)))

    # -- clients ---------------------------------------------------------------------------------

    def connect(self, address: str = "") -> int:
        self.link += 1
        self.event(Opened(self.link, address or f"10.0.0.{self.link}:5000"))
        return self.link

    def post(
        self,
        link: int,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes | Body = b"",
        *,
        oneway: bool = False,
        version: int = 409,
        language: str = "JAVA",
    ) -> int:
        """Send a request; its opaque."""
        self.opaque += 1
        texts = {name: str(value) for name, value in (ext or {}).items()}
        data = body if isinstance(body, bytes) else fastjson.write(body)
        flag = ONEWAY_FLAG if oneway else 0
        request = Command(
            int(code), self.opaque, flag, texts, data, language=language, version=version
        )
        self.event(Received(link, request))
        return self.opaque

    def reply_to(self, link: int, opaque: int) -> Command | None:
        found = [
            message
            for to, message in self.sent
            if to == link and message.opaque == opaque and message.flag & RESPONSE_FLAG
        ]
        assert len(found) <= 1, "more than one reply"
        return found[0] if found else None

    def ask(
        self,
        link: int,
        code: int,
        ext: Mapping[str, object] | None = None,
        body: bytes | Body = b"",
        *,
        version: int = 409,
        language: str = "JAVA",
    ) -> Command:
        """Send a request that is answered at once."""
        opaque = self.post(link, code, ext, body, version=version, language=language)
        answer = self.reply_to(link, opaque)
        assert answer is not None, "no reply yet"
        return answer

    def send(
        self,
        link: int,
        body: bytes = b"hello",
        *,
        topic: str = TOPIC,
        queue_id: int = 0,
        **more: object,
    ) -> Command:
        return self.ask(link, RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, **more), body)

    def beat(
        self,
        link: int,
        client_id: str,
        *topics: str,
        group: str = GROUP,
        expression: str = "*",
        version: int = 1,
        producer: str = "",
        model: str = "CLUSTERING",
        client: tuple[str, int] = ("JAVA", 409),
    ) -> Command:
        """A heartbeat: a consumer where topics are given, a producer where its group is.

        `client`: its language and version.
        """
        language, of_client = client
        subscriptions = tuple(
            SubscriptionData(topic, expression, sub_version=version) for topic in topics
        )
        consumers = (
            (ConsumerData(group, message_model=model, subscription_data_set=subscriptions),)
            if topics
            else ()
        )
        producers = (ProducerData(producer),) if producer else ()
        body = HeartbeatData(client_id, producers, consumers)
        return self.ask(
            link, RequestCode.HEART_BEAT, body=body, language=language, version=of_client
        )

    def notified(self) -> list[tuple[int, str]]:
        """(link, group) of the notifications since the last look."""
        found = [
            (link, message.ext["consumerGroup"])
            for link, message in self.sent
            if message.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        ]
        self.sent = [
            pair for pair in self.sent if pair[1].code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        ]
        return found

    def messages(self, topic: str, queue_id: int = 0) -> list[MessageView]:
        """Everything in a queue."""
        log = self.store.log(topic, queue_id)
        if log is None:
            return []
        entries = b"".join(log.entry_at(o) for o in range(log.min_offset, log.max_offset))
        return decode_records(entries, self.config.name)

    def ledger(self) -> list[Record]:
        return [record for view in self.messages(LEDGER_TOPIC) for record in decode(view.body)]


def send_ext(topic: str = TOPIC, queue_id: int = 0, **more: object) -> dict[str, object]:
    """The header of 310, one-letter names and all; `more` replaces by letter."""
    ext: dict[str, object] = {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": START - 5,
        "h": 0,
        "i": "UNIQ_KEY\x0101\x02WAIT\x01true",
        "j": 0,
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return ext | more


def pull_ext(offset: int = 0, **more: object) -> dict[str, object]:
    """The header of 11, as a push consumer without commit sends it; `more` replaces by name."""
    ext: dict[str, object] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 2,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15000,
        "subVersion": 1,
        "expressionType": "TAG",
    }
    return ext | more


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture(scope="session")
def golden() -> dict[str, str]:
    """What the classes of Apache RocketMQ 5.3.3 print: name of the section -> its first line."""
    path = Path(__file__).parents[2] / "golden" / "rocketmq-5.3.3.txt"
    sections = re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]
    return {name: rest.split("\n")[0] for name, _, rest in (s.partition("\n") for s in sections)}
