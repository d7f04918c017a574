"""A caller's mistake is the caller's error: wrong arguments and settings of everything public, in both shells.

Calls, arguments and settings are found by introspection: a new one is covered by itself, or fails here because SAMPLES
lacks a right value for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.conftest import Servers
from tests.examples import examples

import steelyard
from steelyard import (
    ArgumentError,
    ConfigError,
    Message,
    MessageQueue,
    MessageView,
    SendStatus,
    SteelyardError,
    SubscriptionGroupConfig,
    TopicPartition,
    aio,
)
from steelyard.driver.loops import background
from steelyard.groups.overview import GroupProgress
from steelyard.wire.remoting.bodies import TopicConfig

CLIENTS = (
    "Admin",
    "KafkaConsumer",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
)
CONFIGS = ("ConsumerConfig", "KafkaConsumerConfig", "LitePullConfig", "ProducerConfig")
SHELLS: Mapping[str, Any] = {"blocking": steelyard, "aio": aio}
GOOD_SENDS = 100

SAMPLES: Mapping[str, Any] = {
    "actions": ["Pub"],
    "address": "127.0.0.1:1",
    "body": b"x",
    "broker": "127.0.0.1:1",
    "broker_name": "broker-a",
    "client_id": "c",
    "client_ids": ["c"],
    "cluster": "c",
    "code": 1,
    "concurrency": 1,
    "config": SubscriptionGroupConfig("g"),
    "consume_threads": 1,
    "execute": bool,
    "group": "g",
    "header": None,
    "index": 0,
    "key": "k",
    "message": Message("T", b"x"),
    "message_id": "0",
    "messages": [Message("T", b"x")],
    "mode": "PULL",
    "name": "n",
    "namespace": "n",
    "offset": 0,
    "offset_message_id": "0",
    "offsets": {MessageQueue("T", "broker-a", 0): [0]},
    "order_conf": "broker-a:1",
    "password": "p",
    "partition": TopicPartition("T", 0),
    "partitions": [TopicPartition("T", 0)],
    "progress": GroupProgress("g", ()),
    "queue": MessageQueue("T", "broker-a", 0),
    "queue_id": 0,
    "recall_handle": "djEgVCBiIDEgaWQ=",
    "queues": [MessageQueue("T", "broker-a", 0)],
    "request": MessageView("b", "T", 0, 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, b"x", b""),
    "resources": ["Topic:T"],
    "settings": {},
    "source": "g",
    "target": "h",
    "timestamp_ms": 0,
    "timestamps_ms": {},
    "topic": "T",
    "topic_config": TopicConfig("T"),
    "user": "u",
    "value": "v",
}
"""A right value for each argument that has no default, by name."""

PARTS = frozenset(
    {
        "assign_later",
        "forget",
        "make",
        "poll_call",
        "ready",
        "rewinds",
        "unread",
    }
)
"""Methods of the parts that the shells share: called by the shells, with arguments that were checked."""


class Argument(NamedTuple):
    """One argument of one public call; `call` is "" for the making of the client."""

    shell: str
    client: str
    call: str
    name: str


def calls_of(cls: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "", cls.__init__
    for name in dir(cls):
        function = inspect.getattr_static(cls, name)
        if not name.startswith("_") and name not in PARTS and inspect.isfunction(function):
            yield name, function


def arguments() -> Iterator[Argument]:
    for shell, module in SHELLS.items():
        for client in CLIENTS:
            for call, function in calls_of(getattr(module, client)):
                for parameter in list(inspect.signature(function).parameters.values())[1:]:
                    yield Argument(shell, client, call, parameter.name)


ARGUMENTS = list(arguments())

surrogates = st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2)
WRONG: st.SearchStrategy[Any] = st.one_of(
    st.complex_numbers(),
    st.integers(max_value=-3),
    st.integers(min_value=2**64),
    surrogates,
    st.builds(object),
    st.lists(st.builds(object), min_size=1, max_size=2),
    st.dictionaries(st.complex_numbers(allow_nan=False), st.none(), min_size=1, max_size=2),
    st.builds(set, st.lists(st.floats(), min_size=1)),
    st.just(float("nan")),
)
"""What is right for no argument, and for no setting."""

FOUR_WRONG = st.lists(WRONG, min_size=4, max_size=4)
"""Dealt out to arguments in turn: as many draws as arguments would be too many for Hypothesis."""


WRONG_FIELDS = WRONG.filter(lambda value: not isinstance(value, int) or abs(value) > 2**31)
"""No number that the flag of a message may be. Made once: Hypothesis reads the source of a filter."""


@cache
def around(argument: Argument) -> tuple[bool, dict[str, Any]]:
    """Whether the argument is positional only, and right values for what else its call needs."""
    cls = getattr(SHELLS[argument.shell], argument.client)
    function = dict(calls_of(cls))[argument.call]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    viewed = argument.call in ("send_back", "track")
    bare = False
    options: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        name = parameter.name
        if parameter.kind in positional:
            bare = bare or name == argument.name
        elif parameter.default is parameter.empty or name == "group":
            options[name] = SAMPLES["request" if viewed and name == "message" else name]
    return bare, options


def given_wrongly(argument: Argument, value: object) -> tuple[list[Any], dict[str, Any]]:
    """Return what the call gets: this value, and right ones for what else it needs."""
    bare, options = around(argument)
    return ([value], dict(options)) if bare else ([], options | {argument.name: value})


def test_everything_public_is_covered() -> None:
    public = {name for name in steelyard.__all__ if inspect.isclass(getattr(steelyard, name))}
    makers = {
        name
        for name in public
        if not issubclass(getattr(steelyard, name), BaseException)
        and any(inspect.isfunction(each) for each in vars(getattr(steelyard, name)).values())
    }
    assert set(CLIENTS) <= makers
    of_brokers = {"SubscriptionGroupConfig", "TopicConfig"}
    assert {name for name in public if name.endswith("Config")} - of_brokers == set(CONFIGS)
    assert set(CLIENTS) == {name for name in dir(aio) if name in CLIENTS}
    assert len(ARGUMENTS) > 300


class Running:
    """A client of each kind that runs, and a producer that sends beside them."""

    def __init__(self, nameservers: str) -> None:
        self._loop = background()
        self.clients: dict[tuple[str, str], Any] = {}
        for shell, module in SHELLS.items():
            for client in CLIENTS:
                made = self._made(getattr(module, client), nameservers, shell)
                self.clients[shell, client] = made
                started = made.start()
                if inspect.iscoroutine(started):
                    self._loop.wait(started)

    @staticmethod
    def _made(cls: Any, nameservers: str, shell: str) -> Any:
        match cls.__name__:
            case "Admin":
                return cls(nameservers)
            case "KafkaConsumer":
                return cls(bootstrap_servers="127.0.0.1:1")
            case "PushConsumer":
                return cls(f"Wrong-{shell}", nameservers, bool).subscribe("Unused")
            case name:
                return cls(f"Wrong-{name}-{shell}", nameservers)

    def stop(self) -> None:
        for client in self.clients.values():
            stopped = client.close() if hasattr(client, "close") else client.stop()
            if inspect.iscoroutine(stopped):
                self._loop.wait(stopped, 20)

    def call(self, argument: Argument, value: object) -> None:
        """Call with one wrong value, at a running client."""
        args, options = given_wrongly(argument, value)
        if not argument.call:
            getattr(SHELLS[argument.shell], argument.client)(*args, **options)
            return
        client = self.clients[argument.shell, argument.client]
        if argument.shell == "blocking":
            getattr(client, argument.call)(*args, **options)
            return

        async def call() -> None:
            returned = getattr(client, argument.call)(*args, **options)
            if inspect.isawaitable(returned):
                await returned

        self._loop.wait(call(), 20)

    def send_well(self, shell: str, count: int = GOOD_SENDS) -> list[Future[Any]]:
        """Good messages, on their way."""
        producer = self.clients[shell, "Producer"]
        if shell == "blocking":
            return [producer.send_async("Wrong", b"good") for _ in range(count)]

        async def send() -> Any:
            return await producer.send("Wrong", b"good")

        loop = self._loop.loop
        return [asyncio.run_coroutine_threadsafe(send(), loop) for _ in range(count)]


@pytest.fixture(scope="module")
def running(servers: Servers) -> Iterator[Running]:
    running = Running(servers.nameservers)
    yield running
    running.stop()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_argument_is_an_error_of_its_caller(
    running: Running, shell: str, client: str
) -> None:
    """Every argument, with wrong values of every type, while a hundred good messages are under way."""
    mine = [each for each in ARGUMENTS if (each.shell, each.client) == (shell, client)]

    @settings(max_examples=examples(50))
    @given(FOUR_WRONG)
    def feed(values: list[Any]) -> None:
        sent = running.send_well(shell, 2)
        for argument, value in zip(mine, cycle(values), strict=False):
            with pytest.raises(ConfigError) as caught:
                running.call(argument, value)
            named = (
                argument.name if argument.name not in ("topics", "partitions") else "argument 1|"
            )
            assert re.search(named, str(caught.value)), caught.value
        for future in sent:
            assert future.result(60).status is SendStatus.SEND_OK

    sent = running.send_well(shell)
    feed()
    assert [future.result(60).status for future in sent] == [SendStatus.SEND_OK] * GOOD_SENDS


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=examples(50))
@given(st.data())
def test_a_wrong_field_of_a_message(running: Running, shell: str, data: st.DataObject) -> None:
    """A `Message` is made by the caller, without checks; they are where it is sent."""
    sent = running.send_well(shell, 2)
    for name in Message.__struct_fields__:
        message = Message(**{"topic": "Wrong", "body": b"x", name: data.draw(WRONG_FIELDS)})
        for call in ("send", "send_oneway"):
            argument = Argument(shell, "Producer", call, "message")
            with pytest.raises(ArgumentError, match=rf"message\.{name}\b"):
                running.call(argument, message)
    for future in sent:
        assert future.result(60).status is SendStatus.SEND_OK


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=examples(50))
@given(FOUR_WRONG)
def test_a_wrong_setting(shell: str, config: str, values: list[Any]) -> None:
    """Every field of every configuration is looked at before anything starts."""
    cls = getattr(steelyard, config)
    client = config.replace("Config", "").removesuffix("Consumer") or "Push"
    client = {"Kafka": "KafkaConsumer", "LitePull": "LitePullConsumer", "Push": "PushConsumer"}.get(
        client, client
    )
    for field, value in zip(dataclasses.fields(cls), cycle(values), strict=False):
        wrong = cls(**{field.name: value})
        maker = getattr(SHELLS[shell], client)
        with pytest.raises(ConfigError, match=field.name):
            maker(config=wrong) if client == "KafkaConsumer" else maker("g", config=wrong)


WRONG_SENDS = [
    {"properties": {"price": 3}},
    {"keys": 5},
    {"tags": 5},
    {"delay_level": "3"},
    {"sharding_key": 17},
    {"queue": 3},
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("wrong", WRONG_SENDS, ids=lambda wrong: next(iter(wrong)))
def test_a_wrong_send_harms_no_other(
    running: Running, shell: str, wrong: dict[str, object]
) -> None:
    """Each of these once stopped the whole client."""
    sent = running.send_well(shell)
    ((name, value),) = wrong.items()
    with pytest.raises(
        ArgumentError, match=f"{name}.* is .*; it must be .*, not an? (int|str)"
    ) as caught:
        running.call(Argument(shell, "Producer", "send", name), value)
    assert isinstance(caught.value, TypeError | ValueError)
    assert isinstance(caught.value, SteelyardError)
    assert [future.result(60).status for future in sent] == [SendStatus.SEND_OK] * GOOD_SENDS


def test_a_wrong_call_among_gathered_ones_raises_when_it_is_awaited() -> None:
    """The calls beside it, which were made in the same expression, are awaited as well."""
    producer = aio.Producer("g")

    async def main() -> list[BaseException | Any]:
        sends = [producer.send("T", body) for body in (b"x", 5, b"x")]  # type: ignore[arg-type]  # wrong on purpose
        return await asyncio.gather(*sends, return_exceptions=True)

    assert [type(result).__name__ for result in background().wait(main(), 20)] == [
        "ClosedError",  # it is not running
        "ArgumentError",
        "ClosedError",
    ]
    assert asyncio.iscoroutinefunction(aio.Producer.send)
