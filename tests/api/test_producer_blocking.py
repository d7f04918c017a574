"""What `steelyard.Producer` can do beyond plain sends, against real brokers."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from tests.api.conftest import Servers
from tests.waiting import until

from steelyard import (
    BrokerError,
    CallTimeoutError,
    ConfigError,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageError,
    MessageQueue,
    MessageView,
    Producer,
    ProducerConfig,
    PushConsumer,
    RouteError,
    SendStatus,
    TransactionState,
)
from steelyard.client.producing import selected, transaction_state
from steelyard.config import BrokerConfig, Compression, LatencyFaults

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def curious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Nameserver of brokers that ask after transactions almost at once."""
    config = BrokerConfig(transaction_timeout_ms=50, transaction_check_interval_ms=100)
    servers = Servers(tmp_path_factory.mktemp("curious"), config)
    yield servers.nameservers
    servers.stop()


# -- queues ----------------------------------------------------------------------------------------


def test_a_sharding_key_leads_to_one_queue_in_order(nameservers: str) -> None:
    with Producer("p", nameservers) as producer:
        results = [producer.send("Sharded", b"%d" % n, sharding_key="k") for n in range(5)]
        assert len({result.queue for result in results}) == 1
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
        whole = Message("Sharded", b"x", sharding_key="other")
        assert producer.send(whole).queue == producer.send_batch([whole, whole]).queue
        assert producer.send(whole, sharding_key="k").queue == results[0].queue
        future = producer.send_async("Sharded", b"x", sharding_key="k")
        assert future.result(60).queue == results[0].queue


def test_a_selector_chooses(nameservers: str) -> None:
    def by_key(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        assert isinstance(message.keys, str)
        return queues[int(message.keys) % len(queues)]

    with Producer("p", nameservers) as producer:
        producer.send("Selected", b"x")  # the topic is made
        queues = producer.queues("Selected")
        assert producer.send("Selected", b"x", keys="3", selector=by_key).queue == queues[3]
        future = producer.send_async("Selected", b"x", keys="2", selector=by_key)
        assert future.result(60).queue == queues[2]
        producer.send_oneway("Selected", b"x", keys="2", selector=by_key)
        with pytest.raises(ValueError, match="invalid literal"):
            producer.send("Selected", b"x", keys="no number", selector=by_key)
        stranger = queues[0]._replace(topic="Other")
        with pytest.raises(MessageError, match="must return one of the queues"):
            producer.send("Selected", b"x", selector=lambda queues, message: stranger)
        with pytest.raises(MessageError, match="not both"):
            producer.send("Selected", b"x", queue=queues[0], selector=by_key)


def test_there_may_be_nothing_to_choose_from() -> None:
    with pytest.raises(RouteError, match="no writable queue"):
        selected(lambda queues, message: queues[0], (), Message("T", b"x"))


@pytest.mark.parametrize("version", ["off", "4.x", "5.x"])
def test_a_stopped_broker_is_avoided(
    version: LatencyFaults, tmp_path_factory: pytest.TempPathFactory
) -> None:
    servers = Servers(tmp_path_factory.mktemp("avoided"))
    config = ProducerConfig(latency_faults=version, detect=version == "5.x", detect_interval_ms=50)
    with Producer("p", servers.nameservers, config=config) as producer:
        for queue in producer.queues("Avoided"):  # on both brokers
            producer.send("Avoided", b"x", queue=queue)
        servers.stop_broker("broker-b")
        names = {producer.send("Avoided", b"x").queue.broker_name for _ in range(20)}
        assert names == {"broker-a"}
    servers.stop()


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_arrive(nameservers: str, kind: Compression) -> None:
    bodies: list[bytes] = []
    config = ProducerConfig(compress_type=kind, compress_level=9)
    topic, body = f"Compressed-{kind}", kind.encode() * 5_000
    with Producer("p", nameservers, config=config) as producer:
        producer.send(topic, body)
    consumer = PushConsumer(topic, nameservers, lambda m: bodies.append(m.body), config=FIRST)
    with consumer.subscribe(topic):
        until(lambda: bodies)
    assert bodies == [body]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"latency_faults": "6.x"},
            "latency_faults is '6.x'; it must be one of 'off', '4.x', '5.x'",
        ),
        ({"retry_codes": "off"}, "retry_codes is 'off'"),
        ({"compress_type": "snappy"}, "compress_type is 'snappy'"),
        ({"compress_level": 10}, "compress_level is 10"),
        ({"detect": True}, "detect requires latency_faults='5.x'"),
        ({"detect": True, "latency_faults": "5.x", "detect_interval_ms": 0}, "1 or more"),
    ],
)
def test_wrong_settings(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Producer("p", "127.0.0.1:1", config=ProducerConfig(**settings))  # type: ignore[arg-type]


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="tls is"):
        Producer("p", "127.0.0.1:1", tls="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="group of their own"):
        Producer(nameservers="127.0.0.1:1", transaction_check=lambda message: True)


@pytest.mark.parametrize(
    ("returned", "state"),
    [
        (True, TransactionState.COMMIT),
        (False, TransactionState.ROLLBACK),
        (None, TransactionState.UNKNOWN),
        (0, TransactionState.UNKNOWN),
        ("COMMIT", TransactionState.UNKNOWN),
        *((state, state) for state in TransactionState),
    ],
)
def test_what_a_users_word_means(returned: object, state: TransactionState) -> None:
    assert transaction_state(returned) is state


# -- transactions ----------------------------------------------------------------------------------


class Bank:
    """A program with transactions: what it is to say, and what it was asked."""

    def __init__(self) -> None:
        self.says: dict[bytes, TransactionState | bool | None] = {}
        self.executed: list[Message] = []
        self.checked: list[MessageView] = []

    def execute(self, message: Message) -> TransactionState | bool | None:
        self.executed.append(message)
        if message.body.startswith(b"broken"):
            raise ValueError("no such account")
        return self.says.get(message.body)

    def check(self, message: MessageView) -> TransactionState | bool | None:
        self.checked.append(message)
        if message.body.endswith(b"badly"):
            raise ValueError("no such table")
        return message.body.endswith(b"done")


def test_consumers_see_what_was_committed(nameservers: str) -> None:
    bank = Bank()
    bank.says = {
        b"one": True,
        b"two": False,
        b"three": TransactionState.COMMIT,
        b"four": TransactionState.ROLLBACK,
        b"five": None,
    }
    seen: list[MessageView] = []
    with Producer("bank", nameservers) as producer:
        results = [
            producer.send_in_transaction("Bank", body, keys="k", execute=bank.execute)
            for body in bank.says
        ]
        producer.send("Bank", b"end")
    commit, rollback = TransactionState.COMMIT, TransactionState.ROLLBACK
    assert [result.state for result in results] == [
        commit,
        rollback,
        commit,
        rollback,
        TransactionState.UNKNOWN,
    ]
    ids = [result.send_result.message_id for result in results]
    assert [message.properties["UNIQ_KEY"] for message in bank.executed] == ids
    with PushConsumer("bank-c", nameservers, seen.append, config=FIRST).subscribe("Bank"):
        until(lambda: len(seen) == 3)
    assert {view.body: view.message_id for view in seen if view.body != b"end"} == {
        b"one": ids[0],
        b"three": ids[2],
    }


def test_a_broker_asks_where_it_was_not_told(
    curious: str, caplog: pytest.LogCaptureFixture
) -> None:
    bank, seen = Bank(), []
    with (
        caplog.at_level(logging.ERROR, "steelyard"),
        Producer("curious", curious, transaction_check=bank.check) as producer,
        PushConsumer("curious-c", curious, lambda m: seen.append(m.body), config=FIRST).subscribe(
            "Curious"
        ),
    ):
        producer.send("Curious", b"known")
        sent = [
            producer.send_in_transaction("Curious", body, execute=bank.execute)
            for body in (b"later done", b"later undone?", b"broken but done", b"asked badly")
        ]
        assert {result.state for result in sent} == {TransactionState.UNKNOWN}
        until(lambda: len(seen) == 3 and len(bank.checked) >= 5)
    assert Counter(seen) == Counter([b"known", b"later done", b"broken but done"])
    asked = {view.body: view.message_id for view in bank.checked}
    assert asked[b"later done"] == sent[0].send_result.message_id
    words = " ".join(record.getMessage() for record in caplog.records)
    assert "execute failed for transaction" in words
    assert "transaction_check failed on" in words


def test_another_member_of_the_group_is_asked(curious: str) -> None:
    bank = Bank()
    with Producer("heirs", curious) as first:
        result = first.send_in_transaction("Heirs", b"later done", execute=bank.execute)
        broker = result.send_result.queue
    with Producer("heirs", curious, transaction_check=bank.check) as second:
        second.send("Heirs", b"here I am", queue=broker)
        until(lambda: bank.checked)
    assert bank.checked[0].message_id == result.send_result.message_id


def test_nothing_is_executed_where_the_half_message_was_not_stored(nameservers: str) -> None:
    bank = Bank()
    with Producer("p", nameservers) as producer, pytest.raises(MessageError):
        producer.send_in_transaction("Bank", b"", execute=bank.execute)
    assert bank.executed == []


# -- request and reply -----------------------------------------------------------------------------


def test_a_request_gets_its_reply(nameservers: str) -> None:
    with Producer("prices", nameservers) as producer:

        def answer(request: MessageView) -> None:
            producer.reply(request, b"3 euro for " + request.body, tags="euro")

        consumer = PushConsumer("service", nameservers, answer, config=FIRST)
        with consumer.subscribe("PriceRequests"):
            replies = [
                producer.request("PriceRequests", body, timeout_ms=30_000)
                for body in ("an apple", "a pear")
            ]
            big = producer.request("PriceRequests", b"x" * 20_000, timeout_ms=30_000)
    assert [view.body for view in replies] == [b"3 euro for an apple", b"3 euro for a pear"]
    assert [view.tags for view in replies] == ["euro", "euro"]
    assert big.body == b"3 euro for " + b"x" * 20_000


def test_many_requests_at_once_each_get_their_own_reply(nameservers: str) -> None:
    found: dict[bytes, bytes] = {}
    with Producer("double", nameservers) as producer:

        def answer(request: MessageView) -> None:
            producer.reply(request, request.body * 2)

        def ask(number: int) -> None:
            body = b"%d" % number
            found[body] = producer.request("Double", body, timeout_ms=30_000).body

        consumer = PushConsumer("doubler", nameservers, answer, config=FIRST)
        with consumer.subscribe("Double"):
            threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
    assert found == {b"%d" % n: b"%d" % n * 2 for n in range(20)}


def test_without_a_consumer_there_is_no_reply(nameservers: str) -> None:
    requests: list[MessageView] = []
    words = "sent, but not replied to"
    with Producer("lonely", nameservers) as producer:
        producer.queues("Unheard")
        with pytest.raises(CallTimeoutError, match=words):
            producer.request("Unheard", b"hello?", timeout_ms=1_000)
    consumer = PushConsumer("late", nameservers, requests.append, config=FIRST)
    with Producer("replier", nameservers) as replier, consumer.subscribe("Unheard"):
        until(lambda: requests)
        with pytest.raises(BrokerError, match="channel"):
            replier.reply(requests[0], b"yes?")
        replier.send("Unheard", b"no request")
        until(lambda: len(requests) == 2)
        with pytest.raises(MessageError, match="is not a request"):
            replier.reply(requests[1], b"what?")


# -- delays ----------------------------------------------------------------------------------------


def test_messages_are_delayed_to_the_millisecond_and_recalled(nameservers: str) -> None:
    seen: list[MessageView] = []
    with Producer("p", nameservers) as producer:
        at_ms = int(time.time() * 1000) + 700
        kept = producer.send("Delayed", b"at", deliver_at_ms=at_ms)
        gone = producer.send("Delayed", b"gone", delay_ms=600)
        assert producer.recall(gone.recall_handle) == gone.message_id
        plain = producer.send("Delayed", b"plain")
        with PushConsumer("delayed", nameservers, seen.append, config=FIRST).subscribe("Delayed"):
            producer.send("Delayed", b"by", delay_ms=300)
            until(lambda: len(seen) == 3)
        with pytest.raises(BrokerError, match="timestamp invalid"):
            producer.recall(kept.recall_handle)
        with pytest.raises(MessageError, match="recall handle is invalid"):
            producer.recall(plain.recall_handle)
        with pytest.raises(BrokerError, match="max delay"):
            producer.send("Delayed", b"x", delay_ms=4 * 24 * 3600 * 1000)
    assert Counter(view.body for view in seen) == Counter([b"at", b"by", b"plain"])
    for view in seen:
        if view.body != b"plain":
            due = int(view.properties["TIMER_OUT_MS"])
            assert due <= view.store_timestamp
            assert view.body == b"by" or due == at_ms


def test_a_callback_that_ends_the_program_keeps_nothing_from_others(nameservers: str) -> None:
    def leave(_: object) -> None:
        raise SystemExit(3)

    with Producer("p", nameservers, auto_batch=True) as producer:
        producer.queues("Callbacks")
        futures = [producer.send_async("Callbacks", b"x") for _ in range(5)]
        for future in futures:
            future.add_done_callback(leave)
        for future in futures:
            assert future.result(60).status is SendStatus.SEND_OK
        assert producer.send("Callbacks", b"x").status is SendStatus.SEND_OK
