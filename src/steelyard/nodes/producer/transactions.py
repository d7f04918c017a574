"""The second half of transactions: the request that ends one (37), and the broker's check (39).

A half message is sent like any other. Its transaction ends with `EndTransaction`, one-way to the
broker that stores it. If that request is lost or says UNKNOWN, the broker asks a member of the
group, perhaps in another process than the one that began; the program determines the outcome, which
is sent back one-way.
Source: client/impl/producer/DefaultMQProducerImpl.java `endTransaction`, `checkTransactionState`;
client/impl/ClientRemotingProcessor.java `checkTransactionState`.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from steelyard.errors import ConfigError, ProtocolError
from steelyard.nodes.producer.contract import EndTransaction, TransactionCheck
from steelyard.nodes.producer.peers import Peers
from steelyard.nodes.seam import Address, Answer, Deliver, Effect, Handled
from steelyard.types import LogLine, TransactionState
from steelyard.wire.remoting import headers
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.flags import SysFlag
from steelyard.wire.remoting.ids import parse_offset_message_id
from steelyard.wire.remoting.message import decode_records
from steelyard.wire.remoting.properties import PGROUP

_ENDS = MappingProxyType(
    {
        TransactionState.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
        TransactionState.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
        TransactionState.UNKNOWN: 0,
    }
)
"""`commitOrRollback` of a state."""


class _Check(msgspec.Struct, frozen=True):
    """A check that the program has not answered."""

    address: Address
    header: headers.CheckTransactionStateRequestHeader
    message_id: str


class LocalTransactions:
    """Transactions that end or are checked.

    Checks wait for the program under the ticket of `Deliver`.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._checks: dict[int, _Check] = {}
        self._ticket = 0

    def end(self, call_id: int, call: EndTransaction, effects: list[Effect]) -> None:
        """Send the program's decision to the broker that stores the half message."""
        result = call.half.result
        queue = result.queue
        try:
            store_address, physical_offset = parse_offset_message_id(result.offset_message_id)
        except ConfigError as error:
            effects.append(Answer(call_id, ProtocolError(f"a half message's place: {error}")))
            return
        route = self._peers.routes.route(queue.topic)
        address = None if route is None else route.masters.get(queue.broker_name)
        header = headers.EndTransactionRequestHeader(
            topic=queue.topic,
            producer_group=self._peers.config.group,
            tran_state_table_offset=result.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=_ENDS[call.state],
            msg_id=result.message_id,
            transaction_id=call.half.transaction_id,
            bname=queue.broker_name,
        )
        self._tell(address or store_address, header, call.remark, effects)
        effects.append(Answer(call_id, None))

    def asked(self, address: Address, command: Command, effects: list[Effect]) -> None:
        """Take CHECK_TRANSACTION_STATE.

        It gets no response; only the program's decision is sent.
        """
        config = self._peers.config
        try:
            header = headers.read(headers.CheckTransactionStateRequestHeader, command.ext)
            name = header.bname or self._peers.routes.broker_name(address)
            (message,) = decode_records(command.body, name)
        except (ProtocolError, ValueError) as error:
            text = f"{address} sent a transaction check that cannot be read: {error}"
            effects.append(LogLine("WARNING", text))
            return
        group = message.property_of(PGROUP)
        if group != config.group:
            text = f"{address} asks {config.group} for a transaction of group {group}"
        elif not config.checks:
            text = f"{address} sent a transaction check, but this producer has no transaction_check"
        elif len(self._checks) >= config.checks_max:
            text = f"more than {config.checks_max} transactions are being checked (checks_max)"
        else:
            self._ticket += 1
            self._checks[self._ticket] = _Check(address, header, message.message_id)
            effects.append(Deliver(self._ticket, TransactionCheck(message)))
            return
        effects.append(LogLine("WARNING", text))

    def handled(self, event: Handled, effects: list[Effect]) -> None:
        """Take the program's decision."""
        check = self._checks.pop(event.ticket)
        state = event.status
        assert isinstance(state, TransactionState)
        header = headers.EndTransactionRequestHeader(
            topic=check.header.topic,
            producer_group=self._peers.config.group,
            tran_state_table_offset=check.header.tran_state_table_offset,
            commit_log_offset=check.header.commit_log_offset,
            commit_or_rollback=_ENDS[state],
            from_transaction_check=True,
            msg_id=check.message_id,
            transaction_id=check.header.transaction_id,
            bname=check.header.bname,
        )
        self._tell(check.address, header, "", effects)

    def _tell(
        self,
        address: Address,
        header: headers.EndTransactionRequestHeader,
        remark: str,
        effects: list[Effect],
    ) -> None:
        ext = headers.write(header)
        command = Command(code=RequestCode.END_TRANSACTION, ext=ext, remark=remark)
        self._peers.calls.tell(address, command, effects)

    def check(self) -> None:
        assert len(self._checks) <= self._peers.config.checks_max
