"""From answers to series: lags worked out by hand, limits, and brokers that do not answer."""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.config import HttpConfig
from steelyard.types import MessageQueue
from steelyard.web import metrics
from steelyard.web.health import missing
from steelyard.web.metrics import Metric
from steelyard.web.reading import BrokerReading, ClusterReading
from steelyard.web.series import Sample, samples
from steelyard.wire.figures import (
    BrokerFigures,
    GroupFigures,
    KafkaFigures,
    KafkaGroupFigures,
    OffsetRow,
    PartitionRow,
    QueuePartition,
    QueueRow,
)

NOW = 1_700_000_000_000


def figures(
    name: str, queues: Iterable[QueueRow], groups: Iterable[GroupFigures] = ()
) -> BrokerFigures:
    return BrokerFigures(
        name=name,
        cluster="c",
        address=f"{name}:10911",
        now=NOW,
        started_at=NOW - 60_000,
        messages_in=1,
        bytes_in=2,
        messages_out=3,
        requests={},
        refused={},
        parked={},
        skipped=0,
        damaged=0,
        disk_free=0,
        disk_size=0,
        queues=tuple(queues),
        groups=tuple(groups),
        left_out=0,
        process=None,
    )


def kafka(name: str, *groups: KafkaGroupFigures, ready: bool = True) -> KafkaFigures:
    partitions = (QueuePartition("T", 0, 4),)
    return KafkaFigures(
        name=name,
        ready=ready,
        requests={},
        refused={},
        parked={},
        partitions=partitions,
        groups=groups,
        left_out=0,
    )


def broker(
    name: str, mine: BrokerFigures | None, theirs: KafkaFigures | None = None, error: str = ""
) -> BrokerReading:
    return BrokerReading(name, f"{name}:10911", True, 0.1, error, mine, theirs)


def found(
    reading: ClusterReading, metric: Metric, config: HttpConfig | None = None
) -> dict[tuple[str, ...], object]:
    made: list[Sample] = [*samples(reading, config or HttpConfig())]
    of_metric = [one for one in made if one.metric is metric]
    assert len({one.labels for one in of_metric}) == len(of_metric), "a series twice"
    return {one.labels: one.value for one in of_metric}


def test_lags_of_both_dialects() -> None:
    group = GroupFigures(
        "g", 2, (OffsetRow("T", 0, 10, 5, NOW - 2_500), OffsetRow("T", 1, 7, 0, 0))
    )
    a = figures("a", [QueueRow("T", 0, 4, 15, 100), QueueRow("T", 1, 5, 8, 100)], [group])
    b = figures("b", [QueueRow("T", 0, 20, 30, 100)])
    rows = (
        PartitionRow("T", 0, "a", 0, 12),
        PartitionRow("T", 1, "b", 0, 3),  # deleted up to 20 by retention
        PartitionRow("T", 2, "b", 1, 9),  # nothing is known of its queue
        PartitionRow("T", 3, "a", 1, -1),  # a member holds it and has not committed
    )
    theirs = kafka("b", KafkaGroupFigures("k", "classic", "Stable", 3, rows))
    waiting = {
        (MessageQueue("T", "a", 0), 12): NOW - 700,
        (MessageQueue("T", "b", 0), 3): NOW - 9_000,
        (MessageQueue("T", "a", 1), 0): NOW - 4_000,
    }
    reading = ClusterReading({"n": ""}, (broker("a", a), broker("b", b, theirs)), waiting)
    assert found(reading, metrics.LAG) == {("a", "g", "T", "0"): 5, ("a", "g", "T", "1"): 0}
    assert found(reading, metrics.LAG_SECONDS) == {
        ("a", "g", "T", "0"): 2.5,
        ("a", "g", "T", "1"): 0,
    }
    assert found(reading, metrics.KAFKA_LAG) == {
        ("k", "T", "0"): 3,
        ("k", "T", "1"): 10,
        ("k", "T", "3"): 3,
    }
    assert found(reading, metrics.KAFKA_LAG_SECONDS) == {
        ("k", "T", "0"): 0.7,
        ("k", "T", "1"): 9,
        ("k", "T", "3"): 4,
    }
    assert found(reading, metrics.KAFKA_OFFSET)["k", "T", "3"] == 0
    assert found(reading, metrics.KAFKA_OFFSET)["k", "T", "2"] == 9
    assert found(reading, metrics.END_OFFSET) == {
        ("a", "T", "0", ""): 15,
        ("a", "T", "1", ""): 8,
        ("b", "T", "0", "4"): 30,
    }


def test_a_broker_that_does_not_answer_has_one_series() -> None:
    reading = ClusterReading({"n": "refused"}, (broker("a", None, error="no answer"),), {}, 3)
    made = [*samples(reading, HttpConfig())]
    assert [one.metric for one in made if one.labels == ("a",)] == [
        metrics.BROKER_UP,
        metrics.ORPHANS,
    ]
    assert found(reading, metrics.BROKER_UP) == {("a",): 0}
    assert found(reading, metrics.NAMESERVER_UP) == {("n",): 0}
    assert found(reading, metrics.LEFT_OUT)["brokers",] == 3


def test_what_is_beyond_the_limits_is_counted() -> None:
    queues = [QueueRow(f"T{number}", 0, 0, 1, 1) for number in range(10)]
    offsets = tuple(OffsetRow(f"T{number}", 0, 0, 1, NOW) for number in range(10))
    reading = ClusterReading(
        {}, (broker("a", figures("a", queues, [GroupFigures("g", 1, offsets)])),), {}
    )
    limits = HttpConfig(queue_series_max=4, group_series_max=3)
    assert len(found(reading, metrics.END_OFFSET, limits)) == 4
    assert len(found(reading, metrics.LAG, limits)) == 2, "the group itself is one"
    left_out = found(reading, metrics.LEFT_OUT, limits)
    assert left_out == {("brokers",): 0, ("queues",): 6, ("groups",): 8, ("answers",): 0}


def test_what_is_missing() -> None:
    a, b = figures("a", []), figures("b", [])
    gone = broker("c", None, error="no answer")._replace(is_wanted=False)
    assert (
        missing(ClusterReading({"n": ""}, (broker("a", a), broker("b", b, kafka("b")), gone), {}))
        == []
    )
    reading = ClusterReading(
        {"n": "", "m": "refused"},
        (
            broker("a", a),
            broker("b", b, kafka("b", ready=False)),
            broker("d", None, error="late")._replace(orphans=("g1",)),
            broker("e", None, error="late")._replace(orphans=tuple("abcdefghijkl")),
        ),
        {},
    )
    assert missing(reading) == [
        "nameserver m: refused",
        "broker b: does not serve Kafka's clients yet",
        "broker d: late; 1 Kafka group without a coordinator: g1",
        "broker e: late; 12 Kafka groups without a coordinator: a, b, c, d, e, f, g, h, i, j and 2 more",
    ]
    assert found(reading, metrics.ORPHANS) == {("a",): 0, ("b",): 0, ("d",): 1, ("e",): 12}
    assert missing(ClusterReading({"n": ""}, (), {})) == ["no nameserver lists a broker"]
