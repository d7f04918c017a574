"""A smaller scenario that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from steelyard.sim.scenario import Scenario

LEAST = {
    "members": 1,
    "kafka_members": 0,
    "streams_threads": 0,
    "share_members": 0,
    "kafka_producers": 0,
    "kafka_transactional": 0,
    "brokers": 1,
}
"""Counts that are tried one lower, and how low each may be."""


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], runs_max: int = 80) -> Scenario:
    """Return a smaller scenario that still `fails`: fewer faults, messages, members, brokers."""
    runs = 0
    smaller = True
    while smaller and runs < runs_max:
        smaller = False
        for candidate in _smaller(scenario):
            runs += 1
            if fails(candidate):
                scenario, smaller = candidate, True
                break
            if runs >= runs_max:
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    faults = scenario.faults
    for index in range(len(faults)):
        yield replace(scenario, faults=faults[:index] + faults[index + 1 :])
    for messages in (scenario.messages // 4, scenario.messages * 3 // 4):
        if 0 < messages < scenario.messages:
            yield replace(scenario, messages=messages)
    for field, least in LEAST.items():
        count = getattr(scenario, field)
        if count > least:
            yield replace(scenario, **{field: count - 1})
    if scenario.queues > 1:
        yield replace(scenario, queues=scenario.queues // 2)
    plain = Scenario()
    for field in (
        "delayed_answers",
        "topics",
        "producers",
        "nameservers",
        "tags",
        "weather",
        "skew_ms_max",
    ):
        if getattr(scenario, field) != getattr(plain, field):
            yield replace(scenario, **{field: getattr(plain, field)})
    for field in (
        "thread_ms_max",
        "drift_ppm_max",
        "later_of_100",
        "slow_of_100",
        "batch_of_100",
        "oneway_of_100",
        "transactions_of_100",
        "timers_of_100",
        "kafka_static",
        "kafka_auto_commit",
        "table_keys",
        "kafka_byte_rate",
        "share_release_of_100",
        "share_slow_of_100",
        "share_renewals",
    ):
        if getattr(scenario, field):
            yield replace(scenario, **{field: 0})
    if scenario.kafka_protocol == "both":
        yield replace(scenario, kafka_protocol="consumer")
    if scenario.accounts:
        yield replace(scenario, accounts=False)
    if scenario.ordered:
        yield replace(scenario, ordered=False)
    for field in ("binary_headers_of_100", "consume_batch", "segment_bytes", "index_flush_rows"):
        if getattr(scenario, field) != getattr(plain, field):
            yield replace(scenario, **{field: getattr(plain, field)})
