"""Settings by name: whichever way they are given, the same is taken, and the same is refused."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.admin.main import main
from steelyard.config import (
    BrokerConfig,
    ConsumerConfig,
    KafkaConfig,
    KafkaConsumerConfig,
    LitePullConfig,
    NameserverConfig,
    ProducerConfig,
    StoreConfig,
)
from steelyard.errors import ArgumentError, ConfigError
from steelyard.servers.deployment import Deployment
from steelyard.settings import Setting, build, from_table, from_texts, settings_of

SERVERS = (NameserverConfig, BrokerConfig)
CLASSES = (
    *SERVERS,
    ProducerConfig,
    ConsumerConfig,
    LitePullConfig,
    KafkaConsumerConfig,
    Deployment,
)

NO_TEXT = frozenset({"subscriptions"})
"""Settings whose items are no texts."""

SETTINGS = [
    (cls, setting)
    for cls in CLASSES
    for setting in settings_of(cls).values()
    if setting.name not in NO_TEXT
]
words = st.text("abcXYZ019.:-_$ ", min_size=1).map(str.strip).filter(bool)


def least(setting: Setting) -> float:
    """Of a number: the smallest."""
    metas = [each for each in get_args(setting.hint) if isinstance(each, msgspec.Meta)]
    return metas[0].ge if metas and metas[0].ge is not None else 0


def choices(hint: Any) -> list[str]:
    """The texts of a Literal, also within another type."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [each for inner in get_args(hint) for each in choices(inner)]


def right(setting: Setting) -> st.SearchStrategy[object]:
    """Values that the setting may have."""
    default = setting.default
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, float):
        return st.floats(0.001, 1)
    if isinstance(default, int) or default is None:
        return st.integers(int(least(setting)), setting.highest)
    if isinstance(default, Enum):
        return st.sampled_from(type(default))
    one = st.sampled_from(choices(setting.hint)) if choices(setting.hint) else words
    return st.lists(one).map(tuple) if isinstance(default, tuple) else one


@st.composite
def chosen(draw: st.DrawFn) -> tuple[type, dict[str, object]]:
    """A configuration, and values for some of its settings."""
    cls = draw(st.sampled_from(CLASSES))
    known = [each for of, each in SETTINGS if of is cls]
    some = draw(st.lists(st.sampled_from(known), max_size=6, unique_by=lambda each: each.name))
    return cls, {each.name: draw(right(each)) for each in some}


def text(value: object) -> str:
    """As after `--set NAME=`."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def toml(values: Mapping[str, object]) -> dict[str, Any]:
    """What a file says that has these values, written and read."""

    def plain(value: object) -> object:
        return value.value if isinstance(value, Enum) else value

    lines = [f"{name} = {json.dumps(plain(value))}" for name, value in values.items()]
    return tomllib.loads("\n".join(lines))


def outcome(cls: type, values: Mapping[str, object]) -> object:
    """The configuration, or what is wrong with settings that do not go together."""
    try:
        return build(cls, values)
    except ConfigError as error:
        return str(error)


@given(chosen())
def test_a_file_a_text_and_a_keyword_come_to_the_same(
    case: tuple[type, dict[str, object]],
) -> None:
    cls, values = case
    expected = outcome(cls, values)
    assert outcome(cls, from_table(cls, toml(values))) == expected
    texts = [f"{name}={text(value)}" for name, value in values.items()]
    assert outcome(cls, from_texts(cls, texts)) == expected


def wrong_texts(setting: Setting) -> list[str]:
    default = setting.default
    if isinstance(default, bool):
        return ["", "maybe", "2", "None"]
    if isinstance(default, float):
        return ["", "x", "nan", "inf", "-inf", "-0.1", "1.1"]
    if isinstance(default, int) or default is None:
        outside = [str(least(setting) - 1), str(setting.highest + 1), "9" * 5_000]
        return ["", "x", "1.5", "0x10", "1_0", "true", "nan", *outside]
    is_free = setting.hint is str or str in get_args(setting.hint) or isinstance(default, tuple)
    if is_free:
        return ["\ud800"]
    return [*([""] if default else []), "x", "\ud800"]


def wrong_values(setting: Setting) -> list[object]:
    default = setting.default
    if isinstance(default, bool):
        return [0, 1, "true", 0.5, []]
    if isinstance(default, float):
        return [True, "0.5", float("nan"), float("inf"), -1, 2, []]
    if isinstance(default, int) or default is None:
        return [True, "1", 1.5, [], least(setting) - 1, setting.highest + 1]
    if isinstance(default, tuple):
        return [True, 1, 1.5, "x", [1], [["x"]], ["\ud800"]]
    return [True, 1, 1.5, [], ["x"], "\ud800"]


@pytest.mark.parametrize(("cls", "setting"), SETTINGS, ids=lambda each: getattr(each, "name", None))
def test_what_is_wrong_is_said_whichever_way_it_is_given(cls: type, setting: Setting) -> None:
    name = setting.name
    for value in wrong_texts(setting):
        with pytest.raises(ArgumentError, match=rf"^{re.escape(name)}(\[0\])? (is .*it )?must be "):
            from_texts(cls, [f"{name}={value}"])
    for wrong in wrong_values(setting):
        with pytest.raises(ArgumentError, match=rf"^{re.escape(name)}(\[0\])? .*must be "):
            from_table(cls, {name: wrong})
        with pytest.raises(ArgumentError, match=rf"^{re.escape(name)}(\[0\])? .*must be "):
            build(cls, {name: wrong})


@pytest.mark.parametrize(("cls", "setting"), SETTINGS, ids=lambda each: getattr(each, "name", None))
def test_a_misspelt_name_is_told_the_right_one(cls: type, setting: Setting) -> None:
    wrong = f"{setting.name}x"
    words = f"^unknown setting '{wrong}'; did you mean {setting.name}( or |,|\\?)"
    with pytest.raises(ArgumentError, match=words):
        from_texts(cls, [f"{wrong}=1"])
    with pytest.raises(ArgumentError, match=words):
        from_table(cls, {wrong: 1})


@pytest.mark.parametrize("setting", settings_of(BrokerConfig).values(), ids=lambda each: each.name)
def test_the_command_line_says_it_in_one_line(
    setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (each for each in wrong_texts(setting) if each != "\ud800"):
        assert main(["up", "--brokers", "0", "--set", f"{setting.name}={value}"]) == 2
        told = capsys.readouterr().err
        assert re.fullmatch(rf"steelyard: {re.escape(setting.name)} is .*; it must be .*\n", told)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("[broker]\nflush = 'no'", "[broker]: flush is 'no'; it must be one of 'async', 'sync'"),
        ("[broker]\nflsh = 'sync'", "[broker]: unknown setting 'flsh'; did you mean flush?"),
        (
            "[broker.store]\nretention_ms = '1'",
            "retention_ms is '1'; it must be an int of 0 or more",
        ),
        (
            "[nameserver]\nflush = 'sync'",
            "[nameserver]: unknown setting 'flush'; expected one of: ",
        ),
        (
            "[up]\nbrokers = true",
            "[up]: brokers is True; it must be an int of 0 or more, not a bool",
        ),
        ("[up]\nbroker = 2", "[up]: unknown setting 'broker'; did you mean brokers"),
        ("[brokers]", "unknown table 'brokers'; did you mean broker?"),
        ("broker = 1", "broker is not a table; write [broker]"),
        ("flush: sync", " is not TOML: "),
        (
            "[broker]\nname = 'x'",
            "name cannot be set here: each broker gets its own",
        ),
        ("[broker]\nkafka.node_id = 2", "kafka.node_id cannot be set here"),
        ("x = " + "[" * 5_000, " is not TOML: "),
        (None, "No such file or directory"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(
    tmp_path: Path, file: str | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "steelyard.toml"
    if file is not None:
        path.write_text(file)
    assert main(["up", "--brokers", "0", "--config", str(path)]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
    assert "cannot be set" in told or f"steelyard: --config {path}" in told


# -- names -----------------------------------------------------------------------------------------


def test_a_setting_has_the_names_that_kafka_and_rocketmq_have_for_it() -> None:
    config = build(
        BrokerConfig,
        from_texts(
            BrokerConfig,
            [
                "brokerName=broker-x",
                "namesrvAddr=10.0.0.1:9876; 10.0.0.2:9876",
                "maxMessageSize=99",
                "num.partitions=4",
                "max.connections=5",
                "max_connections=6",
                "retention_bytes=7",
                "log.retention.ms=8",
                "store.segment_ms=9",
            ],
        ),
    )
    assert config == BrokerConfig(
        name="broker-x",
        nameservers=("10.0.0.1:9876", "10.0.0.2:9876"),
        max_connections=6,
        store=StoreConfig(message_bytes_max=99, retention_bytes=7, retention_ms=8, segment_ms=9),
        kafka=KafkaConfig(num_partitions=4, max_connections=5),
    )


def test_tables_in_tables_are_dots_and_quotes_are_allowed() -> None:
    file = """
        flush = "sync"
        log.retention.ms = 60000
        "max.connections" = 5
        max.connections.per.ip = 6
        [kafka]
        brokers = ["broker-a"]
        [store]
        segment_bytes = 1000
    """.replace("max.connections.per.ip", '"max.connections.per.ip"')
    assert build(BrokerConfig, from_table(BrokerConfig, tomllib.loads(file))) == BrokerConfig(
        flush="sync",
        store=StoreConfig(retention_ms=60_000, segment_bytes=1000),
        kafka=KafkaConfig(max_connections=5, max_connections_per_ip=6, brokers=("broker-a",)),
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_no_two_settings_share_a_name(cls: type) -> None:
    """A short name of two settings, as `max_connections`, is the one setting's whole name."""
    known = settings_of(cls)
    aliases = [
        other.name
        for each in known.values()
        for other in (each.kafka, each.rocketmq)
        if other is not None
    ]
    assert len({*aliases, *known}) == len(aliases) + len(known)
    short = [name.rpartition(".")[2] for name in known]
    assert {name for name in short if short.count(name) > 1} <= known.keys()


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.bytes", "log.roll.ms"])
def test_no_limit_is_what_kafka_says_for_it(name: str) -> None:
    setting = next(
        each for each in settings_of(StoreConfig).values() if each.kafka and each.kafka.name == name
    )
    assert setting.kafka
    unlimited = setting.kafka.unlimited
    assert from_texts(StoreConfig, [f"{name}={unlimited}"]) == {setting.name: 0}
    assert from_table(StoreConfig, {name: unlimited}) == {setting.name: 0}
    assert from_texts(StoreConfig, [f"{setting.name}=0"]) == {setting.name: 0}
    for wrong in (0, -2, True, str(unlimited)):
        with pytest.raises(ArgumentError, match=f"{name} is .*1 or more, or {unlimited} for no"):
            from_table(StoreConfig, {name: wrong})


def test_the_later_text_counts_and_a_file_gives_each_setting_once() -> None:
    assert from_texts(StoreConfig, ["retention_ms=1", "log.retention.ms=2"]) == {"retention_ms": 2}
    with pytest.raises(ArgumentError, match=r"log\.retention\.ms is given twice"):
        from_table(StoreConfig, {"retention_ms": 1, "log.retention.ms": 2})


def test_a_text_without_a_value() -> None:
    with pytest.raises(ArgumentError, match="'flush': expected NAME=VALUE"):
        from_texts(BrokerConfig, ["flush"])
    assert from_texts(BrokerConfig, [" name = a=b "]) == {"name": "a=b"}
    assert from_texts(BrokerConfig, ["nameservers="]) == {"nameservers": ()}
