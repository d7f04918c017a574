"""Every example of docs/CLIENT.md, run as it is printed; what it prints must be the block that follows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.kafka import KafkaServers

GUIDE = Path(__file__).parents[2] / "docs" / "CLIENT.md"

_PARTS = re.compile(
    r"^#+ (?P<title>[^\n]+)$|^```python\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def examples() -> Iterator[object]:
    """Code, expected output and line of each example, named after the heading it stands under."""
    text = GUIDE.read_text()
    title = ""
    for part in _PARTS.finditer(text):
        if part["title"]:
            title = part["title"]
            continue
        line = text.count("\n", 0, part.start("code"))
        yield pytest.param(part["code"], part["output"], line, id=f"{title}, line {line + 1}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    """Two brokers with both listeners."""
    started = KafkaServers(tmp_path_factory.mktemp("guide"))
    yield started
    started.stop()


@pytest.mark.parametrize(("code", "output", "line"), list(examples()))
def test_example(
    code: str,
    output: str | None,
    line: int,
    servers: KafkaServers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", servers.nameservers)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers.bootstrap)
    monkeypatch.setenv("HOME", str(tmp_path))  # broadcasting members keep their offsets there
    monkeypatch.chdir(tmp_path)
    program = compile("\n" * line + code, str(GUIDE), "exec")  # errors name the guide's own line
    exec(program, {"__name__": "__main__"})
    if output is not None:
        assert capsys.readouterr().out == output
