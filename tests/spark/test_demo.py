"""The demo's own job: delays per carrier, from messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from demo.delays import carrier_delays, flights_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
]  # on a busy machine; an interrupted call is the end of the session


@pytest.mark.spark_long
def test_delays_per_carrier(spark: SparkSession) -> None:
    flights: list[dict[str, object]] = [
        *({"carrier": "UA", "dep_delay": float(n), "arr_delay": n - 10} for n in range(101)),
        {"carrier": "UA", "dep_delay": float("nan"), "arr_delay": float("nan")},
        {"carrier": "AA", "dep_delay": 5, "arr_delay": None, "tailnum": "N1"},
        {"carrier": "AA", "dep_delay": 7},
    ]
    bodies = [json.dumps(flight).encode() for flight in flights]
    messages = [(body, {"flight_row": str(number)}) for number, body in enumerate(bodies)]
    messages += [messages[3], messages[3], (b"no JSON", {"flight_row": "3"})]  # sent again
    frame = spark.createDataFrame(messages, "body binary, properties map<string, string>")
    rows = carrier_delays(flights_of(frame)).collect()
    assert [row.asDict() for row in rows] == [
        {
            "carrier": "AA",
            "flights": 2,
            "dep_delay_mean": 6.0,
            "dep_delay_p50": 6.0,
            "dep_delay_p95": 6.9,
            "arr_delay_mean": None,
            "arr_delay_p50": None,
            "arr_delay_p95": None,
        },
        {
            "carrier": "UA",
            "flights": 102,
            "dep_delay_mean": 50.0,
            "dep_delay_p50": 50.0,
            "dep_delay_p95": 95.0,
            "arr_delay_mean": 40.0,
            "arr_delay_p50": 40.0,
            "arr_delay_p95": 85.0,
        },
    ]
