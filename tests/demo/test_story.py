"""The demo's story without Spark: everybody reads every flight, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path

from demo.cluster import BROKERS, Cluster
from demo.flights import TOPIC
from demo.kafka_group import MEMBERS, NEWCOMER
from demo.story import Story
from tests.waiting import until

FLIGHTS = 4_000


def test_both_groups_read_every_flight(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        for broker in BROKERS:
            cluster.start_broker(broker)
        cluster.create_topic(TOPIC, queues=2)
        story = Story(cluster, FLIGHTS, per_second=800)
        told = [text for text in story.run() if text]
        assert told == [event.text for event in story.events()]
        until(lambda: story.consumed().flights == FLIGHTS, "all flights consumed")
        until(lambda: story.read_with_kafka() == FLIGHTS, "all flights read with Kafka")
        queues = cluster.queues_of(TOPIC)
        for name in ("member-3", *MEMBERS, NEWCOMER):
            cluster.stop(name)
        notes = story.notes_of_kafka()
    assert notes.flights == set(range(FLIGHTS))
    assert notes.messages == story.consumed().messages
    assert sorted(queues.values()) == [(name, queue) for name in BROKERS for queue in range(2)]
    assert set(notes.deliveries) == set(queues)


def test_the_third_member_of_the_kafka_group_waits_until_the_others_have_read_the_backlog(
    tmp_path: Path,
) -> None:
    story = Story(Cluster(tmp_path), 1_000, 100, published=930)
    event = story.events()[-1]
    assert not event.is_due()
    notes = [f"{row} 7 {row} 1 2\n" for row in range(930)]
    story.kafka_notes("kafka-1").write_text("".join(notes[:500]))
    story.kafka_notes("kafka-2").write_text("".join(notes[400:900]))
    assert not event.is_due()
    story.kafka_notes("kafka-2").write_text("".join(notes[400:925]))
    assert event.is_due()
