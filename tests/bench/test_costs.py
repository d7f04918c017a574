"""From records to pauses, duplicates and moves."""

from __future__ import annotations

from pathlib import Path

from bench.costs import MS, RECORD, Delivery, Move, Sent, Tail

from bench import costs


def delivered(*rows: tuple[int, str, int]) -> list[Delivery]:
    return [Delivery(at * MS, member, offset) for at, member, offset in rows]


def sent_at(queue: int, *times: int) -> Sent:
    """Offset 0, 1, … sent at these times."""
    sent = Sent(1)
    for offset, at in enumerate(times):
        sent.add(at * MS, queue, offset)
    return sent


def test_the_numbers_of_queues() -> None:
    assert costs.queue_number("broker-a", 3) == 3
    assert costs.queue_number("broker-b", 3) == 1003


def test_a_pause_ends_with_the_first_delivery_and_counts_only_while_messages_waited() -> None:
    sent = sent_at(7, 10, 20, 30)
    waited = {7: delivered((10, "a", 0), (50, "b", 1), (51, "b", 2))}
    assert costs.moves(waited, sent, 15 * MS, 99 * MS) == [Move(7, "a", "b", 30 * MS, 35 * MS)]
    idle = {7: delivered((10, "a", 0), (21, "b", 1))}
    assert costs.moves(idle, sent, 15 * MS, 99 * MS) == [Move(7, "a", "b", 1 * MS, 6 * MS)]


def test_a_duplicate_at_the_new_owner_had_waited_since_the_old_one() -> None:
    sent = sent_at(7, 10)
    twice = {7: delivered((11, "a", 0), (31, "b", 0))}
    assert costs.moves(twice, sent, 20 * MS, 99 * MS) == [Move(7, "a", "b", 20 * MS, 11 * MS)]
    assert costs.repeated(twice.values()) == 1
    assert costs.repeated_within(twice[7], 20 * MS, 99 * MS) == 1
    assert costs.repeated_within(twice[7], 0, 20 * MS) == 0


def test_where_both_read_at_once_there_is_no_pause() -> None:
    both = {7: delivered((10, "a", 0), (19, "a", 1), (20, "b", 1), (25, "a", 2), (26, "b", 2))}
    (move,) = costs.moves(both, sent_at(7, 1, 2, 3), 15 * MS, 99 * MS)
    assert move == Move(7, "a", "b", 1 * MS, 5 * MS)
    assert costs.repeated(both.values()) == 2


def test_an_owner_in_between_is_no_move_of_its_own() -> None:
    rows = {7: delivered((10, "a", 0), (20, "c", 1), (40, "b", 2), (60, "b", 3))}
    sent = sent_at(7, 1, 2, 3, 4)
    assert costs.moves(rows, sent, 15 * MS, 99 * MS) == [Move(7, "a", "b", 20 * MS, 25 * MS)]
    assert costs.moves(rows, sent, 50 * MS, 99 * MS) == []
    assert costs.moves(rows, sent, 15 * MS, 30 * MS) == [Move(7, "a", "c", 10 * MS, 5 * MS)]


def test_what_was_sent_is_known_by_batches() -> None:
    sent = Sent(5)
    sent.add(100, 7, 0)
    sent.add(200, 7, 10)
    assert [sent.at(7, offset) for offset in (0, 4, 5, 9, 10, 14, 15)] == [
        *(100, 100, 0, 0, 200, 200, 0)
    ]
    assert sent.at(8, 0) == 0
    assert sent.offsets() == {(7, offset) for offset in (0, 1, 2, 3, 4, 10, 11, 12, 13, 14)}


def test_a_tail_reads_whole_records_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "records"
    tail = Tail(path)
    first, second = RECORD.pack(1, 2, 3), RECORD.pack(4, 5, 6)
    with path.open("ab", buffering=0) as file:
        file.write(first + second[:7])
        assert tail.read() == [(1, 2, 3)]
        file.write(second[7:])
        assert tail.read() == [(4, 5, 6)]
        assert tail.read() == []
    tail.close()


def test_percentiles_in_ms() -> None:
    assert costs.share_ms([3 * MS, 1 * MS, 2 * MS], 0.5) == 2.0
    assert costs.share_ms([], 0.99) == 0


def test_a_queue_stands_still_where_its_messages_wait_longer_than_before() -> None:
    """They wait for 220 ms before the event at 3 000; afterwards for 300 ms, long after that for 900 ms."""
    rows = {7: delivered((220, "a", 0), (3_300, "a", 1), (9_900, "a", 2), (11_500, "b", 3))}
    sent = sent_at(7, 0, 3_000, 9_000, 11_490)

    def stood(begin: int, by: int = 0) -> dict[int, int]:
        found = costs.stalls(rows, sent, begin * MS, (begin + 2_000) * MS, 5_000 * MS, by * MS)
        return {queue: wait // MS for queue, wait in found.items()}

    first = {7: [costs.Delivery(0, "a", 9), *rows[7]]}
    assert stood(3_000) == {7: 300}
    assert stood(5_000) == {}  # what waits there began long before or long after it
    assert stood(3_000, 150) == {}
    assert stood(8_500, -50) == {7: 900}
    assert costs.stalls(first, sent, 3_000 * MS, 5_000 * MS, 5_000 * MS, 81 * MS) == {}
    assert costs.stalls(first, sent, 3_000 * MS, 5_000 * MS, 5_000 * MS, 79 * MS) == {7: 300 * MS}


def test_a_queue_that_another_member_has_for_a_moment_has_not_moved() -> None:
    rows = delivered((10, "a", 0), (500, "b", 1), (900, "a", 2), (950, "a", 3))
    sent = sent_at(7, 0, 100, 890, 940, 2_000)

    def stood(*more: Delivery) -> dict[int, int]:
        return costs.stalls({7: [*rows, *more]}, sent, 0, 1_000 * MS, 0)

    assert stood() == stood(*delivered((2_000, "b", 4))) == {7: 400 * MS}
    assert stood(*delivered((1_000, "b", 4))) == {}


def waits(rows: dict[int, list[Delivery]], sent: Sent, until: int) -> dict[int, tuple[int, int]]:
    found = costs.longest_waits(rows, sent, 15 * MS, 99 * MS, until * MS)
    return {queue: (wait.begin // MS, wait.end // MS) for queue, wait in found.items()}


def test_the_longest_wait_is_that_between_any_two_deliveries_of_the_stage() -> None:
    """It waits from 20 to 50 for c, then from 51 to 61 for b; what ends after the stage does not count."""
    rows = {7: delivered((10, "a", 0), (50, "c", 1), (51, "c", 2), (61, "b", 3), (150, "b", 4))}
    sent = sent_at(7, 1, 20, 30, 40, 62)
    assert waits(rows, sent, 99) == {7: (20, 50)}
    assert waits({7: rows[7][1:]}, sent, 99) == {7: (51, 61)}
    assert waits({7: rows[7][1:]}, sent, 51) == {7: (50, 51)}
    assert waits({7: rows[7][:1]}, sent, 99) == {}


def test_what_a_queue_waited_before_the_event_is_not_the_events() -> None:
    rows = {7: delivered((1, "a", 0), (40, "a", 1))}
    assert waits(rows, sent_at(7, 0, 2), 99) == {7: (15, 40)}


def test_everybody_has_its_share_when_queues_that_stood_still_are_read_again() -> None:
    """Queue 7 moves after 300 ms, queue 8 stands still for 500, queue 9 for 100 only."""
    rows = {
        7: delivered((0, "a", 0), (400, "b", 1)),
        8: delivered((0, "a", 0), (600, "a", 1)),
        9: delivered((0, "a", 0), (900, "a", 1)),
    }
    sent = Sent(1)
    for queue, at in ((7, 100), (8, 100), (9, 800)):
        sent.add(at * MS, queue, 1)
    moved = costs.moves(rows, sent, 100 * MS, 2_000 * MS)
    cost = costs.shared(rows, sent, moved, 100 * MS, 2_000 * MS)
    assert cost == costs.Shared({7: 300 * MS}, {8: 500 * MS, 9: 100 * MS}, 500 * MS)
    del rows[8]
    assert costs.shared(rows, sent, moved, 100 * MS, 2_000 * MS).after_ns == 300 * MS


def test_a_queue_is_held_once_nobody_else_reads_it() -> None:
    rows = {
        7: delivered((10, "a", 0), (20, "b", 1), (30, "a", 1), (40, "b", 2), (50, "b", 3)),
        8: delivered((15, "a", 0), (60, "a", 1)),
    }
    assert costs.held_since(rows, 5 * MS) == 35 * MS
    assert costs.held_since({8: rows[8]}, 5 * MS) == 10 * MS
