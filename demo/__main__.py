"""./dev demo: tell the story, check that nothing was lost, and let Spark say what each rebalance cost.

./dev demo [--flights N] [--rate PER_SECOND] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.cluster import Cluster
from demo.flights import COUNT, TOPIC
from demo.spark_jobs import Outcome, run_jobs
from demo.story import GROUP, Consumed, Story
from steelyard import SteelyardError
from steelyard.spark.report import Totals

DRAIN_SECONDS_MAX = 120
"""How long the group may take after the last flight was published."""

LEDGER_SECONDS = 1.5
"""Brokers gather what they note for a second."""

console = Console(highlight=False, width=max(Console().width, 120))


def columns() -> tuple[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn, ...]:
    return (
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )


def publish_and_consume(story: Story) -> Consumed:
    """Run the story with a progress bar, then wait until the group has everything."""
    with Progress(*columns(), console=console) as progress:
        publishing = progress.add_task("flights published", total=story.flights)
        for event in story.run():
            progress.update(publishing, completed=story.published)
            if event:
                progress.console.print(f"  {story.published:>7,}  {event}")
        consuming = progress.add_task("flights consumed", total=story.flights)
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while True:
            consumed = story.consumed()
            progress.update(consuming, completed=consumed.flights)
            if consumed.flights == story.flights or time.monotonic() > deadline:
                return consumed
            time.sleep(0.5)


def spark_jobs(nameserver: str, out: Path, totals: Totals) -> Outcome:
    """The Spark jobs, behind a spinner that names the step."""
    with console.status("Spark starts") as status:
        say: Callable[[str], None] = status.update
        return run_jobs(nameserver, GROUP, TOPIC, out, totals, say)


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
        for broker in ("broker-a", "broker-b"):
            cluster.start_broker(broker)
        cluster.create_topic(TOPIC, queues=8)
        console.print(
            f"A nameserver ({cluster.nameserver}) and two brokers are up; topic {TOPIC}: 2 x 8 queues."
        )
        story = Story(cluster, options.flights, options.rate)
        consumed = publish_and_consume(story)
        cluster.stop("member-3")
        time.sleep(LEDGER_SECONDS)
        totals = Totals(
            published=story.published,
            consumed=consumed.flights,
            lost=story.published - consumed.flights,
            sent_again=consumed.sent_again,
            reprocessed=consumed.reprocessed,
        )
        outcome = spark_jobs(cluster.nameserver, options.out, totals)

    console.print(f"\n[bold]Who held which queue when[/bold]\n{outcome.chart}")
    console.print(f"\n[bold]Rebalances of {GROUP}[/bold]")
    console.print(outcome.rebalances)
    console.print("\n[bold]Delay per carrier, minutes, from the topic[/bold]")
    console.print(outcome.delays)
    console.print(f"\n[bold]{totals.line()}[/bold]")
    low, high = outcome.reprocessed
    console.print(f"By the ledger, {low:,} to {high:,} messages were reprocessed in rebalances.")
    console.print(f"Report: {outcome.report}   ({time.monotonic() - started:.0f} s)")
    return 0 if totals.lost == 0 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SteelyardError as error:
        sys.exit(f"demo: {error}")
