from __future__ import annotations

import pytest

from steelyard.wording import counted, nearest


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 queues"), (1, "1 queue"), (2, "2 queues"), (1024, "1,024 queues")]
)
def test_a_number_of_things(count: int, text: str) -> None:
    assert counted(count, "queue") == text


COLUMNS = ("topic", "body", "keys", "tags", "queueId", "brokerName")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topik", "topic"),
        ("bdoy", "body"),
        ("bodie", "body"),
        ("key", "keys"),
        ("TAG", "tags"),
        ("queueid", "queueId"),
        ("borkerName", "brokerName"),
    ],
)
def test_a_slip_is_told_the_name_that_was_meant(name: str, meant: str) -> None:
    assert nearest(name, COLUMNS) == [meant]


@pytest.mark.parametrize("name", ["price", "amount", "", "id", "x", "customer"])
def test_another_word_is_no_slip(name: str) -> None:
    assert nearest(name, COLUMNS) == []


def test_the_nearest_is_the_first_of_several() -> None:
    assert nearest("broker", ("brokers", "broker-a", "borker", "nameserver"), 3) == [
        "brokers",
        "broker-a",
        "borker",
    ]
