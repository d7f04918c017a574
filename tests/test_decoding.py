"""Types are worked out by one thread at a time, and every type that is decoded is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import steelyard

SOURCES = Path(steelyard.__file__).parent

CROWD = '''
import sys, threading
import msgspec
from steelyard.decoding import prepared

sys.setswitchinterval(1e-6)
kinds = []
for number in range(300):
    exec(f"""
class Inner{number}(msgspec.Struct):
    names: "dict[str, int]"
    rest: "tuple[str, ...]"

class Outer{number}(msgspec.Struct):
    all: "tuple[Inner{number}, ...]"
    some: "dict[str, Inner{number}] | None"

kinds.append(Outer{number})
""")
body = b'{"all": [{"names": {"a": 1}, "rest": ["b"]}], "some": {"c": {"names": {}, "rest": []}}}'
barrier = threading.Barrier(4)
read = []

def work():
    for kind in kinds:
        barrier.wait()
        read.append(msgspec.json.decode(body, type=prepared(kind)))

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(one.all[0].names["a"] for one in read))
'''


def test_threads_that_meet_at_a_new_type() -> None:
    """Without `prepared` the process dies of a segmentation fault."""
    done = subprocess.run(
        [sys.executable, "-c", CROWD], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1200\n"), done.stderr


def unprepared(tree: ast.AST) -> Iterator[int]:
    """Lines on which msgspec is given a type that does not come from `prepared`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "msgspec.convert":
            kinds = node.args[1:2]
        elif name in ("msgspec.json.Decoder", "msgspec.msgpack.Decoder"):
            kinds = node.args[:1]
        elif name.startswith("msgspec.") and name.endswith(".decode"):
            kinds = []
        else:
            continue
        kinds += [keyword.value for keyword in node.keywords if keyword.arg == "type"]
        if not all(ast.unparse(kind).startswith("prepared(") for kind in kinds):
            yield node.lineno


def test_every_type_that_is_decoded_is_prepared() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "decoding.py"
        for line in unprepared(ast.parse(path.read_text()))
    ]
    assert found == []


def test_an_unprepared_type_is_found() -> None:
    lines = (
        "msgspec.json.decode(data, type=Kind)",
        "msgspec.convert(row, Kind)",
        "_decode = msgspec.json.Decoder(Kind).decode",
        "msgspec.json.decode(data)",
        "msgspec.msgpack.Decoder(prepared(Kind))",
    )
    assert [*unprepared(ast.parse("\n".join(lines)))] == [1, 2, 3]
