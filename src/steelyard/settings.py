"""Settings given by name, in a table of a TOML file or as texts `NAME=VALUE`.

A setting's names are:

- that of its field, such as `flush`; in a nested configuration both names, such as
  `store.retention_ms`, of which the first may be omitted if the second is unambiguous;
- Kafka's and RocketMQ's, if they have the same setting: `log.retention.ms`, `brokerName`
  (`config.Kafka`, `config.RocketMQ`).

Values are converted by msgspec and checked by `checks`, both by the annotation of the field. In a
text the items of a list are separated by commas or semicolons. Errors raise ArgumentError with the
given name, the value, and what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from steelyard.checks import INT_MAX, Kind, Positive, kind_of, unknown, wrong
from steelyard.config import Kafka, KafkaConfig, RocketMQ, check
from steelyard.decoding import prepared
from steelyard.errors import ArgumentError

C = TypeVar("C")
T = TypeVar("T")


class Setting(NamedTuple):
    """A setting of a configuration."""

    name: str
    """The name of its field, after that of its configuration: `store.retention_ms`."""
    hint: Any
    default: object
    kafka: Kafka | None
    rocketmq: RocketMQ | None

    @property
    def kind(self) -> Kind:
        """The validation of its values."""
        return kind_of(self.hint)

    @property
    def highest(self) -> int:
        """Its largest value, if it is a number."""
        meta = _marked(self.hint, msgspec.Meta)
        return INT_MAX if meta is None or meta.le is None else int(meta.le)

    def of(self, config: object) -> Any:
        """Return its value in a configuration."""
        for part in self.name.split("."):
            config = getattr(config, part)
        return config

    def take(self, name: str, given: object, *, is_text: bool = False) -> object:
        """Convert and validate a value given under this name. Raises ArgumentError."""
        hint, unlimited, value = self.hint, 0, given
        if self.kafka is not None and name == self.kafka.name and self.kafka.unlimited:
            hint, unlimited = Positive, self.kafka.unlimited
            if given == (str(unlimited) if is_text else unlimited):
                return 0
        kind = kind_of(hint)
        words = kind.text_words if is_text and kind.text_words else kind.words
        if unlimited:
            words += f", or {unlimited} for no limit"
        if is_text and isinstance(self.default, tuple):
            value = [part.strip() for part in re.split("[,;]", str(given))] if given else []
        try:
            value = msgspec.convert(value, prepared(hint), strict=not is_text)
        except (msgspec.ValidationError, UnicodeEncodeError):
            is_wrong_type = not is_text and not kind.fits(given)
            raise wrong(name, given, words, wrong_type=is_wrong_type) from None
        return kind.take(name, value)


def _marked(hint: Any, cls: type[T]) -> T | None:
    """Return the part of the annotation that is of that class."""
    return next((each for each in get_args(hint) if isinstance(each, cls)), None)


def _config_in(hint: Any) -> Any:
    """Return the configuration that a field holds, or may hold; None if it holds a value."""
    return next((each for each in (hint, *get_args(hint)) if is_dataclass(each)), None)


def settings_of(cls: Any) -> Mapping[str, Setting]:
    """Return all settings of a configuration by name, including those of nested ones."""
    return _settings_of(cls)


@cache
def _settings_of(cls: Any) -> Mapping[str, Setting]:
    """Do it once for each class, not at each start of a broker."""
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, Setting] = {}
    for field in fields(cls):
        name, hint = field.name, hints[field.name]
        inner = _config_in(hint)
        if inner is not None:
            for each in settings_of(inner).values():
                found[f"{name}.{each.name}"] = each._replace(name=f"{name}.{each.name}")
            continue
        kafka = _marked(hint, Kafka)
        if cls is KafkaConfig and kafka is None and "_" in name:
            kafka = Kafka(name.replace("_", "."))
        found[name] = Setting(name, hint, field.default, kafka, _marked(hint, RocketMQ))
    return found


@cache
def _names(cls: Any) -> Mapping[str, Setting]:
    """Return the settings by all their names."""
    known = settings_of(cls)
    names = dict(known)
    for each in known.values():
        for other in (each.kafka, each.rocketmq):
            if other is not None:
                names.setdefault(other.name, each)
    for each in known.values():
        names.setdefault(each.name.rpartition(".")[2], each)
    return names


def _setting(cls: Any, name: str) -> Setting:
    names = _names(cls)
    if name not in names:
        raise unknown("setting", name, settings_of(cls), names, listed_in="docs/SETTINGS.md")
    return names[name]


def from_table(cls: Any, table: Mapping[str, object]) -> dict[str, object]:
    """Return the values in a TOML table by the settings' own names. Raises ArgumentError."""
    values: dict[str, object] = {}
    for name, value in _flat(table):
        setting = _setting(cls, name)
        if setting.name in values:
            raise ArgumentError(f"{name} is given twice, under different names; give it once")
        values[setting.name] = setting.take(name, value)
    return values


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Flatten nested tables to dotted names: TOML's `log.retention.ms = 1` makes nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def from_texts(cls: Any, texts: Iterable[str]) -> dict[str, object]:
    """Return the values in texts `NAME=VALUE`; for the same setting the last one counts."""
    values: dict[str, object] = {}
    for each in texts:
        name, equals, text = (part.strip() for part in each.partition("="))
        if not equals:
            raise ArgumentError(f"{each!r}: expected NAME=VALUE")
        setting = _setting(cls, name)
        values[setting.name] = setting.take(name, text, is_text=True)
    return values


def build(cls: type[C], values: Mapping[str, object]) -> C:
    """Build the configuration from values by the settings' own names. Raises ConfigError."""
    config = _built(cls, values)
    check(config)
    return config


def _built(cls: type[C], values: Mapping[str, object]) -> C:
    own: dict[str, object] = {}
    inner: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        first, _, rest = name.partition(".")
        if rest:
            inner.setdefault(first, {})[rest] = value
        else:
            own[name] = value
    hints = get_type_hints(cls) if inner else {}
    for name, part in inner.items():
        own[name] = _built(_config_in(hints[name]), part)
    return cls(**own)
