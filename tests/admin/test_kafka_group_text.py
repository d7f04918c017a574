"""How a Kafka group's report is shown to people."""

from __future__ import annotations

import msgspec

from steelyard.admin.kafka_groups import report_text
from steelyard.groups.kafka.report import (
    KafkaFlapping,
    KafkaGroupReport,
    KafkaOffset,
    KafkaRebalance,
)
from steelyard.types import MessageQueue

NOW = 1_700_000_000_000


def test_clients_that_flap_are_shown_with_the_time_when_they_may_return() -> None:
    flapping = (
        KafkaFlapping("app/10.0.0.1", 4, NOW - 2_000, NOW + 1_500),
        KafkaFlapping("i-7 (static)", 3, NOW - 60_000),
    )
    report = KafkaGroupReport(
        "g", "classic", "Stable", "broker-a", 3, "range", "", (), (), None, (), flapping=flapping
    )
    lines = report_text(report, NOW, {}).splitlines()
    place = lines.index("clients that join and go again and again, in the last half an hour:")
    first, second = lines[place + 1 : place + 3]
    assert first.startswith("  app/10.0.0.1: 4 times, last ")
    assert first.endswith("; it may return in 1.5 s")
    assert second.startswith("  i-7 (static): 3 times, last ")
    assert "return" not in second


def test_a_coordinator_says_since_when_it_knows_rebalances() -> None:
    report = KafkaGroupReport("g", "classic", "Empty", "broker-a", 1, "", "", (), (), None, ())
    text = report_text(report, NOW, {})
    assert "no rebalance since broker-a started or became the coordinator; the ledger" in text
    begun = msgspec.structs.replace(report, rebalances=(KafkaRebalance(NOW, 1, "joined", "c"),))
    assert "no rebalance since" not in report_text(begun, NOW, {})


def test_group_without_such_clients_says_nothing_of_them() -> None:
    report = KafkaGroupReport("g", "classic", "Empty", "b", 1, "", "", (), (), None, ())
    assert "again" not in report_text(report, NOW, {})


def test_how_old_the_oldest_message_is_that_the_group_has_not_consumed() -> None:
    offsets = (
        KafkaOffset("orders", 0, "broker-a", 3, 5, "m-1", 9),
        KafkaOffset("orders", 1, "broker-b", 0, None, "m-1", 2),
    )
    report = KafkaGroupReport(
        "g", "classic", "Stable", "broker-a", 3, "range", "", (), (), None, (), offsets
    )
    waits = {MessageQueue("orders", "broker-a", 3): 1_234}
    *_, header, first, second, _, total = report_text(report, NOW, waits).splitlines()
    assert header.split()[-3:] == ["#Diff", "#Seconds", "#Member"]
    assert first.split() == ["orders", "0", "broker-a", "3", "9", "5", "4", "1.2", "m-1"]
    assert second.split() == ["orders", "1", "broker-b", "0", "2", "-", "-", "-", "m-1"]
    assert total == "Diff Total: 4"
