"""Lines of Kafka brokers that say something about a group, in the words of several versions, and lines that do not."""

from __future__ import annotations

import pytest

from steelyard.incident.kafka.broker_log import COORDINATOR, UNLOADED, Evidence, read_broker_log

LEFT = "left (unregistered)"
LINES = [
    (
        "[GroupCoordinator 1]: Loading group metadata for g with generation 3 (kafka)",
        COORDINATOR,
        "",
    ),
    (
        "[GroupCoordinator 1]: Unloading group metadata for g with generation 3 (kafka)",
        UNLOADED,
        "",
    ),
    (
        "[GroupCoordinator id=1] [GroupId=g] Unloading group metadata for generation 6.",
        UNLOADED,
        "",
    ),
    (
        "[GroupCoordinator id=1] [GroupId=g] Unloaded group metadata for group epoch 5.",
        UNLOADED,
        "",
    ),
    ("[GroupCoordinator id=1] Loaded classic group g with 2 members.", COORDINATOR, ""),
    ("[GroupCoordinator id=1] Loaded consumer group g with 2 members.", COORDINATOR, ""),
    ("[GroupId g] Static Member m with instance id i left the consumer group.", LEFT, "m"),
    ("[GroupId g] Static member m with instance id i left the consumer group.", LEFT, "m"),
    ("[GroupId g] Member m left the consumer group.", LEFT, "m"),
    (
        "[GroupId g] Static member m with instance id i temporarily left the consumer group.",
        None,
        "",
    ),
    ("[GroupCoordinator id=1] Stabilized group g generation 6 with 2 members.", None, ""),
]


@pytest.mark.parametrize(("line", "trigger", "member"), LINES)
def test_lines(line: str, trigger: str | None, member: str) -> None:
    found = list(read_broker_log([f"[2026-11-24 04:14:02,667] INFO {line}\n"]))
    at = 1_795_493_642_667
    assert found == ([] if trigger is None else [Evidence(at, "g", member, trigger, "")])
