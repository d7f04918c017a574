"""Both shells of a client: the same calls and words, each whole; closed and set up in the same ways."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from tests.api.test_arguments import CLIENTS, PARTS, SHELLS
from tests.api.twins import Twins
from tests.waiting import until_async

import steelyard
from steelyard import (
    ArgumentError,
    ClosedError,
    ConfigError,
    ConsumeFrom,
    Message,
    MessageModel,
    MessageView,
    TransactionState,
    aio,
)
from steelyard.driver.loops import run
from steelyard.types import Subscription

CONFIGS: Mapping[str, Any] = {
    "KafkaConsumer": steelyard.KafkaConsumerConfig,
    "LitePullConsumer": steelyard.LitePullConfig,
    "Producer": steelyard.ProducerConfig,
    "PullConsumer": steelyard.ConsumerConfig,
    "PushConsumer": steelyard.ConsumerConfig,
}
BY_CLIENTS = {"checks", "handed_max", "hooks", "queue_changes"}
"""Fields of configurations that clients fill in: they follow from other arguments."""

OF_LISTENERS = {"consume_threads", "orderly"}
"""What only a push consumer can be given."""

OWN_WORDS = {"consume_threads": "concurrency"}
"""Arguments of the blocking shell that have another name in the other."""


def public(cls: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(cls, name)
        for name in dir(cls)
        if not name.startswith("_") and name not in PARTS
    } | {"": cls}


def signature_of(each: Any) -> list[tuple[str, str, object, object]]:
    if isinstance(each, property):
        each = each.fget
    return [
        (OWN_WORDS.get(p.name, p.name), p.kind.name, p.default, p.annotation)
        for p in inspect.signature(each).parameters.values()
        if p.name not in ("self", "admin")
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_shells_take_the_same_arguments(client: str) -> None:
    blocking, waiting = public(getattr(steelyard, client)), public(getattr(aio, client))
    if client == "Admin":  # its blocking shell is a facade: these belong to the client behind it
        waiting = {name: each for name, each in waiting.items() if name in blocking}
        assert len(waiting) > 40
    assert list(blocking) == list(waiting)
    for name, each in blocking.items():
        if not isinstance(each, property) and callable(each):
            assert signature_of(each) == signature_of(waiting[name]), name


def words_of(text: str) -> str:
    """A docstring, but for what the two shells must say differently."""
    for word in ("async ", "await "):
        text = text.replace(word, "")
    text = text.replace("asyncio.sleep", "time.sleep").replace("concurrency", "consume_threads")
    return re.sub(r"\b(tasks?|threads?)\b", "task", re.sub(r"\s+", " ", text))


@pytest.mark.parametrize("client", CLIENTS)
def test_docstrings_stand_in_both_shells_and_are_whole(client: str) -> None:
    elsewhere = re.compile(
        r"steelyard\.|\b[Ss]ee\b|as of `|same for asyncio|module's text|holds here"
    )
    blocking, waiting = public(getattr(steelyard, client)), public(getattr(aio, client))
    for name, each in blocking.items():
        texts = [inspect.getdoc(one) or "" for one in (each, waiting[name])]
        if not isinstance(each, property) and not callable(each):
            continue
        for text in texts:
            assert text, name
            found = elsewhere.search(text.replace("consumers see only", ""))
            assert found is None, f"{client}.{name}: {found}"
        if name:
            assert words_of(texts[0]) == words_of(texts[1]), name


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CONFIGS)
def test_help_lists_every_setting_with_its_meaning(client: str, shell: str) -> None:
    cls = getattr(SHELLS[shell], client)
    text = pydoc.plain(pydoc.render_doc(cls))
    for name in settings_of(client):
        word = OWN_WORDS.get(name, name) if shell == "aio" else name
        assert re.search(rf"\b{word}: ", text), name  # in the signature
        assert re.search(rf"- `{word}`( \(.*\))?: \S", text), name


def test_help_lists_the_fields_of_a_message() -> None:
    for call in ("send", "send_async", "send_oneway", "send_in_transaction", "request", "reply"):
        for shell in SHELLS.values():
            text = pydoc.plain(pydoc.render_doc(getattr(shell.Producer, call)))
            for name in ("tags", "keys", "properties", "delay_level", "sharding_key"):
                assert f"{name}: " in text
                assert f"- `{name}`: " in text


# -- settings ----------------------------------------------------------------------------------------


def settings_of(client: str) -> dict[str, tuple[object, object]]:
    """Every setting of the client that a user gives, with two values."""
    left_out = BY_CLIENTS if client == "PushConsumer" else BY_CLIENTS | OF_LISTENERS
    return {
        field.name: others(field.name, getattr(CONFIGS[client](), field.name))
        for field in fields(CONFIGS[client])
        if field.name not in left_out
    }


OTHERS: Mapping[str, tuple[object, object]] = {
    "assignors": (("roundrobin",), ("range",)),
    "auto_offset_reset": ("earliest", "none"),
    "bootstrap_servers": (("other:9092",), ("third:9092",)),
    "compress_level": (7, 8),
    "compress_type": ("lz4", "zstd"),
    "consume_from": (ConsumeFrom.FIRST_OFFSET, ConsumeFrom.TIMESTAMP),
    "group_protocol": ("consumer", "classic"),
    "heartbeat_interval_ms": (2_500, 2_501),
    "isolation_level": ("read_committed", "read_uncommitted"),
    "latency_faults": ("5.x", "4.x"),
    "message_model": (MessageModel.BROADCASTING, MessageModel.CLUSTERING),
    "address_translation": (("a:1=b:1",), ("a:1=c:1",)),
    "nameservers": (("other:9876",), ("third:9876",)),
    "retry_codes": ("4.x", "5.x"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256"),
    "security_protocol": ("SASL_PLAINTEXT", "PLAINTEXT"),
    "strategy": ("EVEN", "AVG"),
    "subscriptions": ((Subscription("T", "*"),), (Subscription("U", "*"),)),
}


LOGIN = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
"""Settings of a Kafka consumer that need each other."""


def others(name: str, value: object) -> tuple[object, object]:
    """Two values of a setting: one that is not the default, and one that is not that."""
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(value, bool):
        return not value, value
    return (value + 1, value + 2) if isinstance(value, int) else (f"{value}x", f"{value}y")


def needed(client: str, name: str) -> dict[str, object]:
    """What else must be given for a client to be made with this setting."""
    if client == "KafkaConsumer":
        return {
            **({"bootstrap_servers": ("a:1",)} if name != "bootstrap_servers" else {}),
            **({"group_protocol": "consumer"} if name == "group_remote_assignor" else {}),
            **{
                each: value
                for each, value in LOGIN.items()
                if name in (*LOGIN, "security_protocol") and each != name
            },
        }
    return {
        **({"group": "g"} if name != "group" else {}),
        **({"client_id": "c"} if name != "client_id" else {}),
        **({"nameservers": ("a:1",)} if name != "nameservers" else {}),
        **({"latency_faults": "5.x"} if name == "detect" else {}),
        **({"secret_key": "s"} if name == "access_key" else {}),
        **({"access_key": "a"} if name == "secret_key" else {}),
        **({"consume_batch": 1} if client == "PushConsumer" and name != "consume_batch" else {}),
    }


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CONFIGS)
def test_a_setting_is_a_keyword_or_a_field_of_the_config(client: str, shell: str) -> None:
    cls, config = getattr(SHELLS[shell], client), CONFIGS[client]
    for name, (value, _) in settings_of(client).items():
        if client == "PullConsumer" and name == "message_model":
            continue  # a pull consumer cannot broadcast
        more = needed(client, name)
        word = OWN_WORDS.get(name, name) if shell == "aio" else name
        by_name = cls(**more, **{word: value}).config
        whole = cls(config=config(**more, **{name: value})).config
        assert by_name == whole, name
        assert getattr(whole, name) == value


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CONFIGS)
def test_a_setting_that_is_given_twice_is_named(client: str, shell: str) -> None:
    cls, config = getattr(SHELLS[shell], client), CONFIGS[client]
    for name, (value, second) in settings_of(client).items():
        word = OWN_WORDS.get(name, name) if shell == "aio" else name
        with pytest.raises(ConfigError, match=rf"^{name} is given twice, as an argument and in"):
            cls(**{word: second}, config=config(**needed(client, name), **{name: value}))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_setting_is_named(client: str, shell: str) -> None:
    with pytest.raises(TypeError, match="retires") as caught:
        getattr(SHELLS[shell], client)(retires=3)
    if client != "Admin":
        assert isinstance(caught.value, ArgumentError)
        near = "did you mean retries" if client == "Producer" else "did you mean|expected one of: "
        assert re.search(near, str(caught.value))


# -- life --------------------------------------------------------------------------------------------


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


def made(twins: Twins, client: str, nameservers: str) -> Any:
    match client:
        case "Admin":
            return twins.wrap(twins.make(client, nameservers))
        case "KafkaConsumer":
            return twins.wrap(twins.make(client, bootstrap_servers="127.0.0.1:1"))
        case "PushConsumer":
            return twins.wrap(twins.make(client, "closed", nameservers, print).subscribe("Closed"))
    return twins.wrap(twins.make(client, f"closed-{client}", nameservers))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("close", ["close", "stop"])
def test_every_client_is_closed_by_close(
    twins: Twins, client: str, close: str, nameservers: str
) -> None:
    async def main() -> None:
        started = made(twins, client, nameservers)
        await started.start()
        await getattr(started, close)()
        await getattr(started, close)()  # again, and nothing happens
        with pytest.raises(ClosedError):
            await started.start()
        unused = made(twins, client, nameservers)
        await getattr(unused, close)()
        async with made(twins, client, nameservers) as left:
            pass
        with pytest.raises(ClosedError):
            await left.start()

    run(main())


@pytest.mark.parametrize("client", CLIENTS)
def test_both_names_are_one_method(client: str) -> None:
    for module in SHELLS.values():
        cls = getattr(module, client)
        assert inspect.getdoc(cls.stop) == inspect.getdoc(cls.close)
        assert signature_of(cls.stop) == signature_of(cls.close)


def test_two_that_close_at_once(twins: Twins, nameservers: str) -> None:
    async def main() -> None:
        for client in CLIENTS:
            started = made(twins, client, nameservers)
            await started.start()
            await asyncio.gather(*(started.close() for _ in range(5)))

    run(main())


# -- functions of either kind ------------------------------------------------------------------------


def test_listeners_and_checks_are_plain_or_coroutine_functions(
    twins: Twins, nameservers: str
) -> None:
    """In both shells; a blocking worker waits for a coroutine on the background loop."""
    topic = f"Either-{twins.kind}"
    seen: list[str] = []

    async def listener(message: MessageView) -> None:
        await asyncio.sleep(0)
        seen.append(f"async {message.body!r}")

    def plain(message: MessageView) -> None:
        seen.append(f"plain {message.body!r}")

    async def commits(message: Message) -> TransactionState:
        await asyncio.sleep(0)
        return TransactionState.COMMIT

    async def main() -> None:
        more = {"consume_from": ConsumeFrom.FIRST_OFFSET}
        make = twins.make
        consumers = [
            twins.wrap(
                make("PushConsumer", f"{topic}-{n}", nameservers, one, **more).subscribe(topic)
            )
            for n, one in enumerate((listener, plain))
        ]
        producer = twins.wrap(make("Producer", topic, nameservers, transaction_check=commits))
        async with producer:
            first = await producer.send_in_transaction(topic, b"1", execute=commits)
            second = await producer.send_in_transaction(topic, b"2", execute=lambda message: True)
            assert {first.state, second.state} == {TransactionState.COMMIT}
            for consumer in consumers:
                await consumer.start()
            await until_async(lambda: len(seen) == 4)
            for consumer in consumers:
                await consumer.close()
        assert sorted(seen) == ["async b'1'", "async b'2'", "plain b'1'", "plain b'2'"]

    run(main())


def test_send_async_brings_a_future(twins: Twins, nameservers: str) -> None:
    async def main() -> None:
        async with twins.wrap(twins.make("Producer", "futures", nameservers)) as producer:
            futures = [await producer.send_async("Futures", b"%d" % n) for n in range(50)]
            if twins.kind == "blocking":
                futures = [asyncio.wrap_future(future) for future in futures]
            results = await asyncio.gather(*futures)
            assert len({(result.queue, result.queue_offset) for result in results}) == 50

    run(main())
