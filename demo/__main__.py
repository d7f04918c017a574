"""./dev demo: run the story while Spark streams it, compare the figures, show what it cost.

./dev demo [--flights N] [--rate PER_SECOND] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import kafka_group
from demo.cluster import BROKERS, Cluster
from demo.flights import COUNT, TOPIC
from demo.kafka_group import Joined, Notes
from demo.spark_jobs import Computed, Streams, outcome_of
from demo.story import GROUP, Consumed, Story
from steelyard import SteelyardError
from steelyard.spark.report import Totals

DRAIN_SECONDS_MAX = 120
"""How long the group may take after the last flight was published."""

LOOK_SECONDS = 1
"""Time between two looks at what the group has consumed."""

LEDGER_SECONDS = 1.5
"""Brokers gather what they note for a second."""

console = Console(highlight=False, width=max(Console().width, 120))


def columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn, ...]:
    return (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )


def publish_and_consume(story: Story, streams: Streams) -> Consumed:
    """Run the story with progress bars, then wait until both groups and Spark have everything."""
    with Progress(*columns(), console=console) as progress:
        publishing, consuming, streaming, reading = (
            progress.add_task(f"flights {done}", total=story.flights)
            for done in ("published", "consumed", "in Spark's table", "read with Kafka")
        )
        looked_at = 0.0
        for event in story.run():
            progress.update(publishing, completed=story.published)
            if time.monotonic() - looked_at > LOOK_SECONDS:
                progress.update(streaming, completed=min(streams.rows, story.flights))
                progress.update(consuming, completed=story.consumed().flights)
                progress.update(reading, completed=story.read_with_kafka())
                looked_at = time.monotonic()
            if event:
                progress.console.print(f"  {story.published:>7,}  {event}")
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while True:
            consumed, rows, read = story.consumed(), streams.rows, story.read_with_kafka()
            progress.update(consuming, completed=consumed.flights)
            progress.update(streaming, completed=min(rows, story.flights))
            progress.update(reading, completed=read)
            all_here = min(consumed.flights, rows, read) >= story.flights
            if all_here or time.monotonic() > deadline:
                return consumed
            time.sleep(0.5)


def figures(
    totals: Totals, computed: Computed, bounds: tuple[int, int], notes: Notes, joined: Joined
) -> Table:
    """What publisher, members, Spark and the bench counted and measured, each figure once."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    low, high = bounds
    for name, count, by in (
        ("flights published", totals.published, "acknowledged to the publisher"),
        ("  consumed by the group", totals.consumed, "noted by the members' listeners"),
        ("  read with Kafka", len(notes.flights), "noted by the Kafka group's members"),
        ("  in Spark's table", computed.flights, "streamed from the topic"),
        ("  lost", totals.lost, ""),
        ("messages sent again", totals.sent_again, "their acknowledgement was lost; in the topic"),
        (
            "messages reprocessed",
            totals.reprocessed,
            f"noted twice by listeners; by the ledger {low:,} to {high:,}",
        ),
        ("  with Kafka", notes.repeated, "noted twice by the Kafka group's members"),
    ):
        table.add_row(name, f"{count:,}", by)
    for row in joined.rows():
        table.add_row(*row)
    return table


def disagreement(
    totals: Totals, computed: Computed, bounds: tuple[int, int], notes: Notes, joined: Joined
) -> str:
    """Say which figures contradict each other, or nothing."""
    if computed.flights != totals.published or totals.lost:
        return "flights are missing"
    if len(notes.flights) != totals.published or notes.messages != computed.messages:
        return f"the Kafka group's members noted {len(notes.flights):,} flights"
    if computed.messages - computed.flights != totals.sent_again:
        return f"Spark has {computed.messages - computed.flights:,} messages that were sent again"
    low, high = bounds
    if not low <= totals.reprocessed <= high:
        return "what the listeners noted twice is not within the bounds of the ledger"
    if not joined.moved_alike:
        return "the Kafka group's members and the ledger do not say that the same partitions moved"
    return ""


def end_by_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, without what Spark's client logs of calls cut off."""

    def interrupted(*_: object) -> None:
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    parser.add_argument("--flights", type=int, default=COUNT, help=f"how many of the {COUNT:,}")
    parser.add_argument("--rate", type=int, default=3_200, help="flights published per second")
    parser.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="logs, data, tables, report"
    )
    options = parser.parse_args()
    if not 1 <= options.flights <= COUNT or options.rate < 1:
        parser.error(f"--flights must be 1 to {COUNT}, --rate at least 1")
    started = time.monotonic()
    shutil.rmtree(options.out, ignore_errors=True)

    with Cluster(options.out / "cluster") as cluster:
        for broker in BROKERS:
            cluster.start_broker(broker)
        cluster.create_topic(TOPIC, queues=8)
        console.print(
            f"A nameserver ({cluster.nameserver}) and two brokers are up, for RocketMQ and Kafka"
            f" clients;\ntopic {TOPIC}: 2 x 8 queues."
        )
        with console.status("Spark starts"):
            streams = Streams(cluster.nameserver, TOPIC, options.out)
        end_by_interrupt()  # Spark's own handler talks to the JVM in the middle of another call
        story = Story(cluster, options.flights, options.rate)
        consumed = publish_and_consume(story, streams)
        ended_at = time.time_ns()
        for member in ("member-3", *kafka_group.MEMBERS, kafka_group.NEWCOMER):
            cluster.stop(member)
        time.sleep(LEDGER_SECONDS)
        queues = cluster.queues_of(TOPIC)
        notes = story.notes_of_kafka()
        totals = Totals(
            published=story.published,
            consumed=consumed.flights,
            lost=story.published - consumed.flights,
            sent_again=consumed.sent_again,
            reprocessed=consumed.reprocessed,
        )
        with console.status("") as status:
            computed = streams.finish(status.update)
        streams.close()
    joined = kafka_group.joined(notes, queues, computed.costs, story.newcomer_at, ended_at)
    outcome = outcome_of(computed, GROUP, options.out, totals, [joined.section()])

    console.print(f"\n[bold]Who held which queue when[/bold]\n{outcome.chart}")
    console.print(f"\n[bold]Rebalances of {GROUP}[/bold]")
    console.print(outcome.rebalances)
    console.print("\n[bold]Delay per carrier, minutes, from the topic[/bold]")
    console.print(outcome.delays)
    console.print("\n[bold]Figures[/bold]")
    console.print(figures(totals, computed, outcome.reprocessed, notes, joined))
    console.print(f"\nReport: {outcome.report}   ({time.monotonic() - started:.0f} s)")
    wrong = disagreement(totals, computed, outcome.reprocessed, notes, joined)
    if wrong:
        console.print(f"[bold]The figures do not agree: {wrong}.[/bold]")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        end_by_interrupt()
        sys.exit(main())
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        sys.exit(130)
    except SteelyardError as error:
        sys.exit(f"demo: {error}")
