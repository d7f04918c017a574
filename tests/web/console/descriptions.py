"""Requests that schemathesis makes from the API's description, right and wrong ones, and answers compared with it.

A failure prints the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from steelyard.web.console.openapi import document
from steelyard.web.console.operations import PREFIX, ApiOperation

SCHEMA = schemathesis.openapi.from_dict(document())


def keeps_to_the_description(
    address: str, one: ApiOperation, known: Mapping[str, Sequence[str]], examples: int
) -> None:
    """Make so many requests of an operation. `known`: values of parameters with which they find something."""
    wanted = SCHEMA[PREFIX + one.path][one.method]
    names = {} if one.name == "delete_topic" else known

    @settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        mode = data.draw(st.sampled_from(list(schemathesis.GenerationMode)))
        case = data.draw(wanted.as_strategy(generation_mode=mode))
        is_changed = False
        for place in (case.path_parameters, case.query):
            for name in place or {}:
                if name in names and data.draw(st.booleans()):
                    place[name] = data.draw(st.sampled_from(names[name]))
                    is_changed = True
        if isinstance(case.body, dict):
            spare(case.body)
        # What was replaced is no longer wrong on purpose, or surely right.
        excluded: list[Any] = (
            [negative_data_rejection, positive_data_acceptance] if is_changed else []
        )
        case.call_and_validate(base_url=f"http://{address}", excluded_checks=excluded, timeout=60)

    check()


def spare(body: dict[str, Any]) -> None:
    """Change what a request would do to the cluster, if it is right: few new topics, small ones, which nobody deletes."""
    if body.get("dry_run") is False:
        body["dry_run"] = True
    queues, name = body.get("queues"), body.get("name")
    if type(queues) is int and 2 < queues <= 1_000:
        body["queues"] = 2
    if isinstance(name, str) and re.fullmatch("[A-Za-z0-9._-]{1,249}", name):
        body["name"] = f"api-{len(name) % 4}"
