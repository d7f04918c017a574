"""A scenario is data: a cluster, a workload, faults in virtual time, and how long healing may take.

Read from TOML (`load`), drawn from a seed (`drawing.draw`), or written by hand in a test. Times in
a scenario are ms since its beginning; percentages are whole numbers of 100.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from steelyard.decoding import prepared
from steelyard.errors import ConfigError
from steelyard.sim.network import Weather

FaultKind = Literal[
    # SIGKILL, inside a write if count > 0 (the count-th from then); restarted after for_ms, with
    # again > 0 killed once more in the again-th write after that
    "kill_broker",
    "restart_broker",  # clean stop, restarted for_ms later
    "power_broker",  # the broker's machine loses power for for_ms; only with flush = "sync"
    "kill_nameserver",
    # SIGKILL; a new process (new client id, unless count = 1) after for_ms, 0: none. Here and below
    # members are those of either group
    "kill_member",
    "lose_member",  # its machine vanishes silently; for_ms as above
    "leave",  # clean stop of a member, which does not return
    "join",  # a new member, of the Kafka group where target = "kafka"
    # a member is stopped cleanly, or with again = 1 killed, and started again with the same client
    # id, count times in for_ms
    "flap",
    "grow_topics",  # an administrator gives every topic count more queues on each broker
    "stall",  # the target gets no CPU for for_ms
    "partition",  # count hosts (or the target's) are cut off from the others for for_ms
    # for for_ms, count hosts (or the target's) receive nothing from the others, but can send
    "deafen",
    "break_links",  # count connections break
    "drop_oneway",  # count % of the one-way requests vanish for for_ms
    "slow",  # up to count ms more delay for for_ms
    "disk_full",  # the broker's disk takes count bytes more, for for_ms
    "freeze",  # the application of a Kafka member does not poll for for_ms
    # all nameservers and brokers go down at once, killed or with count = 1 stopped cleanly, and are
    # restarted in any order by for_ms later; the nameservers' state is lost
    "restart_cluster",
    # count bits flip in the index files on the broker's disk, while it runs or is down
    "rot_index",
    # a bit flips in each of count messages in logs on the broker's disk, while it runs or is down;
    # for_ms later an operator stops the broker, repairs its data and starts it
    "rot_log",
    # the broker is killed, or with count = 1 stopped cleanly, a bit flips in a table of committed
    # offsets, and for_ms later the broker is started: it must refuse until an operator has
    # repaired its data
    "rot_table",
    # the broker's process has no file descriptor left for for_ms: no connection or file is opened
    "descriptors",
    # a nameserver's or broker's process is stopped for for_ms, and then handles its timers before
    # what waits in its sockets
    "suspend",
    # the broker is killed, and for_ms later started on a machine whose clock was set back by
    # count ms
    "set_clock_back",
]

FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

FIRST_FAULT_MS = 5_000
"""Drawn faults begin then, when the cluster has started."""

SHORT_MS = (500, 10_000)
LONG_MS = (2_000, 60_000)
"""How long drawn faults last."""

PLANNED: frozenset[FaultKind] = frozenset({"join", "leave", "grow_topics"})
"""What operators do; nothing is broken by it."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong at `at_ms`.

    `target` is a process name (`broker-a`, `member-0`); "" draws one.
    """

    kind: FaultKind
    at_ms: int
    for_ms: int = 0
    target: str = ""
    count: int = 0
    again: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario; see the module docstring."""

    name: str = ""
    seed: int = 0
    # the cluster
    nameservers: int = 1
    brokers: int = 1
    topics: int = 1
    queues: int = 4
    """Of each topic on each broker."""
    create_topics: bool = True
    """By an administrator beforehand; otherwise the first message to a broker creates them."""
    flush: Literal["async", "sync"] = "async"
    segment_bytes: int = 16 * 1024
    index_flush_rows: int = 16
    disk_watermark: bool = False
    """Brokers refuse producers while their disk is nearly full; otherwise only when a write fails.
    """
    skew_ms_max: int = 0
    drift_ppm_max: int = 0
    binary_headers_of_100: int = 0
    """Processes that write headers in the ROCKETMQ encoding instead of JSON."""
    weather: Weather = Weather()
    # the workload
    producers: int = 1
    members: int = 2
    strategy: str = "AVG"
    tags: str = "*"
    """What the group subscribes to; messages are tagged a, b and c in turn."""
    messages: int = 100
    first_message_ms: int = 3_000
    """Everything is started within 3 s."""
    interval_ms: int = 200
    """Mean time between the sends of all producers."""
    batch_of_100: int = 0
    oneway_of_100: int = 0
    transactions_of_100: int = 0
    """Single messages that are sent as transactions: half are committed, the others rolled back or
    left to the broker's question (`sim.transactions`).
    """
    timers_of_100: int = 0
    """Single messages that are delayed to the millisecond, by up to ten seconds."""
    body_bytes_max: int = 200
    consume_batch: int = 1
    pull_batch: int = 32
    queue_messages_max: int = 1_000
    """Of one queue in a member."""
    ordered: bool = False
    """Members are orderly consumers: what comes again does so in its queue, which waits for it
    (`sim.order`).
    """
    clean_handover: bool = True
    """Members let a queue go when its listener is done with it; otherwise as RocketMQ does."""
    thread_ms_max: int = 0
    """Brokers take in each request of a member up to so much later than it came (`sim.threads`)."""
    pull_bytes_max: int = 1024 * 1024
    """Of one pull reply."""
    hold_waiting_max: int = 100_000
    """Pulls that one broker holds."""
    process_ms_max: int = 20
    slow_of_100: int = 0
    """Batches that take up to a hundred times as long."""
    later_of_100: int = 0
    """Deliveries that the application answers with RECONSUME_LATER (at most twice a message)."""
    duplicates_max: int = -1
    """Most deliveries of a position after its first; -1: any number. 0 is what planned changes owe.
    """
    delayed_answers: bool = False
    """`BrokerConfig.delayed_answers`."""
    flapping_delay_max_ms: int = 0
    """`KafkaConfig.group_flapping_delay_max_ms`."""
    kafka_members: int = 0
    """Of a Kafka group that reads the same topics through the brokers' Kafka listeners, which are
    there if some client needs them.
    """
    kafka_protocol: Literal["classic", "consumer", "both"] = "classic"
    """`consumer`: KIP-848; `both`: each start of a member draws one, and the group migrates online.
    """
    kafka_assignor: str = "range"
    """Of a classic group's members; of the coordinator (uniform, range) with `consumer`.

    With `both`, uniform goes with cooperative-sticky, and range with range.
    """
    kafka_static: bool = False
    """Members with a `group.instance.id`."""
    kafka_auto_commit: bool = False
    kafka_session_timeout_ms: int = 10_000
    kafka_max_poll_interval_ms: int = 20_000
    kafka_poll_records: int = 10
    """Of one poll."""
    streams_threads: int = 0
    """Members of a Kafka Streams group (KIP-1071), two to a process; 0: there is none."""
    streams_standbys: int = 0
    """Standbys of its tasks with state."""
    kafka_producers: int = 0
    """Kafka producers, which write to a topic of their own (`sim.kafka.producers.producing`)."""
    kafka_transactional: int = 0
    """How many of them write in transactions; the others are idempotent."""
    kafka_transactional_ids: int = 1
    """Ids that those in transactions have; each replaces who has the same one."""
    kafka_transaction_version: Literal["1", "2", "both"] = "2"
    """What they know of transactions; 2: KIP-890."""
    kafka_transaction_timeout_ms: int = 20_000
    kafka_producer_pause_ms_max: int = 1_000
    """Longest pause between two transactions of one."""
    share_members: int = 0
    """Of a share group (KIP-932) that reads the same topics from the beginning."""
    share_lock_ms: int = 30_000
    """For which a member has the records that it was given."""
    share_deliveries_max: int = 5
    """Of one record."""
    share_fetch_records: int = 500
    """Most records of one fetch; below 10 it gets no more than that (KIP-1206)."""
    share_release_of_100: int = 0
    """Records that are released after they were processed."""
    share_slow_of_100: int = 0
    """Answers whose records take up to a hundred times as long."""
    share_renewals: bool = False
    """Members renew the locks of what they process, after a third of their time."""
    table_keys: int = 0
    """Keys of a topic that is compacted (`sim.table`); 0: there is none."""
    kafka_byte_rate: int = 0
    """Quota of each Kafka client for what it fetches, in bytes/s; 0: there is none."""
    accounts: bool = False
    """All servers want signed requests, and strangers try to do without (`sim.strangers`)."""
    # what goes wrong, and how long it may take to be right again
    faults: tuple[Fault, ...] = ()
    settle_ms: int = 240_000
    """After the last fault and the last message.

    Brokers and nameservers forget the silent after 120 s, members ask for routes every 30 s, a
    failed message comes back after 10 s and 30 s. 300 seeds took 111 s at most.
    """

    @property
    def has_kafka(self) -> bool:
        """Return whether the brokers have Kafka listeners."""
        clients = (
            self.kafka_members,
            self.streams_threads,
            self.kafka_producers,
            self.share_members,
        )
        return any(clients)

    @property
    def is_planned(self) -> bool:
        """Return whether nothing fails in it."""
        return all(fault.kind in PLANNED for fault in self.faults)


def load(text: str) -> Scenario:
    """A scenario from TOML. Raises ConfigError, naming the field."""
    try:
        scenario = msgspec.toml.decode(text, type=prepared(Scenario))
    except msgspec.DecodeError as error:
        raise ConfigError(f"not a scenario: {error}") from None
    if scenario.flush == "async" and any(f.kind == "power_broker" for f in scenario.faults):
        raise ConfigError('power_broker needs flush = "sync": asynchronous flushing loses messages')
    return scenario


def dump(scenario: Scenario) -> str:
    """The scenario as TOML, without what is as by default; `load` reads it back."""
    plain = msgspec.to_builtins(scenario)
    default = msgspec.to_builtins(Scenario())
    lines = [
        f"{key} = {_value(value)}" for key, value in plain.items() if _differs(default, key, value)
    ]
    weather = plain["weather"]
    if weather != default["weather"]:
        lines += ["", "[weather]", *(f"{key} = {_value(value)}" for key, value in weather.items())]
    for fault in plain["faults"]:
        shown = {k: v for k, v in fault.items() if v not in ("", 0) or k == "at_ms"}
        lines += ["", "[[faults]]", *(f"{key} = {_value(value)}" for key, value in shown.items())]
    return "\n".join(lines) + "\n"


def _differs(default: dict[str, object], key: str, value: object) -> bool:
    return key not in ("weather", "faults") and value != default[key]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else '"' + str(value) + '"'
