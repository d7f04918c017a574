"""Writes docs/SETTINGS.md, deploy/steelyard.toml and `setting_texts` from the configurations.

./dev generate          write them
python tools/settings.py --check    say which of them is stale, and fail
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from shells import CONFIG, settings

from steelyard import config
from steelyard.admin.server_options import HTTP_OF_UP
from steelyard.servers import deployment
from steelyard.settings import Setting, settings_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "SETTINGS.md"
TOML = ROOT / "deploy" / "steelyard.toml"
TEXTS = ROOT / "src/steelyard/nodes/broker/kafka/cluster/setting_texts.py"

HEAD = """\
# Settings

Written by `./dev generate` from the annotations in [config.py](../src/steelyard/config.py); do not
edit.

**Servers** take their settings as options, `--set NAME=VALUE`, and from a TOML file, `--config
FILE`, with the tables `[up]`, `[nameserver]` and `[broker]`
([how to](OPERATIONS.md#limits-to-set)). Options take precedence over the file. In a name with a
dot, the first part may be omitted if no other setting has the same second part: `retention_ms`. The
names of Kafka and RocketMQ are accepted for settings with the same meaning there.

**Clients** take theirs as keywords, `Producer("orders", retries=5)`, or in a configuration,
`Producer("orders", config=ProducerConfig(retries=5))`.

[steelyard.toml](../deploy/steelyard.toml) has all settings of servers, commented out.

An invalid value is an error that names the setting, the value, and what would be right.
"""

TOML_HEAD = """\
# Settings of `steelyard up`, `nameserver`, `broker` and `http`: --config FILE.
#
# Written by `./dev generate` from the annotations in the code. Every setting is commented out and
# has its default value. To change one, remove the # before its name.
"""

TEXTS_HEAD = '''\
# Written by tools/settings.py from config.py: change that one, then `./dev generate`.
"""What the broker's settings mean, by Kafka's names: the documentation in DescribeConfigs."""

from __future__ import annotations

from collections.abc import Mapping

SETTING_TEXTS: Mapping[str, str] = {
'''

TOML_SECTIONS = (
    ("up", "What `steelyard up` starts.", deployment.Deployment),
    ("nameserver", "The nameserver.", config.NameserverConfig),
    ("broker", "Every broker, also those of `up`.", config.BrokerConfig),
    ("http", "The HTTP server, also that of `up`.", config.HttpConfig),
)
"""Tables, what they are for, and configurations."""

EXAMPLES = {
    "kafka_port": 9092,
    "http_port": 9464,
    "kafka.brokers": ["broker-a"],
    "nameservers": ["127.0.0.1:9876"],
}
"""Values of settings whose default cannot be written."""

TOML_WIDTH = 100

HOLDERS = {
    "store": "StoreConfig",
    "kafka": "KafkaConfig",
    "tls": "TlsConfig",
    "tls_client": "TlsClientConfig",
}
"""Configurations within others, by the name of the field that holds them."""

SECTIONS = (
    ("`[up]`: what `steelyard up` starts", deployment.Deployment, None),
    ("`[nameserver]`", config.NameserverConfig, None),
    ("`[broker]`", config.BrokerConfig, None),
    ("`[http]`", config.HttpConfig, None),
    ("`ProducerConfig`", config.ProducerConfig, None),
    ("`ConsumerConfig`: `PushConsumer` and `PullConsumer`", config.ConsumerConfig, None),
    (
        "`LitePullConfig`: `LitePullConsumer`, in place of or beside those of `ConsumerConfig`",
        config.LitePullConfig,
        config.ConsumerConfig,
    ),
    ("`KafkaConsumerConfig`: `KafkaConsumer`", config.KafkaConsumerConfig, None),
)
"""Titles and configurations, and the configuration whose settings are not told again."""

UNITS = {
    "bytes/s": r"bytes_per_second$",
    "bytes": r"(_|\b)bytes(_|$)",
    "ms": r"_ms$|timestamp$",
    "minutes": r"_minutes$",
}

WORDS = (
    (r"\b(an int|a number) (of )?", ""),
    (r"^a tuple or list of str$", "list of texts"),
    (r"^a tuple or list of ", "list of "),
    (r"\ba str\b", "text"),
    (r",? or None$", ""),
    ("'", "`"),
)
"""What stands on this page for the words of errors."""

SIZES = {
    "ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")),
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")),
}

RANGES = {("brokers", int): f"1 to {deployment.BROKERS_MAX}"}
"""What settings take that their annotations leave to a later check, by name and annotation."""

Meanings = dict[str, str]
"""What the docstrings below the fields say, by the field's name."""


def meanings() -> dict[str, Meanings]:
    """Of all configurations, by the name of the class."""
    found: dict[str, Meanings] = {}
    for path in (CONFIG, Path(deployment.__file__)):
        body = ast.parse(path.read_text()).body
        classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        for name in classes:
            if name.endswith(("Config", "Deployment")):
                told = settings(classes, name)
                found[name] = {field: text.replace("|", "\\|") for field, _, _, text in told}
    return found


def unit(name: str) -> str:
    return next((each for each, pattern in UNITS.items() if re.search(pattern, name)), "")


def values(setting: Setting) -> str:
    """What it takes, and in what unit."""
    words = (
        RANGES.get((setting.name, setting.hint)) or setting.kind.text_words or setting.kind.words
    )
    if isinstance(setting.default, (Enum, tuple)):  # only in texts are tuples without brackets
        words = setting.kind.words
    for pattern, text in WORDS:
        words = re.sub(pattern, text, words)
    return ", ".join(filter(None, (words, unit(setting.name))))


def default(setting: Setting) -> str:
    """As it is written, and what that is in larger units."""
    value = setting.default
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    for size, name in SIZES.get(unit(setting.name), ()):
        if isinstance(value, int) and value and value % size == 0:
            return f"`{value}` ({value // size} {name})"
    return f"`{value}`"


def rows(cls: type, inherited: type | None, told: dict[str, Meanings]) -> Iterator[str]:
    known = settings_of(inherited) if inherited else {}
    for name, each in settings_of(cls).items():
        table, _, field = name.rpartition(".")
        holder = HOLDERS.get(table, cls.__name__)
        if name in known and known[name].default == each.default:
            continue
        others = ", ".join(f"`{other.name}`" for other in (each.kafka, each.rocketmq) if other)
        meaning = told[holder][field]
        yield f"| `{name}` | {values(each)} | {default(each)} | {meaning} | {others} |"


def page() -> str:
    told = meanings()
    parts = [HEAD]
    for title, cls, inherited in SECTIONS:
        head = (
            "| setting | values | default | meaning | in Kafka, RocketMQ |\n|---|---|---|---|---|"
        )
        parts.append("\n".join([f"## {title}\n", head, *rows(cls, inherited, told), ""]))
    return "\n".join(parts)


def toml() -> str:
    """The settings file with everything in it, commented out."""
    told = meanings()
    lines = [TOML_HEAD]
    for table, title, cls in TOML_SECTIONS:
        lines += [*comment(title), f"[{table}]", ""]
        part = ""
        for name, each in settings_of(cls).items():
            inner, _, field = name.rpartition(".")
            if inner != part:
                lines += [f"[{table}.{inner}]", ""]
                part = inner
            holder = HOLDERS.get(inner, cls.__name__)
            text = told[holder][field].replace("\\|", "|")
            lines += [*comment(text), *comment(notes(table, each))]
            value = EXAMPLES.get(name, each.default)
            lines += [f"#{field} = {json.dumps(value)}", ""]
    return "\n".join(lines)


FROM_UP = {"broker": deployment.OF_DEPLOYMENT, "http": HTTP_OF_UP}
"""Settings that `up` gives its servers, by their tables."""


def notes(table: str, setting: Setting) -> str:
    """What a setting of a table takes, and what else there is to say of it."""
    said = [f"Values: {values(setting)}."]
    if setting.name in EXAMPLES:
        said.append("Not set by default; this is an example.")
    if setting.name in FROM_UP.get(table, ()):
        said.append("Not with `up`, which sets it.")
    return " ".join(said)


def comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, TOML_WIDTH - 2)]


def texts() -> str:
    told = meanings()
    lines = [
        f"    {json.dumps(each.kafka.name)}: {json.dumps(plain(told[cls.__name__][each.name]))},\n"
        for cls in (config.KafkaConfig, config.StoreConfig)
        for each in settings_of(cls).values()
        if each.kafka is not None and not each.kafka.text
    ]
    return f"{TEXTS_HEAD}{''.join(lines)}}}\n"


def plain(text: str) -> str:
    """Without the marks of Markdown."""
    return text.replace("\\|", "|").replace("`", "")


def main(arguments: list[str]) -> int:
    stale = 0
    for path, write in ((PAGE, page), (TOML, toml), (TEXTS, texts)):
        if arguments != ["--check"]:
            path.write_text(write())
        elif not path.exists() or path.read_text() != write():
            stale = 1
            print(f"{path.relative_to(ROOT)} is stale: run ./dev generate", file=sys.stderr)
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
