"""What a rebalance costs: everybody's clients on Steelyard's and Apache's brokers.

`./dev bench rebalance` plays every event with every client on Steelyard and on Apache in turn, in one run on one machine, and
writes one table. `--clients`, `--events` and `--rounds` choose parts of it, `--list` names them; what was not played stays in the
table as the newest run has it that did (`kept`). `--tiny` is one event of seconds without Apache, for the tests. See `runs` for what
happens, `costs` for the measures, `commands` for what a member is, and `generations` for the second table, that of a group's first
generation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE.parent) not in sys.path:
    sys.path.insert(0, str(HERE.parent))

from bench.costs import share_ms  # noqa: E402
from bench.run import machine  # noqa: E402
from bench.runs import MEMBERS, Result, Run, Scenario, Size, Step, warm_up  # noqa: E402
from tests.peers import apache  # noqa: E402
from tests.peers.kafka import builds  # noqa: E402

from bench import clusters, generations, kafka_clusters, kept, members  # noqa: E402

EVENTS = {
    "scale-out 1→2→4": Scenario(("m0",), (Step("start", ("m1",)), Step("start", ("m2", "m3")))),
    "scale-in 4→2→1": Scenario(MEMBERS, (Step("stop", ("m2", "m3")), Step("stop", ("m1",)))),
    "rolling restart of 4": Scenario(
        MEMBERS, tuple(Step(what, (name,)) for name in MEMBERS for what in ("stop", "start"))
    ),
    "broker stops, returns": Scenario(
        MEMBERS, (Step("stop_broker", ("broker-b",)), Step("start_broker", ("broker-b",)))
    ),
    "coordinator stops, returns": Scenario(
        MEMBERS, (Step("stop_broker", ("broker-a",)), Step("start_broker", ("broker-a",)))
    ),
    "SIGKILL of 1 of 4": Scenario(MEMBERS, (Step("kill", ("m1",)),)),
}
"""What happens. Members that were killed are new processes the next time, so that comes last."""
KAFKA_ONLY = ("coordinator stops, returns",)
"""A group of Kafka's has its coordinator at broker-a; RocketMQ's brokers are alike."""

WHOLE = Size(
    rounds=5,
    queues=8,
    messages_per_s=5_000,
    batch=5,
    message_bytes=128,
    work_ms=1,
    before_s=4.0,
    quiet_s=3.0,
    deadline_s=120.0,
    warm_up_s=6.0,
    drawn_s=6.0,
)
KAFKA_WORK_MS = 0
"""Kafka's clients have one thread for all partitions: with work for each message, one member could not keep up."""
TINY = Size(
    rounds=1,
    queues=2,
    messages_per_s=400,
    batch=2,
    message_bytes=128,
    work_ms=1,
    before_s=0.2,
    quiet_s=0.5,
    deadline_s=30.0,
    warm_up_s=0.0,
)


# -- the grid --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """What to play."""

    clients: Sequence[str]
    """Parts of their kinds; all without any."""
    events: Sequence[str]
    with_apache: bool
    with_unclean: bool
    options: Sequence[str]
    """More options for Steelyard's brokers."""

    def has_client(self, kind: str) -> bool:
        """ "steelyard" alone does not mean the one that is not clean."""
        wanted = [part.lower() for part in self.clients]
        if kind == "steelyard, not clean":
            return self.with_unclean or kind in wanted
        return not wanted or any(part in kind.lower() for part in wanted)

    def events_of(self, client: members.Client) -> list[str]:
        """The events to play with a client."""
        return [
            name
            for name in EVENTS
            if any(part.lower() in name.lower() for part in self.events or [""])
            and (client.speaks_kafka or name not in KAFKA_ONLY)
        ]


class Clusters:
    """Those that run: Steelyard's, and the Apache that the client of the moment speaks to."""

    def __init__(self, folder: Path, choice: Choice) -> None:
        self._folder = folder
        self._choice = choice
        self._stack = ExitStack()
        self._running: dict[str, clusters.Cluster] = {}
        self._count = 0

    def of(self, client: members.Client) -> list[clusters.Cluster]:
        """What a client is measured on; started when it is first asked for. Raises Missing."""
        wanted = ["steelyard"]
        if self._choice.with_apache:
            wanted.append("kafka" if client.speaks_kafka else "rocketmq")
        return [self._started(name) for name in wanted]

    def _started(self, name: str) -> clusters.Cluster:
        if name not in self._running:
            self._count += 1
            folder = self._folder / f"{name}-{self._count}"
            cluster: clusters.Cluster
            match name:
                case "steelyard":
                    cluster = clusters.Steelyard(folder, self._choice.options)
                case "kafka":
                    cluster = kafka_clusters.Apache(folder)
                case _:
                    cluster = clusters.Apache(folder)
            self._stack.callback(cluster.close)
            self._running[name] = cluster
        return self._running[name]

    def close(self) -> None:
        """All end; `of` starts them anew."""
        self._stack.close()
        self._running.clear()


@contextmanager
def pool_of(client: members.Client) -> Iterator[members.Pool]:
    pool = members.Pool(client)
    try:
        yield pool
    finally:
        pool.close()


def play_all(size: Size, choice: Choice, results: Path) -> Result:
    """Every client in turn, round by round; prints a line for each cell, and keeps what there is so far in `results`."""
    result: Result = {
        "machine": machine(),
        "size": asdict(size),
        "apache": {"RocketMQ": apache.NEW_SERVER, "Kafka": builds.SERVER},
        "options": list(choice.options),
        "load": [],
        "rows": [],
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-bench-")))
        running = Clusters(folder, choice)
        stack.callback(running.close)
        for place, client in enumerate(members.clients(folder)):
            if choice.has_client(client.kind) and choice.events_of(client):
                for row in play_client(size, choice, client, running, folder / str(place)):
                    result["rows"].append(row)
                    loads = [*result["load"], os.getloadavg()[0]]
                    result["load"] = [round(min(loads), 1), round(max(loads), 1)]
                    results.write_text(json.dumps(result, indent=1) + "\n")
                    print(line([row]), flush=True)
    return result


def play_client(
    size: Size, choice: Choice, client: members.Client, running: Clusters, folder: Path
) -> Iterator[Result]:
    """All events and rounds of one client; the order of the clusters changes from round to round."""
    folder.mkdir()
    if client.speaks_kafka:
        size = replace(size, work_ms=KAFKA_WORK_MS)
    kinds = ["steelyard", "apache"] if choice.with_apache else ["steelyard"]
    for number in range(size.rounds):
        order = kinds if number % 2 == 0 else kinds[::-1]
        with pool_of(client) as pool:
            warm: set[str] = set()
            for name in choice.events_of(client):
                for kind in order:
                    row = {"event": name, "client": client.kind, "brokers": kind, "round": number}
                    key = f"{folder.name}-{number}-{list(EVENTS).index(name)}-{kind}"
                    try:
                        own = {cluster.kind: cluster for cluster in running.of(client)}
                        for other in order:
                            if size.warm_up_s and other not in warm:
                                warm_up(own[other], pool, size, folder / f"{key}-before-{other}")
                            warm.add(other)
                        played = Run(own[kind], pool, size, folder / key, key).play(
                            EVENTS[name], f"{client.kind} {name} {number}"
                        )
                    except (AssertionError, OSError, RuntimeError) as error:  # hours go on
                        print(f"{row} failed: {error}", file=sys.stderr, flush=True)
                        played = {"failed": str(error)}
                        # Members and brokers may be in any state.
                        pool.renew()
                        running.close()
                        warm.clear()
                    yield {**row, **played}


# -- the table -------------------------------------------------------------------------------------

COLUMNS = (
    "client",
    "event",
    "brokers",
    "moved",
    "pause p50 ms",
    "p99",
    "max",
    "others p99 ms",
    "max",
    "duplicates",
    "lost",
    "shared in s",
    "run",
)


def line(rows: Sequence[Result]) -> str:
    """The rounds of one cell as a row of the table."""
    played = kept.played(rows)
    failed = len(rows) - len(played)
    stages = [stage for row in played for stage in row["stages"]]
    moved = kept.pauses_ns(rows)
    stayed = [pause for stage in stages for pause in stage.get("stayed_ns", [])]
    has_stayed = all("stayed_ns" in stage for stage in stages)
    unsettled = sum(not stage["settled"] for stage in stages)
    cells = [
        rows[0]["client"],
        rows[0]["event"],
        rows[0]["brokers"],
        f"{len(moved):,}",
        *(f"{share_ms(moved, share):,.0f}" for share in (0.5, 0.99, 1)),
        *(f"{share_ms(stayed, share):,.0f}" if has_stayed else "–" for share in (0.99, 1)),
        f"{sum(row['duplicates'] for row in played):,}",
        f"{sum(row['lost'] for row in played):,}",
        f"{max((stage['shared_s'] for stage in stages), default=0):,.2f}"
        + (f" ({unsettled} never)" if unsettled else "")
        + (f" ({failed} failed)" if failed else ""),
        *([rows[0]["run"]] if "run" in rows[0] else []),
    ]
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Result]) -> str:
    """Steelyard and Apache below each other; rows as `kept.newest` gives them."""
    by_cell: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for row in sorted(rows, key=_place):
        by_cell[row["client"], row["event"], row["brokers"]].append(row)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|---|---|" + "--:|" * (len(COLUMNS) - 4) + "---|"]
    return "\n".join([*lines, *map(line, by_cell.values())]) + "\n"


def _place(row: Result) -> tuple[int, int, bool]:
    kinds = [client.kind for client in members.clients(HERE)]
    return kinds.index(row["client"]), list(EVENTS).index(row["event"]), row["brokers"] == "apache"


REPORT = """# What a rebalance costs

Written by `./dev bench rebalance`. Two brokers; Steelyard, and Apache: RocketMQ for RocketMQ's clients, Kafka for Kafka's. Clients are
unmodified, with their default settings. Each client and event is of the newest run that played it on both; the runs are below.

{table}
{runs}

- **moved**: queues that went from one member to another, over all steps of the event and all rounds. **pause**: the longest time
  in which messages of such a queue waited and no listener got one (`steelyard.ledger.cost` says when a message waits), from the step on. Where old
  and new owner read at the same time there is no pause, but there are duplicates. **others**: the same of the queues that did not move.
- **duplicates**: deliveries less distinct messages, as listeners saw them; **lost**: messages that a broker acknowledged and no
  listener got. Both over the whole scenario and all rounds.
- **shared in**: the time until everybody held its share, at the slowest step: from the step until the last queue that moved came to
  a listener of its new owner, and every other one that had stood still for 200 ms or more was read again. Steps: the call of start
  or close, SIGKILL, SIGTERM to a broker; for a broker that returns, the first send that it acknowledged.
  "failed": so many rounds could not be played, and are in no figure. "never": it took longer than {deadline_s:.0f} s until all queues were read evenly, each by one member, for {quiet_s:.0f} s.

What no broker can shorten
- **Orderly, SIGKILL**: a killed member's queues stand still until its locks expire, 60 s after it renewed them last, which it did every
  20 s; so for 40 to 60 s, by chance. A closed connection does not prove that a client is dead, and RocketMQ's clients work on their queues until
  30 s after they renewed the locks. Java 4.9.8 looks every 20 s whether they have expired; Steelyard notifies it then.
- **Kafka's clients, SIGKILL**: a killed member is missed when its session is over, 45 s after its last request.
- **Kafka's clients, a member that leaves** a group of the classic protocol: the others learn of it from the answer to a heartbeat, and wait for the
  last of them that does. Apache answers heartbeats at once, so that each is out of reach until its next one, 0 to 3 s later. On Steelyard
  they wait, but each automatic commit, every 5 s, ends the wait: with franz-go members are out of reach for 3 s then, with Java (range,
  cooperative-sticky) for less than that after most of them ([REBALANCING.md](../docs/REBALANCING.md)). So the longest pause is up to 3 s on both,
  by chance.

{first}
What was done
- Members are processes, each with one client, that do the same in every language (`bench/commands.py`). They had consumed for
  {warm_up_s:.0f} s on each cluster at the beginning of each round, and after a round that failed; one that starts in a scenario was loaded and waited. RocketMQ's listeners
  sleep {work_ms} ms a message; Kafka's clients have one thread that polls and writes down what it got, and commit automatically.
- A feeder sends batches of {batch} in turn to all queues, at a steady rate, with the protocol of the client. A step follows {quiet_s:.0f} s after
  the share of everybody was even and each queue was read by one member alone. From run 2026-11-25-5 on it comes up to 6 s later than
  that, drawn for each step and round and the same for both clusters, because clients have timers, such as the 5 s between automatic commits.
- For each client its two clusters were there at once, on the same cores, and took turns: event by event, in another order each
  round. What is in one row happened while the other clusters and the other members were idle. A cluster that had been started
  stayed until the end, or until a round failed.
- Kafka's groups have their coordinator at the first broker. Topics have one replica, as on Steelyard; Apache keeps the offsets of
  groups on both brokers.
"""


def told(name: str, run: Result) -> str:
    """Under which conditions a run was."""
    size, place = run["size"], run["machine"]
    words = [
        f"{size['rounds']} round(s), {2 * size['queues']} queues, {size['messages_per_s']:,}"
        f" messages/s of {size['message_bytes']} B",
        ", ".join(f"Apache {server} {version}" for server, version in run["apache"].items()),
        f"{place['processor']}, {place['memory']}, {place['system']}, Python {place['python']}, {place['java']}",
    ]
    if run.get("load"):
        words.append("load average {:.0f} to {:.0f}".format(*run["load"]))
    if run.get("options"):
        words.append(f"Steelyard's brokers with `{' '.join(run['options'])}`")
    return f"- Run **{name}**: {'; '.join(words)}." + (f" {run['note']}" if "note" in run else "")


def report(runs: Mapping[str, Result]) -> str:
    """The whole page from what all runs kept."""
    rows = kept.newest(runs)
    names = {row["run"] for row in rows}
    firsts = [run["first"] for run in runs.values() if run.get("first")]
    (*_, last) = runs.values()
    return REPORT.format(
        **last["size"],
        table=table(rows),
        runs="\n".join(told(name, run) for name, run in runs.items() if name in names),
        first=generations.report(firsts[-1]) if firsts else "",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench rebalance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--tiny", action="store_true", help="seconds, Steelyard alone")
    parser.add_argument("--list", action="store_true", help="name clients and events, and end")
    parser.add_argument(
        "--clients", nargs="+", default=[], help="parts of their names; all without"
    )
    parser.add_argument("--events", nargs="+", default=[], help="parts of their names; all without")
    parser.add_argument("--rounds", type=int, help="play everything so often")
    parser.add_argument("--messages", type=int, help="per second, to all queues together")
    parser.add_argument(
        "--unclean", action="store_true", help="Steelyard's client without clean hand-over, too"
    )
    parser.add_argument(
        "--broker-option",
        action="append",
        default=[],
        help="one more word on the command line of Steelyard's brokers, as --broker-option=--set",
    )
    parser.add_argument(
        "--first",
        choices=("with", "without", "only"),
        default="with",
        help="the table of the first generation",
    )
    parser.add_argument(
        "--members",
        nargs="+",
        type=int,
        default=generations.COUNTS,
        help="how many, in the table of the first generation",
    )
    parser.add_argument(
        "--out", type=Path, default=HERE, help="folder for REBALANCE.md and results/"
    )
    options = parser.parse_args()
    if options.list:
        print("\n".join([*(client.kind for client in members.clients(HERE)), "", *EVENTS]))
        return
    size = TINY if options.tiny else WHOLE
    size = replace(
        size,
        rounds=options.rounds or size.rounds,
        messages_per_s=options.messages or size.messages_per_s,
    )
    choice = Choice(
        options.clients or (["steelyard"] if options.tiny else []),
        options.events or (["scale-out"] if options.tiny else []),
        with_apache=not options.tiny,
        with_unclean=options.unclean,
        options=options.broker_option,
    )
    folder: Path = options.out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    results = kept.new_file(folder, machine()["date"])
    try:
        if options.first == "only":
            print(
                generations.table(
                    generations.play_all(size.rounds, choice.clients, options.members)
                )
            )
            return
        result = play_all(size, choice, results)
        if options.first == "with" and not options.tiny:
            result["first"] = generations.play_all(size.rounds, choice.clients, options.members)
            results.write_text(json.dumps(result, indent=1) + "\n")
    except apache.Missing as reason:
        raise SystemExit(f"nothing to compare with: {reason}") from None
    print(table(result["rows"]))
    (options.out / "REBALANCE.md").write_text(report(kept.runs(folder)))


if __name__ == "__main__":
    main()
