"""When a message is due, by its properties."""

from __future__ import annotations

import pytest

from steelyard.errors import MessageError
from steelyard.nodes.broker.timers.due import admit, due_of

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("properties", "due"),
    [
        ({}, None),
        ({"A": "1"}, None),
        ({"TIMER_DELAY_SEC": "2"}, NOW + 2_000),
        ({"TIMER_DELAY_MS": "2"}, NOW + 2),
        ({"TIMER_DELIVER_MS": str(NOW + 3)}, NOW + 3),
        ({"TIMER_DELAY_MS": "+7"}, NOW + 7),
        (
            {"TIMER_DELIVER_MS": str(NOW + 3), "TIMER_DELAY_MS": "2", "TIMER_DELAY_SEC": "1"},
            NOW + 1_000,
        ),
        ({"TIMER_DELIVER_MS": str(NOW + 3), "TIMER_DELAY_MS": "2"}, NOW + 2),
        ({"TIMER_DELAY_MS": "0"}, None),
        ({"TIMER_DELAY_MS": "-5"}, None),
        ({"TIMER_DELIVER_MS": str(NOW)}, None),
        ({"TIMER_DELAY_MS": "5", "TIMER_OUT_MS": "1"}, None),
        ({"TIMER_DELAY_SEC": str(DAY // 1000)}, NOW + DAY),
        ({"TIMER_DELAY_MS": "5", "TIMER_DEL_UNIQKEY": "T+k"}, NOW + 5),
    ],
)
def test_when(properties: dict[str, str], due: int | None) -> None:
    assert due_of(properties, NOW) == due
    admit(properties, NOW, DAY)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC must be a number, not 'soon'"),
        ({"TIMER_DELAY_MS": "1.5"}, "TIMER_DELAY_MS must be a number"),
        ({"TIMER_DELAY_MS": ""}, "TIMER_DELAY_MS must be a number"),
        ({"TIMER_DELIVER_MS": "9" * 19}, "TIMER_DELIVER_MS must be a number"),
        ({"TIMER_DELAY_MS": str(DAY + 1)}, f"should not be bigger than the max delay {DAY}ms"),
        ({"TIMER_DELIVER_MS": str(NOW + DAY + 1)}, f"it would wait {DAY + 1} ms"),
        ({"TIMER_DELAY_MS": "5", "A": "x" * 32_300}, "the properties of a timer message have"),
        ({"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "T+k"}, "was due before"),
    ],
)
def test_what_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(MessageError) as caught:
        admit(properties, NOW, DAY)
    assert text in str(caught.value)
