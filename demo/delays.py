"""Delay per carrier, computed by Spark from the messages about flights: as a table and a chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from steelyard.spark.charts import COLOURS, new_figure
from steelyard.spark.report import Section

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHT = "carrier string, dep_delay double, arr_delay double"


def flights_of(messages: DataFrame) -> DataFrame:
    """The flight of each message: its row in the file, carrier, and delays in minutes.

    A message's body is a flight as JSON, with `carrier`, `dep_delay` and `arr_delay`; its property
    `flight_row` is the row. A flight that was cancelled has no delays.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    flights = messages.select(
        F.col("properties")["flight_row"].cast("bigint").alias("flight_row"),
        F.from_json(F.decode("body", "UTF-8"), FLIGHT).alias("flight"),
    )
    return flights.select(
        "flight_row",
        "flight.carrier",
        # JSON written by Python may hold NaN, which Spark would rank above all numbers.
        *(
            F.when(~F.isnan(f"flight.{name}"), F.col(f"flight.{name}")).alias(name)
            for name in ("dep_delay", "arr_delay")
        ),
    ).where("carrier is not null")


def carrier_delays(flights: DataFrame) -> DataFrame:
    """Delay per carrier over rows of `flights_of`, in minutes, sorted by carrier.

    A flight that was published again counts once; one without delays in `flights` only. Columns:
    carrier, flights, then mean, p50 and p95 of both delays.
    """
    from pyspark.sql import functions as F  # noqa: N812

    measures = [F.count("*").alias("flights")]
    for name in ("dep_delay", "arr_delay"):
        measures.append(F.mean(name).alias(f"{name}_mean"))
        measures += [F.percentile(name, n / 100).alias(f"{name}_p{n}") for n in (50, 95)]
    once = flights.dropDuplicates(["flight_row"])
    return once.groupBy("carrier").agg(*measures).orderBy("carrier")


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
