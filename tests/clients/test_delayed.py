"""Records that real Kafka clients delay by a header: when they come, and beside what."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, Producer
from tests.clients.libraries import Library, Sent
from tests.peers.kafka.servers import Running

DELAY_MS = 1_500


def test_a_header_delays_a_record(library: Library, name: str) -> None:
    library.create_topic(name)
    begun = time.time() * 1000
    header = ("TIMER_DELAY_MS", b"%d" % DELAY_MS)
    for codec in library.codecs:
        library.send(name, [Sent(b"later", b"k", (header,)), Sent(b"now", b"k")], codec=codec)
    count = len(library.codecs)
    records = library.read(name, {0: 0}, 2 * count)
    came = time.time() * 1000
    assert [record.value for record in records] == [b"now"] * count + [b"later"] * count
    for record in records[count:]:
        (first, (out, due)) = record.headers
        assert (first, out) == (header, "TIMER_OUT_MS")
        assert begun + DELAY_MS - 1 <= int(due or b"") <= came


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_producer_is_told_that_it_is_stored(
    kafka: Running, library: Library, name: str, idempotent: bool
) -> None:
    library.create_topic(name)
    told: list[str] = []
    """The names of errors, "" for none."""

    def note(error: KafkaError | None, message: object) -> None:
        told.append("" if error is None else error.name())

    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": idempotent, "linger.ms": 0}
    )
    for number in range(20):
        headers: list[tuple[str, str | bytes | None]] | None
        headers = [("TIMER_DELAY_MS", b"300")] if number % 2 else None
        producer.produce(name, b"%d" % number, headers=headers, on_delivery=note)
        if number % 5 == 0:
            producer.flush()
    producer.flush()  # a batch with a wrong record is refused as a whole
    producer.produce(name, b"x", headers=[("TIMER_DELAY_MS", b"soon")], on_delivery=note)
    producer.flush()
    assert told == [""] * 20 + ["INVALID_RECORD"]
    values = [record.value for record in library.read(name, {0: 0}, 20)]
    assert set(values) == {b"%d" % number for number in range(20)}
