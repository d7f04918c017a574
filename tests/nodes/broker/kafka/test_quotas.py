"""48 and 49, and what becomes of clients that send or read more than their quotas."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.nodes.broker.driver import START, TOPIC
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig, batch
from tests.nodes.broker.kafka.requests import fetching, producing

from steelyard.config import BrokerConfig, KafkaConfig
from steelyard.errors import ProtocolError
from steelyard.nodes.broker.kafka.cluster.spreading import COMPARE_MS
from steelyard.nodes.broker.kafka.quotas import changes as changes_module
from steelyard.nodes.broker.kafka.quotas import throttles as throttles_module
from steelyard.nodes.broker.kafka.quotas.allowance import THROTTLE_MS_MAX, Allowance
from steelyard.nodes.broker.kafka.requests.wide import PART_BATCHES
from steelyard.nodes.broker.node import BrokerNode
from steelyard.nodes.broker.peers.requests import QUOTAS
from steelyard.nodes.broker.quotas import QuotaStore, QuotaValues, check_quota
from steelyard.nodes.seam import KAFKA, Effect, Mute, Opened
from steelyard.store.memory import MemoryDisk
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    FetchResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaComponent,
    QuotaEntity,
    QuotaOperation,
)
from steelyard.wire.remoting.codes import ResponseCode

Entity = dict[str, str | None]
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"


class Rig(KafkaRig):
    """A broker whose links are muted; every client is called `client`, and is anonymous."""

    def __init__(self, config: BrokerConfig | None = None, disk: MemoryDisk | None = None) -> None:
        self.muted: list[tuple[int, int]] = []
        """(link, for how many ms)."""
        super().__init__(config or BrokerConfig(kafka=KafkaConfig()), disk)

    def _make_other_true(self, effect: Effect) -> None:
        assert isinstance(effect, Mute)
        self.muted.append((effect.link, effect.until - self.now))


@pytest.fixture
def quotas() -> Rig:
    rig = Rig()
    rig.create_topic()
    return rig


def altered(entity: Entity, *operations: tuple[str, float | None]) -> AlteredQuota:
    """None removes a quota."""
    return AlteredQuota(
        [QuotaEntity(*part) for part in entity.items()],
        [QuotaOperation(key, value or 0.0, value is None) for key, value in operations],
    )


def alter(
    rig: KafkaRig, *asked: AlteredQuota, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    answer = rig.ask(AlterClientQuotasRequest(asked, validate_only), 1, AlterClientQuotasResponse)
    assert [each.entity for each in answer.entries] == [list(each.entity) for each in asked]
    return [(each.error_code, each.error_message) for each in answer.entries]


def described(
    rig: KafkaRig, *wanted: QuotaComponent, strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    request = DescribeClientQuotasRequest(wanted, strict)
    answer = rig.ask(request, 1, DescribeClientQuotasResponse)
    assert (answer.error_code, answer.entries is None) == (0, False)
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]


# -- 48 and 49 -----------------------------------------------------------------------------------------


def test_quotas_come_change_and_go(quotas: Rig) -> None:
    alice: Entity = {"user": "alice"}
    assert alter(quotas, altered(alice, (PRODUCER, 1000.0), (CONSUMER, 5.0))) == [(0, None)]
    assert alter(quotas, altered(alice, (PRODUCER, 2000.0))) == [(0, None)]
    expected = [(alice, {CONSUMER: 5.0, PRODUCER: 2000.0})]
    assert described(quotas) == expected
    quotas.restart()
    assert described(quotas) == expected
    assert alter(quotas, altered(alice, (PRODUCER, None), ("never", None))) == [(0, None)]
    assert described(quotas) == [(alice, {CONSUMER: 5.0})]
    assert alter(quotas, altered(alice, (CONSUMER, None))) == [(0, None)]
    assert described(quotas) == []


def test_nothing_is_changed_to_validate(quotas: Rig) -> None:
    asked = altered({"user": "alice"}, (PRODUCER, 1000.0))
    assert alter(quotas, asked, validate_only=True) == [(0, None)]
    assert described(quotas) == []


@pytest.mark.parametrize(
    ("entity", "key", "value", "text"),
    [
        ({}, PRODUCER, 5.0, "Invalid empty client quota entity"),
        ({"nope": "a"}, PRODUCER, 5.0, "Unhandled client quota entity type: nope"),
        ({"user": ""}, PRODUCER, 5.0, "Empty user not supported"),
        ({"user": "a", "ip": "1.2.3.4"}, PRODUCER, 5.0, "Invalid quota entity combination"),
        ({"user": "a"}, "nope", 5.0, "Invalid configuration key nope"),
        ({"user": "a"}, "connection_creation_rate", 5.0, "Invalid configuration key connection_"),
        ({"ip": "1.2.3.4"}, PRODUCER, 5.0, f"Invalid configuration key {PRODUCER}"),
        ({"user": "a"}, PRODUCER, 0.0, f"Quota {PRODUCER} must be greater than 0"),
        ({"user": "a"}, PRODUCER, -1.0, f"Quota {PRODUCER} must be greater than 0"),
        ({"user": "a"}, PRODUCER, float("nan"), f"Quota {PRODUCER} must be greater than 0"),
        ({"user": "a"}, PRODUCER, 1.5, f"{PRODUCER} cannot be a fractional value."),
        ({"user": "a"}, CONSUMER, 1e30, f"Proposed value for {CONSUMER} is too large for a LONG."),
        ({"user": "a"}, CONSUMER, float("inf"), "is too large for a LONG."),
        ({"user": "x" * 1001}, PRODUCER, 5.0, "at most 1000 characters"),
        # Apache Kafka has these:
        ({"user": "a"}, "request_percentage", 50.0, "request_percentage is not supported"),
        ({"user": "a"}, "controller_mutation_rate", 5.0, "is not supported"),
        ({"ip": "1.2.3.4"}, "connection_creation_rate", 5.0, "is not supported"),
    ],
)
def test_what_is_no_quota(quotas: Rig, entity: Entity, key: str, value: float, text: str) -> None:
    good = altered({"user": "good"}, (PRODUCER, 5.0))
    (code, told), other = alter(quotas, altered(entity, (key, value)), good)
    assert code == ErrorCode.INVALID_REQUEST
    assert text in (told or "")
    assert other == (0, None)
    assert described(quotas) == [({"user": "good"}, {PRODUCER: 5.0})]


def test_what_is_named_twice(quotas: Rig) -> None:
    twice = altered({"user": "a"}, (PRODUCER, 5.0), (PRODUCER, 6.0))
    first, second = (altered({"user": "d"}, (PRODUCER, value)) for value in (5.0, 6.0))
    codes = [code for code, _ in alter(quotas, twice, first, second)]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert described(quotas) == [({"user": "d"}, {PRODUCER: 5.0})]


def test_limits_of_a_request_and_of_all(quotas: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "CHANGES_MAX", 2)
    asked = [altered({"user": name}, (PRODUCER, 5.0)) for name in "abc"]
    assert [code for code, _ in alter(quotas, *asked)] == [0, 0, ErrorCode.POLICY_VIOLATION]
    monkeypatch.setattr("steelyard.nodes.broker.quotas.QUOTAS_MAX", 2)
    assert alter(quotas, asked[2])[0][0] == ErrorCode.POLICY_VIOLATION
    assert alter(quotas, asked[0])[0][0] == 0


ENTITIES: list[Entity] = [
    {"client-id": None},
    {"client-id": None, "user": None},
    {"client-id": "c"},
    {"client-id": "c", "user": "a"},
    {"user": None},
    {"user": "a"},
]
EXACT, DEFAULT, ANY = range(3)


@pytest.mark.parametrize(
    ("wanted", "strict", "places"),
    [
        ([], False, [0, 1, 2, 3, 4, 5]),
        ([], True, []),
        ([("user", EXACT, "a")], False, [3, 5]),
        ([("user", EXACT, "a")], True, [5]),
        ([("user", DEFAULT, None)], False, [1, 4]),
        ([("user", DEFAULT, None)], True, [4]),
        ([("user", ANY, None)], True, [4, 5]),
        ([("user", ANY, None), ("client-id", ANY, None)], False, [1, 3]),
        ([("client-id", EXACT, "c")], False, [2, 3]),
        ([("user", EXACT, "nobody")], False, []),
        ([("ip", ANY, None)], False, []),
    ],
)
def test_filters(
    quotas: Rig, wanted: list[tuple[str, int, str | None]], strict: bool, places: list[int]
) -> None:
    alter(quotas, *(altered(each, (PRODUCER, 5.0)) for each in ENTITIES))
    found = [entity for entity, _ in described(quotas, *map(component, wanted), strict=strict)]
    assert sorted(found, key=str) == sorted((ENTITIES[each] for each in places), key=str)


def component(fields: tuple[str, int, str | None]) -> QuotaComponent:
    return QuotaComponent(*fields)


@pytest.mark.parametrize(
    ("wanted", "code", "text"),
    [
        ([("nope", ANY, None)], 35, "Unsupported entity type nope"),
        ([("", ANY, None)], 42, "Invalid empty entity type."),
        ([("user", 9, None)], 42, "Unknown match type 9"),
        ([("user", EXACT, None)], 42, "MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "x")], 42, "MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", ANY, None), ("user", DEFAULT, None)], 42, "cannot appear more than once"),
        ([("user", ANY, None), ("ip", ANY, None)], 42, "IP filter component should not be used"),
    ],
)
def test_filters_that_cannot_be(
    quotas: Rig, wanted: list[tuple[str, int, str | None]], code: int, text: str
) -> None:
    """As a broker of Apache Kafka 4.3 answers."""
    request = DescribeClientQuotasRequest(list(map(component, wanted)))
    answer = quotas.ask(request, 1, DescribeClientQuotasResponse)
    assert (answer.error_code, answer.entries) == (code, None)
    assert text in (answer.error_message or "")


def test_all_brokers_have_them() -> None:
    brokers = Brokers("broker-a", "broker-b")
    request = AlterClientQuotasRequest([altered({"user": "a"}, (PRODUCER, 5.0))])
    assert brokers.ask("broker-b", request, 1, AlterClientQuotasResponse).entries[0].error_code == 0
    assert store(brokers, "broker-a").find(PRODUCER, "a", "c") is not None
    brokers.kill("broker-a")
    request = AlterClientQuotasRequest([altered({"user": "a"}, (PRODUCER, None))])
    brokers.ask("broker-b", request, 1, AlterClientQuotasResponse)
    brokers.start("broker-a")
    brokers.advance(2 * COMPARE_MS)
    assert store(brokers, "broker-a").find(PRODUCER, "a", "c") is None
    assert store(brokers, "broker-a").all() == store(brokers, "broker-b").all() != []


def store(brokers: Brokers, name: str) -> QuotaStore:
    node = brokers.processes[name].node
    assert isinstance(node, BrokerNode)
    return node._parts.quotas


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"records":[{"entity":[["nope","a"]],"version":1}]}',
        b'{"records":[{"entity":[["user","a"]],"version":-1}]}',
        b'{"records":[{"entity":[["user","a"]],"version":1,"values":{"producer_byte_rate":0}}]}',
        b'{"records":[{"entity":[["user","a"]],"version":1,"values":{"nope":5}}]}',
    ],
)
def test_nonsense_of_other_brokers(body: bytes) -> None:
    brokers = Brokers("broker-a")
    assert brokers.command("broker-a", QUOTAS, {}, body).code != ResponseCode.SUCCESS
    assert store(brokers, "broker-a").all() == []


# -- whose quota counts --------------------------------------------------------------------------------


LEVELS: list[tuple[Entity, tuple[str, str]]] = [
    ({"client-id": "c", "user": "a"}, ("a", "c")),
    ({"client-id": None, "user": "a"}, ("a", "c")),
    ({"user": "a"}, ("a", "")),
    ({"client-id": "c", "user": None}, ("a", "c")),
    ({"client-id": None, "user": None}, ("a", "c")),
    ({"user": None}, ("a", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]
"""From the first that counts to the last, and who shares it."""


def test_the_most_specific_quota_counts(quotas: Rig) -> None:
    """Kafka's order; each is removed in turn, so that the next one counts."""
    found = quotas.node._parts.quotas
    for number, (entity, _) in enumerate(LEVELS, 1):
        alter(quotas, altered(entity, (PRODUCER, float(number))))
    alter(quotas, altered({"client-id": "other"}, (PRODUCER, 99.0)))
    alter(quotas, altered(LEVELS[0][0], (CONSUMER, 50.0)))
    for number, (entity, owner) in enumerate(LEVELS, 1):
        assert found.find(PRODUCER, "a", "c") == (float(number), owner)
        alter(quotas, altered(entity, (PRODUCER, None)))
    assert found.find(PRODUCER, "a", "c") is None
    assert found.find(CONSUMER, "a", "c") == (50.0, ("a", "c"))


def test_a_quota_of_another_broker_is_checked() -> None:
    check_quota(QuotaValues((("user", "a"),), 1, {PRODUCER: 5.0}))
    check_quota(QuotaValues((("client-id", None), ("user", None)), 1))
    with pytest.raises(ProtocolError):
        check_quota(QuotaValues((), 1))


# -- allowances ----------------------------------------------------------------------------------------


def test_who_was_silent_may_have_as_much_as_in_ten_seconds() -> None:
    allowance = Allowance()
    assert allowance.take(10_000, 1_000, START) == 0
    assert allowance.take(1, 1_000, START) == 1
    assert allowance.take(4_999, 1_000, START + 500) == 5_000 - 500
    assert allowance.take(0, 1_000, START + 5_000) == 0
    assert allowance.take(10_000, 1_000, START + 15_000) == 0
    assert allowance.take(500, 500, START + 15_000) == 1_000  # the quota was halved


@pytest.mark.parametrize("size", [1, 700, 25_000])
def test_the_rate_over_a_long_time_is_the_quota(size: int) -> None:
    """A client that sends whenever it may, however large its requests are."""
    allowance, now, sent = Allowance(), START, 0
    while now < START + 1_000_000:
        sent += size
        now += max(1, allowance.take(size, 1_000, now))
    assert 1.0 <= sent / (now - START) < 1.02


def test_a_debt_is_limited() -> None:
    allowance = Allowance()
    assert allowance.take(10**9, 1, START) == THROTTLE_MS_MAX
    assert allowance.take(0, 1, START + THROTTLE_MS_MAX) == 0


# -- throttled clients ---------------------------------------------------------------------------------


def produced(rig: Rig, data: bytes, *, link: int | None = None) -> int:
    answer = rig.ask(producing(TOPIC, 0, data), 9, ProduceResponse, link=link)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return answer.throttle_time_ms


def test_a_producer_is_told_to_wait_and_muted(quotas: Rig) -> None:
    data = batch(bytes(1_000))
    assert produced(quotas, data) == 0
    quotas.advance(60_000)
    alter(quotas, altered({"client-id": "client"}, (PRODUCER, 150.0)))
    assert produced(quotas, data) == 0  # 1,500 bytes are free
    assert quotas.muted == []
    throttle_ms = produced(quotas, data)
    assert throttle_ms == round(2 * len(data) / 150 * 1000 - 10_000)
    assert quotas.muted == [(quotas.link, throttle_ms)]
    other = quotas.connect()
    assert produced(quotas, data, link=other) > throttle_ms  # the same client, on another link
    assert quotas.muted[-1][0] == other
    alter(quotas, altered({"client-id": "client"}, (PRODUCER, None)))
    assert produced(quotas, data) == 0


def test_a_producer_of_many_partitions_is_told_of_the_whole_silence(quotas: Rig) -> None:
    """Its request is handled in parts, of which each adds to the silence."""
    partitions = 2 * PART_BATCHES
    quotas.create_topic("wide", partitions)
    alter(quotas, altered({"client-id": "client"}, (PRODUCER, 1_000.0)))
    data = [PartitionProduceData(number, batch(bytes(1_000))) for number in range(partitions)]
    request = ProduceRequest(None, -1, 1_000, [TopicProduceData("wide", partition_data=data)])
    answer = quotas.ask(request, 9, ProduceResponse)
    assert [each.error_code for each in answer.responses[0].partition_responses] == [0] * partitions
    assert answer.throttle_time_ms == pytest.approx(quotas.muted[-1][1], abs=10)
    assert answer.throttle_time_ms > 90_000


def test_one_user_is_slowed_down_and_another_is_not(quotas: Rig) -> None:
    def link_of(owner: str) -> int:
        quotas.links += 1
        quotas.event(Opened(quotas.links, f"10.1.0.{quotas.links}:1", dialect=KAFKA, owner=owner))
        return quotas.links

    alter(quotas, altered({"user": "CN=alice"}, (PRODUCER, 1.0)))
    alice, bob = link_of("CN=alice"), link_of("CN=bob")
    data = batch(bytes(1_000))
    assert produced(quotas, data, link=alice) > 0
    assert produced(quotas, data, link=bob) == 0
    assert [link for link, _ in quotas.muted] == [alice]


def test_a_producer_without_acks_is_muted(quotas: Rig) -> None:
    alter(quotas, altered({"user": "ANONYMOUS"}, (PRODUCER, 10.0)))
    topics = producing(TOPIC, 0, batch(bytes(1_000))).topic_data
    quotas.post(ProduceRequest(None, 0, 1_000, topics), 9)
    assert [link for link, _ in quotas.muted] == [quotas.link]


def test_a_consumer_reads_what_it_may_and_is_muted(quotas: Rig) -> None:
    data = batch(bytes(1_000))
    for _ in range(10):
        produced(quotas, data)
    alter(quotas, altered({"client-id": None}, (CONSUMER, 250.0)))

    def fetched(offset: int) -> tuple[int, int]:
        answer = quotas.ask(fetching(TOPIC, 0, offset, 100_000), 11, FetchResponse)
        (part,) = answer.responses[0].partitions
        return len(part.records or b""), answer.throttle_time_ms

    assert fetched(0) == (2 * len(data), 0)  # not more than in ten seconds
    size, throttle_ms = fetched(2)
    assert size == 2 * len(data)
    assert throttle_ms == round(4 * len(data) / 250 * 1000 - 10_000)
    assert quotas.muted == [(quotas.link, throttle_ms)]
    quotas.advance(60_000)
    assert fetched(4) == (2 * len(data), 0)


def test_a_consumer_gains_nothing_by_another_connection(quotas: Rig) -> None:
    """1. A client reads more than its quota. 2. On another link it gets nothing, and waits as long. 3. Then it gets more."""
    data = batch(bytes(1_000))
    for _ in range(4):
        produced(quotas, data)
    alter(quotas, altered({"client-id": "client"}, (CONSUMER, 150.0)))

    def fetched(offset: int, link: int) -> tuple[int, int]:
        asked = replace(fetching(TOPIC, 0, offset, 100_000), session_epoch=0)
        answer = quotas.ask(asked, 11, FetchResponse, link=link)
        assert answer.error_code == 0
        assert bool(answer.session_id) == bool(answer.responses)
        parts = [part for topic in answer.responses for part in topic.partitions]
        return sum(len(part.records or b"") for part in parts), answer.throttle_time_ms

    assert fetched(0, quotas.link) == (len(data), 0)
    size, throttle_ms = fetched(1, quotas.link)
    assert (size, throttle_ms) == (len(data), round(2 * len(data) / 150 * 1000 - 10_000))
    other = quotas.connect()
    quotas.advance(1_000)
    assert fetched(2, other) == (0, throttle_ms - 1_000)
    assert quotas.muted[-1] == (other, throttle_ms - 1_000)
    quotas.advance(throttle_ms - 1_000)
    assert fetched(2, other)[0] == len(data)


def test_owners_are_limited_in_number(quotas: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles_module, "OWNERS_MAX", 1)
    alter(quotas, altered({"user": None}, (PRODUCER, 1.0), (CONSUMER, 1.0)))
    data = batch(bytes(100))
    assert produced(quotas, data) > 0
    quotas.ask(fetching(TOPIC, 0, 0, 100_000), 11, FetchResponse)
    assert quotas.node._kafka is not None
    assert len(quotas.node._kafka.throttles._allowances) == 1
