"""Writes the blocking clients from the asyncio ones, and keyword settings from configurations.

    ./dev generate          write them
    python tools/shells.py --check      say which are stale, and fail

`client/aio` is the source. A blocking module is its text without `async` and `await`, with the
words in WORDS in place of those for coroutines, and the sentences in SENTENCES in place of those
that do not apply. What really differs between the shells is written by hand, under the same names
in both: `running` and `workers`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "src" / "steelyard" / "client"
CONFIG = CLIENT.parent / "config.py"

MODULES = ("client", "producer", "push", "pull", "lite_pull", "kafka")

WORDS = (
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\b__a(?=enter__|exit__|iter__|next__)", "__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (
        r"from asyncio import Future, Lock",
        "from concurrent.futures import Future\nfrom threading import Lock",
    ),
    (r"from asyncio import Future", "from concurrent.futures import Future"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bclient\.aio\b", "client.blocking"),
    (r"\bconcurrency\b", "consume_threads"),
    (r"\basyncio\b", "blocking"),
    (r"\b(Any number of|Any|another) task(s?)\b", r"\1 thread\2"),
)

SENTENCES = (
    (
        "that awaits a coroutine for each message.",
        "that calls a function for each message, in worker threads.",
    ),
    ("They run beside the listeners;", "They run in worker threads, too;"),
    (
        "Listener and hooks may be plain functions, too; then they must not block.",
        "Listener and hooks may be coroutine functions: a worker thread then waits for each call,\n"
        "    which runs on the event loop that all blocking clients share. It must not block.",
    ),
    (
        "that is cancelled, by `asyncio.timeout` for instance,",
        "that is interrupted, by Ctrl-C for instance,",
    ),
)

IDENTITY = frozenset({"nameservers", "group", "client_id", "checks"})
CONSUMER = IDENTITY | {"orderly", "consume_threads", "handed_max", "hooks", "queue_changes"}
KAFKA = frozenset({"bootstrap_servers", "group_id"})
"""Fields that are arguments of their own, or follow from others."""

CONFIGS = {
    "ProducerSettings": ("ProducerConfig", IDENTITY),
    "ConsumerSettings": ("ConsumerConfig", CONSUMER),
    "LitePullSettings": ("LitePullConfig", CONSUMER),
    "KafkaSettings": ("KafkaConsumerConfig", KAFKA),
}
"""Groups of keywords: the configuration whose fields they are, but for which."""


def blocking(name: str) -> str:
    """The blocking module of that name."""
    text = (CLIENT / "aio" / f"{name}.py").read_text()
    for own, other in SENTENCES:
        text = text.replace(own, other)
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text)
    note = (
        f"# Written by tools/shells.py from client/aio/{name}.py:"
        " change that one, then `./dev generate`.\n"
    )
    return formatted(note + text)


def unused_sentences() -> list[str]:
    texts = "".join((CLIENT / "aio" / f"{name}.py").read_text() for name in MODULES)
    return [own for own, _ in SENTENCES if own not in texts]


KEYWORDS_HEAD = '''\
# Written by tools/shells.py from config.py: change that one, then `./dev generate`.
"""The settings that the clients take by name, each as in its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from steelyard.checks import Int32, Positive, PositiveInt32
from steelyard.config import Compression, LatencyFaults
from steelyard.types import ConsumeFrom, MessageModel, Subscription
'''


def keywords() -> str:
    """The module of the groups of keywords."""
    classes = {
        node.name: node
        for node in ast.parse(CONFIG.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    groups = [
        group(name, [each for each in settings(classes, config) if each[0] not in without])
        for name, (config, without) in CONFIGS.items()
    ]
    return formatted("\n\n".join([KEYWORDS_HEAD, *groups]))


Setting = tuple[str, str, str, str]
"""Name, type, default and meaning."""


def settings(classes: dict[str, ast.ClassDef], name: str) -> Iterator[Setting]:
    """Yield the settings of a configuration, inherited ones first, with overridden defaults."""
    found: dict[str, Setting] = {}
    for base in classes[name].bases:
        found |= {each[0]: each for each in settings(classes, ast.unparse(base))}
    body = classes[name].body
    for field, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        meaning = " ".join(str(after.value.value).split()) if is_text else ""
        own = field.target.id
        found[own] = (own, ast.unparse(field.annotation), default(field.value), meaning)
    yield from found.values()


def default(value: ast.expr | None) -> str:
    """As it stands in the configuration; of `field(default=...)` that one."""
    assert value is not None
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        value = next(each.value for each in value.keywords if each.arg == "default")
    return ast.unparse(value)


def group(name: str, fields: list[Setting]) -> str:
    texts = [
        "\n      ".join(textwrap.wrap(f"- `{field}` ({value}): {text}", 94, break_on_hyphens=False))
        for field, _, value, text in fields
    ]
    types = [f"    {field}: {loosened(kind)}" for field, kind, _, _ in fields]
    doc = "\n\n    ".join(["Settings, with their defaults.", "\n    ".join(texts)])
    return f'class {name}(TypedDict, total=False):\n    """{doc}\n    """\n\n' + "\n".join(types)


def loosened(kind: str) -> str:
    """What is a tuple in a configuration may be any sequence, and one text may stand for itself."""
    item = re.fullmatch(r"tuple\[(\w+), \.\.\.\]", kind)
    if item is None:
        return kind
    return f"{'str | ' if item[1] == 'str' else ''}Sequence[{item[1]}]"


def formatted(text: str) -> str:
    """As `ruff` has it."""
    for step in (("check", "--select", "I,F401", "--fix", "--quiet"), ("format", "--quiet")):
        command = ("ruff", *step, "--stdin-filename", str(CLIENT / "generated.py"), "-")
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return text


def main() -> int:
    unused = unused_sentences()
    if unused:
        print(f"tools/shells.py: no module has the sentence {unused[0]!r}", file=sys.stderr)
        return 1
    made = {CLIENT / "blocking" / f"{name}.py": blocking(name) for name in MODULES}
    made[CLIENT / "keywords.py"] = keywords()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv[1:]:
        for path in stale:
            path.write_text(made[path])
        return 0
    for path in stale:
        print(
            f"{path.relative_to(CLIENT.parents[2])} is stale: run ./dev generate", file=sys.stderr
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
