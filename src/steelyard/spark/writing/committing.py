"""The ends of the transactions that tasks have opened (`staging`), by the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import msgspec

from steelyard.errors import BrokerError, SteelyardError
from steelyard.groups.kafka.transactional_ids import CommitTogether, OpenTransaction
from steelyard.groups.kafka.transactions import TOGETHER_MAX
from steelyard.routes.brokers import BrokerEntry
from steelyard.spark.options.writing import SinkOptions
from steelyard.spark.servers.kafka_cluster import KafkaCluster
from steelyard.spark.servers.link import Link
from steelyard.spark.servers.patience import persist
from steelyard.spark.servers.server_links import ServerLinks
from steelyard.wire.kafka.messages.transactions import END_TXN, EndTxnRequest, EndTxnResponse
from steelyard.wire.remoting.codes import ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

logger = logging.getLogger(__name__)

END_VERSION = 3


@dataclass(frozen=True, slots=True)
class Staged:
    """The open transaction of a task that has written all its rows, and its coordinator."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator: BrokerEntry


def abort(cluster: KafkaCluster, staged: Staged) -> None:
    """Abort a transaction; if its coordinator cannot be reached, its time-out does it."""
    request = EndTxnRequest(
        staged.transactional_id, staged.producer_id, staged.producer_epoch, committed=False
    )
    with suppress(SteelyardError), cluster.using(staged.coordinator.address) as link:
        link.call(END_TXN, END_VERSION, request, EndTxnResponse)


def abort_all(options: SinkOptions, every: Iterable[Staged]) -> None:
    """Abort the transactions of a batch that has failed."""
    servers = ServerLinks(options.nameservers, options.timeout_ms, options.access)
    with servers, closing(KafkaCluster(options, servers)) as cluster:
        for staged in every:
            abort(cluster, staged)


def commit_all(options: SinkOptions, writer: str, number: int, every: Sequence[Staged]) -> None:
    """Commit the transactions of a batch, unless one with this number, or a later one, was.

    Raises SteelyardError if nothing was committed, RemotingError if that is not known.
    """
    if len(every) > TOGETHER_MAX:
        raise SteelyardError(
            f"batch {number} of {writer} was not committed: {len(every)} tasks wrote rows, and with"
            f" 'exactlyOnce' {TOGETHER_MAX} can be committed together; use coalesce() to have fewer"
        )
    asked = CommitTogether(
        writer,
        number,
        tuple(
            OpenTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            for each in every
        ),
    )
    command = Command(SteelyardCode.COMMIT_TOGETHER, body=msgspec.json.encode(asked))
    address = every[0].coordinator.remoting

    def attempt() -> Command:
        with Link(address, options.timeout_ms, options.access) as link:
            return link.call(command)

    try:
        answer = persist(attempt, options.retry_timeout_ms)
    except BrokerError as error:
        if error.code != ResponseCode.INVALID_PARAMETER:
            raise
        raise SteelyardError(
            f"batch {number} of {writer} was not committed: a transaction of it is no longer open"
            f" ({error.remark}). Its tasks took longer than option 'transactionTimeoutMs' allows,"
            f" which is {options.transaction_timeout_ms}, or another run writes the same"
        ) from error
    if answer.ext.get("already") == "true":
        logger.warning("batch %d of %s was committed before", number, writer)
