"""Delay per carrier, computed by Spark from the messages of the topic of flights: as a table, and as a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steelyard.spark.pipeline import read_topic
from steelyard.spark.report import COLOURS, Section, new_figure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT = "carrier string, dep_delay double, arr_delay double"


def carrier_delays(spark: SparkSession, nameservers: str, topic: str) -> DataFrame:
    """Delay per carrier over the flights of a topic, in minutes, sorted by carrier.

    A message's body is a flight as JSON, with `carrier`, `dep_delay` and `arr_delay`; a flight that
    was cancelled has no delays and counts in `flights` only. Columns: carrier, flights, then mean,
    p50 and p95 of both delays.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    flights = read_topic(spark, nameservers, topic).select(
        F.from_json(F.decode("body", "UTF-8"), FLIGHT).alias("flight")
    )
    known = flights.select(
        "flight.carrier",
        # JSON written by Python may hold NaN, which Spark would rank above all numbers.
        *(
            F.when(~F.isnan(f"flight.{name}"), F.col(f"flight.{name}")).alias(name)
            for name in ("dep_delay", "arr_delay")
        ),
    ).where("carrier is not null")
    measures = [F.count("*").alias("flights")]
    for name in ("dep_delay", "arr_delay"):
        measures.append(F.mean(name).alias(f"{name}_mean"))
        measures += [F.percentile(name, n / 100).alias(f"{name}_p{n}") for n in (50, 95)]
    return known.groupBy("carrier").agg(*measures).orderBy("carrier")


def delay_section(delays: Sequence[Mapping[str, object]]) -> Section:
    """For the report. `delays`: rows of `carrier_delays` as mappings."""
    figure = new_figure(340, barmode="group")
    carriers = [row["carrier"] for row in delays]
    for n, (column, name) in enumerate(
        (
            ("dep_delay_mean", "departure, mean"),
            ("arr_delay_mean", "arrival, mean"),
            ("dep_delay_p95", "departure, 95 % below"),
            ("arr_delay_p95", "arrival, 95 % below"),
        )
    ):
        figure.add_bar(
            x=carriers, y=[row[column] for row in delays], name=name, marker_color=COLOURS[n]
        )
    figure.update_yaxes(title_text="minutes")
    note = "Computed by Spark from the messages of the topic, in minutes."
    return Section("Delay per carrier", note, figure)
