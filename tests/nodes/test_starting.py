"""The first contact with the servers, and servers that fail, in virtual time."""

from __future__ import annotations

from tests.effects import effects_of

from steelyard.errors import ConfigError, ConnectError
from steelyard.nodes.seam import Answer, Effect, SetTimer
from steelyard.nodes.starting import (
    COMPLAINT_MS,
    SILENCE_MS,
    START_TIMER,
    Begin,
    Starting,
    Troubles,
)
from steelyard.types import LogLine

NOW = 1_000
REFUSED = ConnectError("cannot connect to n:9876: refused")


def results(effects: list[Effect]) -> list[object]:
    return [effect.result for effect in effects if isinstance(effect, Answer)]


def warnings(effects: list[Effect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, LogLine)]


def timer(effects: list[Effect]) -> int:
    (at,) = (effect.at for effect in effects if isinstance(effect, SetTimer))
    return at


def test_the_first_news_is_enough_without_a_time() -> None:
    starting = Starting("nameserver n:9876")
    assert effects_of(starting.asked, 1, Begin(), NOW) == [SetTimer(START_TIMER, NOW + SILENCE_MS)]
    assert effects_of(starting.failed, REFUSED) == [Answer(1, None)]
    assert starting.open
    assert effects_of(starting.failed, REFUSED) == []
    assert (
        effects_of(
            starting.reached,
        )
        == []
    )
    assert not starting.open


def test_silence_is_told_within_a_second_and_every_half_minute() -> None:
    starting = Starting("nameserver n:9876")
    now = timer(effects_of(starting.asked, 1, Begin(), NOW))
    assert now - NOW < 1_000
    effects = effects_of(starting.due, now)
    assert results(effects) == [None]
    told = [now] if warnings(effects) else []
    for _ in range(3):
        now = timer(effects)
        effects = effects_of(starting.due, now)
        told += [now] if warnings(effects) else []
    assert told == [NOW + SILENCE_MS + turn * COMPLAINT_MS for turn in range(4)]
    assert warnings(effects) == ["no answer from nameserver n:9876 yet; trying again"]
    effects_of(
        starting.reached,
    )
    assert effects_of(starting.due, timer(effects)) == []


def test_a_time_is_waited_out() -> None:
    starting = Starting("nameserver n:9876")
    effects = effects_of(starting.asked, 1, Begin(2_000), NOW)
    assert effects_of(starting.failed, REFUSED) == []
    while not results(effects):
        now = timer(effects)
        effects = effects_of(starting.due, now)
    assert now == NOW + 2_000
    (error,) = results(effects)
    assert isinstance(error, ConnectError)
    assert str(error) == (
        "not connected to nameserver n:9876 within the time-out: cannot connect to n:9876: refused"
    )
    assert error.__cause__ is REFUSED


def test_a_late_server_ends_the_wait() -> None:
    starting = Starting("nameserver n:9876")
    effects_of(starting.asked, 1, Begin(2_000), NOW)
    effects_of(starting.failed, REFUSED)
    assert effects_of(
        starting.reached,
    ) == [Answer(1, None)]


def test_a_rejection_is_final() -> None:
    starting = Starting("nameserver n:9876")
    effects_of(starting.asked, 1, Begin(2_000), NOW)
    error = ConfigError("cannot filter")
    assert effects_of(starting.rejected, error) == [Answer(1, error)]
    assert not starting.open


def test_troubles_are_told_when_they_begin_every_half_minute_and_when_they_end() -> None:
    troubles = Troubles("broker")
    told: list[Effect] = []
    troubles.ill("b:1", "refused", NOW, told)
    assert told == [LogLine("WARNING", "refused")]
    troubles.ill("b:1", "refused", NOW + COMPLAINT_MS - 1, told)
    troubles.ill("b:1", "refused", NOW + COMPLAINT_MS, told)
    text = "refused; it failed 2 times since the last warning"
    assert told[1:] == [LogLine("WARNING", text)]
    assert effects_of(troubles.well, "b:1") == [LogLine("INFO", "broker b:1 answers again")]
    assert effects_of(troubles.well, "b:1") == []
