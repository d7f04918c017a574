"""What rebalances cost, computed from the ledger of running servers without Spark.

The rows are those of `steelyard pipeline ledger` (`spark.ledger`): both pass the ledger's messages
to `ledger.stream`, with the same delay.
"""

from __future__ import annotations

import os

from steelyard.client.administration.asking import masters_of
from steelyard.client.blocking.admin import Admin
from steelyard.client.blocking.pull import PullConsumer
from steelyard.embedded.administrator import OperatorAccess, administrator
from steelyard.errors import ConnectError, RouteError
from steelyard.ledger.events import LEDGER_TOPIC
from steelyard.ledger.stream import DELAY_MS, LedgerMessage, Stream, ledger_message
from steelyard.ledger.tables import Costs, Handoff, Rebalance
from steelyard.nodes.consumer.remoting.questions import PullStatus
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import ConsumerData, HeartbeatData
from steelyard.wire.remoting.codes import RequestCode

MARKER_GROUP = "STEELYARD_LEDGER_READER"
"""The group that a reader joins for a moment at each broker."""

MESSAGES_AT_ONCE = 256


class LedgerReader:
    """Reads the ledgers of all brokers of a cluster; later calls read only what is new."""

    def __init__(self, access: OperatorAccess) -> None:
        self._access = access
        self._messages: list[LedgerMessage] = []
        self._next: dict[MessageQueue, int] = {}

    def costs(self, group: str | None = None) -> Costs:
        """Return what all rebalances up to now cost, of one group or all; by group and time.

        Brokers that are down are left out.
        """
        with administrator(self._access) as admin:
            addresses = masters_of(admin.clusters())
            for name in [name for name in addresses if not _has_written(admin, addresses[name])]:
                del addresses[name]
            try:
                queues = [
                    each for each in admin.queues(LEDGER_TOPIC) if each.broker_name in addresses
                ]
            except RouteError:
                queues = []  # no broker keeps a ledger
        with PullConsumer(
            MARKER_GROUP, self._access.nameserver, **self._access.options
        ) as consumer:
            for queue in queues:
                self._read(consumer, queue)
        taken = Stream(DELAY_MS).take(self._messages, lambda _: None)
        shown = [made for made in taken.rows if made.group != MARKER_GROUP]
        rows = [made.row for made in shown if group in (None, made.group)]
        handoffs = [row for row in rows if isinstance(row, Handoff)]
        rebalances = [row for row in rows if isinstance(row, Rebalance)]
        return Costs(
            sorted(
                handoffs,
                key=lambda row: (
                    row.group,
                    row.first_delivery_ms,
                    row.broker,
                    row.topic,
                    row.queue,
                ),
            ),
            sorted(rebalances, key=lambda row: (row.group, row.started_at)),
        )

    def _read(self, consumer: PullConsumer, queue: MessageQueue) -> None:
        end = consumer.max_offset(queue)
        offset = self._next.get(queue, 0)
        while offset < end:
            result = consumer.pull(queue, offset, max_messages=MESSAGES_AT_ONCE)
            if result.status is PullStatus.FOUND:
                for view in result.messages:
                    place = (queue.broker_name, queue.queue_id, view.queue_offset)
                    message = ledger_message(place, view.body)
                    if message is not None:
                        self._messages.append(message)
            offset = max(result.next_begin_offset, offset + 1)
        self._next[queue] = offset


def _has_written(admin: Admin, address: str) -> bool:
    """Have a broker write all that it has recorded up to now; False if it is down.

    Records of members that join are written at once, with all that wait (`nodes.broker.ledger`): so
    a member joins and leaves.
    """
    client = f"ledger-reader@{os.getpid()}"
    data = HeartbeatData(
        client_id=client, consumer_data_set=(ConsumerData(MARKER_GROUP, "CONSUME_ACTIVELY"),)
    )
    leave = headers.UnregisterClientRequestHeader(client_id=client, consumer_group=MARKER_GROUP)
    try:
        admin.ask(address, RequestCode.HEART_BEAT, body=fastjson.write(data))
        admin.ask(address, RequestCode.UNREGISTER_CLIENT, leave)
    except ConnectError:
        return False
    return True
