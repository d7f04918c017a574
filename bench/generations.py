"""How long a group's first generation takes: the members of a deployment, started within a second, until all hold their shares.

Part of `./dev bench rebalance`; `--first only` is this alone. What makes members of a new group wait for each other is the setting
`group.initial.rebalance.delay.ms`: 3000 in Apache's code, 0 in the configuration that it ships.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.costs import held_since
from bench.runs import Result, Run, Size
from tests.waiting import until

from bench import clusters, kafka_clusters, members

COUNTS = (1, 5, 20, 50)
SPREAD_NS = 1_000_000_000
"""Members of a deployment start evenly within this time."""
SIZE = Size(
    rounds=1,
    queues=32,
    messages_per_s=2_000,
    batch=1,
    message_bytes=128,
    work_ms=0,
    before_s=0.0,
    quiet_s=3.0,
    deadline_s=90.0,
    warm_up_s=0.0,
)
NO_DELAY = "apache, no delay"


def chosen(folder: Path, wanted: Sequence[str]) -> list[members.Client]:
    """librdkafka's members: fifty of them are processes that a small machine can have."""
    return [
        client
        for client in members.clients(folder)
        if isinstance(client, members.Kafka)
        and client.library == "librdkafka"
        and any(part.lower() in client.kind.lower() for part in wanted or [""])
    ]


def play_all(
    rounds: int, wanted: Sequence[str] = (), counts: Sequence[int] = COUNTS
) -> list[Result]:
    """A row for each client, number of members, cluster and round."""
    rows: list[Result] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-bench-")))
        clients = chosen(folder, wanted)
        if not clients:
            return []
        running: list[clusters.Cluster] = []
        for start in (
            lambda: clusters.Steelyard(folder / "steelyard"),
            lambda: kafka_clusters.Apache(folder / "apache"),
            lambda: kafka_clusters.Apache(
                folder / "quick", {"group.initial.rebalance.delay.ms": 0}, NO_DELAY
            ),
        ):
            running.append(start())
            stack.callback(running[-1].close)
        for client in clients:
            pool = members.Pool(client)
            stack.callback(pool.close)
            for number in range(rounds):
                for count in counts:
                    for cluster in running if number % 2 == 0 else running[::-1]:
                        name = f"First{clients.index(client)}-{number}-{count}-{running.index(cluster)}"
                        took = play(cluster, pool, count, folder / name)
                        row = {"client": client.kind, "brokers": cluster.kind, "members": count}
                        rows.append({**row, "round": number, **took})
                        print(rows[-1], flush=True)
            pool.close()
    return rows


def play(cluster: clusters.Cluster, pool: members.Pool, count: int, folder: Path) -> Result:
    """One deployment."""
    names = [f"f{place}" for place in range(count)]
    for name in names:
        pool[name]  # loaded and waiting
    run = Run(cluster, pool, SIZE, folder, folder.name)
    with run.feeding():
        until(lambda: _is_fed(run), f"messages in all queues of {run.topic}")
        begun = time.monotonic_ns()
        for place, name in enumerate(names):
            time.sleep(max(0, begun + SPREAD_NS * place // count - time.monotonic_ns()) / 1e9)
            run.start([name])
        settled = run.settle(begun)
        ended = time.monotonic_ns()
        for name in names:
            pool[name].say("stop")
        for name in names:
            pool[name].expect()
    run.watch.look()
    run.watch.close()
    held = held_since(
        {
            queue: sorted(one for one in of_queue if one.at < ended)
            for queue, of_queue in run.watch.deliveries.items()
        },
        begun,
    )
    return {"settled": settled, "held_s": held / 1e9}


def _is_fed(run: Run) -> bool:
    run.watch.look()
    return len({queue for queue, _ in run.watch.sent.offsets()}) == 2 * SIZE.queues


def table(rows: Sequence[Result]) -> str:
    """Members down, clusters across."""
    kinds = list(dict.fromkeys(row["brokers"] for row in sorted(rows, key=_place)))
    cells: dict[tuple[str, int, str], list[Result]] = defaultdict(list)
    for row in rows:
        cells[row["client"], row["members"], row["brokers"]].append(row)
    lines = [f"| client | members | {' | '.join(kinds)} |", "|---|--:|" + "--:|" * len(kinds)]
    for client, count in dict.fromkeys((client, count) for client, count, _ in cells):
        told = [_cell(cells[client, count, kind]) for kind in kinds]
        lines.append(f"| {client} | {count} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _place(row: Result) -> int:
    return ("steelyard", "apache", NO_DELAY).index(row["brokers"])


def _cell(rows: Sequence[Result]) -> str:
    """The median and the longest."""
    times = sorted(row["held_s"] for row in rows)
    never = sum(not row["settled"] for row in rows)
    text = f"{times[(len(times) - 1) // 2]:.2f} / {times[-1]:.2f}" if times else "-"
    return text + (f" ({never} never)" if never else "")


REPORT = """## The first generation of a group

Members of a new group start evenly within a second; time in seconds from the first one's start until each of {partitions} partitions
was read by its last owner alone (median / longest over the rounds). "no delay": with `group.initial.rebalance.delay.ms=0`,
as Apache's shipped configuration has it; its code's default is 3000.

{table}"""


def report(rows: Sequence[Result]) -> str:
    """A part of the page; nothing without rows."""
    return REPORT.format(partitions=2 * SIZE.queues, table=table(rows)) if rows else ""
