"""Transactions: half messages, 37 END_TRANSACTION, and checks (39) of open transactions.

A message with TRAN_MSG=true is stored in the half topic, which no consumer reads, with its real
topic and queue in properties. The producer ends the transaction: a commit writes the message to its
real queue (later if it has a delay, which counts from then), a rollback writes nothing. If it does
not, one connection of its group is asked, `transaction_timeout_ms` after the half message came and
then every `transaction_check_interval_ms`; CHECK_IMMUNITY_TIME_IN_SECONDS of the message postpones
the first check. After `transaction_check_max` checks, sent or not, the message goes to
TRANS_CHECK_MAX_TIME_TOPIC.

What survives a crash between any two writes:

1. The half message: when the producer is told that it is stored, it is.
2. An operation in the op topic, which says how the transaction ends and, if a message is published,
   where: the address that the message is about to get. From here on the transaction is decided.
3. The message itself, with the address of its half message as `prepared_transaction_offset`.

A restart reads the operations since the last progress (see `open_transactions`), looks at the
address of each, and publishes what is not there. So a committed message is published once:
ending a transaction again is refused. If the disk refuses step 3, it is tried again every second.
(A power failure may lose an operation whose message is on the disk; the transaction is then open
again. With flush=sync the progress waits until the disk has both.)

Difference from RocketMQ, which appends a half message to the half topic again for each check: here
it keeps its place, so that a late END_TRANSACTION and the answer to a check end the same
transaction, once. Times are counted from when the message was stored, not born. 5.x's refusal (604)
of an end that comes later than CHECK_IMMUNITY_TIME_IN_SECONDS is not needed.
Source: broker/processor/EndTransactionProcessor.java,
broker/transaction/queue/TransactionalMessageServiceImpl.java, TransactionalMessageBridge.java,
broker/transaction/AbstractTransactionalMessageCheckListener.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.acl.accounts import AccountGrant
from steelyard.errors import CorruptError, StorageError
from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.delays import Delays
from steelyard.nodes.broker.remoting.open_transactions import OpenTransactions, Row
from steelyard.nodes.broker.remoting.operations import Destination, Operations, TransactionOutcome
from steelyard.nodes.broker.remoting.schedule import DISK_RETRY_MS
from steelyard.nodes.broker.remoting.stored import check_stored
from steelyard.nodes.broker.requests import RemotingRequest, serves
from steelyard.nodes.broker.topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
)
from steelyard.nodes.broker.writer import Draft
from steelyard.nodes.seam import Effect, Send, SetTimer
from steelyard.types import LogLine
from steelyard.wire.remoting import headers
from steelyard.wire.remoting import properties as props
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command
from steelyard.wire.remoting.flags import TRANSACTION_BITS, SysFlag
from steelyard.wire.remoting.headers import EndTransactionRequestHeader
from steelyard.wire.remoting.message import MessageView, decode_records, encode_record
from steelyard.wire.remoting.properties import Properties

TRANSACTIONS_TIMER = "transactions"

ASK_BATCH_MAX = 200
"""Maximum of transactions checked, or given up, per event."""

_COMMITTED = int(SysFlag.TRANSACTION_COMMIT)


_OUTCOMES = {
    int(SysFlag.TRANSACTION_COMMIT): TransactionOutcome.COMMIT,
    int(SysFlag.TRANSACTION_ROLLBACK): TransactionOutcome.ROLLBACK,
}


class Transactions:
    """The transactions of this broker; see the module docstring."""

    def __init__(self, parts: Parts, delays: Delays) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._registry = parts.registry
        self._writer = parts.writer
        self._delays = delays
        self._durability = parts.durability
        self._faults = parts.faults
        self._half_log = parts.store.create_log(HALF_TOPIC, 0)
        self._operations = Operations(parts.store, parts.writer)
        self._open = OpenTransactions(
            parts.store.table("transactions"), parts.durability, parts.config.transactions_max
        )
        self._owed: dict[int, TransactionOutcome] = {}
        """By half offset: decided transactions whose message is not published yet."""
        self._armed_at: int | None = None
        self._questions = 0

    @property
    def full(self) -> bool:
        """Whether too many transactions are open to begin another."""
        return self._open.full

    # -- beginning -------------------------------------------------------------------------------

    def divert(
        self, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> tuple[str, int, dict[str, str]]:
        """Return where to store a half message, and its properties; call `began` afterwards."""
        real = {props.REAL_TOPIC: topic, props.REAL_QID: str(queue_id)}
        return HALF_TOPIC, 0, {**properties, **real}

    def began(self, offset: int, now: int, effects: list[Effect]) -> None:
        """Note that a half message was stored."""
        ask_at = now + self._config.transaction_timeout_ms
        self._open.begin(offset, ask_at, self._operations.next_offset)
        self._arm(now, effects)

    # -- ending ----------------------------------------------------------------------------------

    @serves(RequestCode.END_TRANSACTION)
    def end(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command | None:
        """Handle 37 END_TRANSACTION."""
        header = request.header(EndTransactionRequestHeader)
        outcome = _OUTCOMES.get(header.commit_or_rollback)
        if outcome is None:
            return request.reply()  # the producer does not know yet; it is asked later
        found = self._verified(header)
        if isinstance(found, str):
            return request.reply(ResponseCode.SYSTEM_ERROR, found)
        check_stored(request, found, AccountGrant.PUB)
        self._settle(now, effects)
        target = self._target(found, outcome, now)
        if target is None and outcome is TransactionOutcome.COMMIT:
            remark = f"the topic {found.property_of(props.REAL_TOPIC)!r} of the message is gone"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        self._conclude(found, outcome, target, now, effects)
        return self._durability.acknowledge(request, request.reply(), effects)

    def _verified(self, header: EndTransactionRequestHeader) -> MessageView | str:
        """Return the half message that is meant, or what is wrong with the request."""
        address = header.commit_log_offset
        entry = None if address < 0 else self._store.at_address(address)
        half = None if entry is None else decode_records(entry)[0]
        if half is None or half.topic != HALF_TOPIC or not _is_half(half):
            return "Find prepared transaction message failed"
        if half.property_of(props.PGROUP) != header.producer_group:
            return "The producer group wrong"
        if half.queue_offset != header.tran_state_table_offset:
            return "The transaction state table offset wrong"
        if half.queue_offset not in self._open:
            return "The transaction has ended before"
        return half

    def _conclude(
        self,
        half: MessageView,
        outcome: TransactionOutcome,
        target: Destination | None,
        now: int,
        effects: list[Effect],
    ) -> None:
        """Decide an open transaction and publish its message.

        Raises StorageError: either nothing is decided, or the message is owed.
        """
        offset = half.queue_offset
        op_offset = self._operations.next_offset
        self._operations.write(offset, outcome, target, now, effects)
        self._open.end(offset, op_offset)
        if target is not None:
            self._owed[offset] = outcome
            try:
                self._publish(target, now, effects)
            except StorageError:
                self._arm(now, effects)
                raise
            del self._owed[offset]

    def _publish(self, target: Destination, now: int, effects: list[Effect]) -> None:
        topic, queue_id, draft = target.topic, target.queue_id, target.draft
        written = self._writer.write(topic, queue_id, draft, now, effects)
        properties = draft.properties.values
        self._delays.stored(topic, queue_id, written.offset, properties, now, effects)

    def _settle(self, now: int, effects: list[Effect]) -> None:
        """Publish what is owed. Raises StorageError if the disk still refuses."""
        for offset, outcome in list(self._owed.items()):
            half = self._half(offset)
            target = None if half is None else self._target(half, outcome, now)
            if target is not None:  # else its topic was deleted, or its retention ended
                # The message gets another address now.
                self._operations.write(offset, outcome, target, now, effects)
                self._publish(target, now, effects)
                self._open.hold()
            del self._owed[offset]

    def _target(
        self, half: MessageView, outcome: TransactionOutcome, now: int
    ) -> Destination | None:
        """Return where the message goes; None if it goes nowhere."""
        if outcome is TransactionOutcome.ROLLBACK:
            return None
        properties = dict(half.properties)
        sys_flag = half.sys_flag & ~TRANSACTION_BITS
        topic, queue_id = GIVEN_UP_TOPIC, 0
        if outcome is TransactionOutcome.COMMIT:
            sys_flag |= _COMMITTED
            del properties[props.TRAN_MSG]
            topic, queue_id = properties.pop(props.REAL_TOPIC), int(properties.pop(props.REAL_QID))
            config = self._topics.get(topic)
            if config is None:
                return None
            queue_id = min(queue_id, max(config.write_queue_nums, config.read_queue_nums) - 1)
            topic, queue_id, properties = self._delays.divert(topic, queue_id, properties, now)
        draft = Draft(
            half.stored_body,
            Properties.of(properties),
            half.born_host_bytes,
            half.born_timestamp,
            half.flag,
            sys_flag,
            half.reconsume_times,
            half.physical_offset,
        )
        return Destination(topic, queue_id, draft)

    def _half(self, offset: int) -> MessageView | None:
        """Return the half message, or None if it cannot be read.

        Its retention may have ended, a power failure may have taken it, or it is damaged, or there
        is a Kafka batch instead.
        """
        if not self._half_log.min_offset <= offset < self._half_log.max_offset:
            return None
        try:
            entry = self._half_log.record_at(offset)
        except CorruptError:  # it cannot be published any more
            return None
        half = None if entry is None else decode_records(entry)[0]
        return half if half is not None and _is_half(half) else None

    # -- asking ----------------------------------------------------------------------------------

    def due(self, now: int, effects: list[Effect]) -> None:
        """Publish what is owed, and check the transactions whose time has come."""
        self._armed_at = None
        offsets = self._open.due(now, ASK_BATCH_MAX)
        try:
            self._settle(now, effects)
            rows: list[Row] = []
            asked: list[tuple[MessageView, int]] = []
            for offset in offsets:
                half = self._half(offset)
                row = self._look(offset, half, now, effects)
                if row is not None:
                    rows.append(row)
                    if half is not None and row.checks > self._open.checks(offset):
                        asked.append((half, row.checks))
            self._open.keep(rows, self._half_log.max_offset, self._operations.next_offset)
        except StorageError as error:
            self._faults.tell(f"transactions wait: {error}", now, effects)
            self._open.postpone(offsets, now + DISK_RETRY_MS)
        else:
            for half, checks in asked:
                self._ask(half, checks, effects)
        self._arm(now, effects)

    def _look(
        self, offset: int, half: MessageView | None, now: int, effects: list[Effect]
    ) -> Row | None:
        """Return the row to keep of a transaction whose time has come; None if it was given up."""
        if half is None:
            effects.append(
                LogLine(
                    "WARNING",
                    "an open transaction was discarded:"
                    " its half message is past its retention, or damaged",
                )
            )
            self._open.end(offset, self._operations.next_offset)
            return None
        checks = self._open.checks(offset)
        immune_until = half.store_timestamp + self._immunity_ms(half)
        if checks == 0 and half.store_timestamp <= now < immune_until:
            return Row(offset, 0, immune_until)
        if checks < self._config.transaction_check_max:
            return Row(offset, checks + 1, now + self._config.transaction_check_interval_ms)
        group = half.property_of(props.PGROUP)
        text = f"a transaction of group {group} was given up after {checks} unanswered checks"
        effects.append(LogLine("WARNING", text))
        target = self._target(half, TransactionOutcome.GIVEN_UP, now)
        self._conclude(half, TransactionOutcome.GIVEN_UP, target, now, effects)
        return None

    def _immunity_ms(self, half: MessageView) -> int:
        text = half.property_of(props.CHECK_IMMUNITY_TIME_IN_SECONDS) or ""
        return int(text) * 1000 if text.isdecimal() and len(text) < 10 else 0

    def _ask(self, half: MessageView, checks: int, effects: list[Effect]) -> None:
        """Send 39 CHECK_TRANSACTION_STATE to the next connection of the group, if it has any."""
        producers = self._registry.producers(half.property_of(props.PGROUP) or "")
        if not producers:
            return
        self._questions = (self._questions + 1) & 0x7FFFFFFF
        producer = producers[self._questions % len(producers)]
        unique_id = half.property_of(props.UNIQ_KEY)
        header = headers.CheckTransactionStateRequestHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=half.offset_message_id,
            bname=self._config.name,
        )
        code = int(RequestCode.CHECK_TRANSACTION_STATE)
        ext, body = headers.write(header), _asked_after(half, checks)
        effects.append(Send(producer.link, Command(code, self._questions, ONEWAY_FLAG, ext, body)))

    def _arm(self, now: int, effects: list[Effect]) -> None:
        """Ensure that the timer is set for what is next."""
        at = self._open.next_at
        if self._owed and (at is None or at > now + DISK_RETRY_MS):
            at = now + DISK_RETRY_MS
        if at is not None and (self._armed_at is None or at < self._armed_at):
            self._armed_at = at
            effects.append(SetTimer(TRANSACTIONS_TIMER, max(at, now)))

    # -- starting --------------------------------------------------------------------------------

    def start(self, now: int, effects: list[Effect]) -> None:
        """Find what is open and what is owed; must be called before anything else.

        With flush=sync the disk must have what the logs hold. Raises StorageError if it cannot be
        synced.
        """
        half_log = self._half_log
        operations = {
            item.half_offset: item for item in self._operations.since(self._open.op_offset)
        }
        if self._operations.unreadable:
            text = (
                f"{OP_TOPIC}: {self._operations.unreadable} damaged entries cannot be read. The"
                " transactions that they ended count as open: their producers are asked again, and"
                " may publish them twice"
            )
            effects.append(LogLine("ERROR", text))
        first = max(self._open.half_offset, half_log.min_offset)
        timeout = self._config.transaction_timeout_ms
        rows = [
            Row(offset, 0, min(now, half_log.stored_at(offset)) + timeout)
            for offset in range(first, half_log.max_offset)
            if offset not in self._open and offset not in operations
        ]
        for offset in self._open.kept():
            if offset in operations or offset >= half_log.max_offset:
                self._open.end(offset, self._open.op_offset)
        for offset, operation in operations.items():
            half = self._half(offset)
            if half and self._operations.is_unfinished(operation, half.physical_offset):
                self._owed[offset] = operation.outcome
        self._ask_earlier(now)
        try:
            self._settle(now, effects)
        except StorageError as error:
            self._do_without(rows, error)
        else:
            self._keep_found(rows)
        self._arm(now, effects)

    def _ask_earlier(self, now: int) -> None:
        """Ask soon about transactions whose time was set by a clock that was ahead."""
        early = set()
        for offset in self._open.later_than(now + self._config.transaction_check_interval_ms):
            half = self._half(offset)
            if self._open.checks(offset) or (half and half.store_timestamp > now):
                early.add(offset)
        self._open.hasten(early, now + self._config.transaction_timeout_ms)

    def _keep_found(self, rows: list[Row]) -> None:
        """Write what a start has found open. Raises StorageError if the disk cannot be synced.

        After a power failure, rows, operations and the progress may refer to half messages that are
        lost. Their offsets are given again, so nothing of it may be read once more; what was just
        published must be on the disk before that.
        """
        if self._config.flush == "sync":
            self._store.take_dirty().sync()
        self._open.all_synced()
        try:
            self._open.keep(rows, self._half_log.max_offset, self._operations.next_offset)
        except StorageError as error:
            self._do_without(rows, error)

    def _do_without(self, rows: list[Row], error: StorageError) -> None:
        """Keep rows in memory that the disk refuses; the operations are read again until then."""
        self._faults.note(f"transactions wait: {error}")
        for row in rows:
            self._open.begin(row.offset, row.ask_at, self._open.op_offset)

    def stop(self) -> None:
        """Write rows for what is open. Raises StorageError.

        The next start then need not find it out from operations, which may be damaged by then.
        """
        if not self._owed:  # owed messages are found by their operations
            self._open.keep_all(self._half_log.max_offset, self._operations.next_offset)

    # -- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        self._open.check(self._half_log.max_offset)
        at = self._open.next_at
        assert at is None or (self._armed_at is not None and self._armed_at <= at)
        assert not self._owed or self._armed_at is not None
        assert not any(offset in self._open for offset in self._owed)


def _is_half(message: MessageView) -> bool:
    """Return whether the message says where it is to go.

    If not, it is damaged: no checksum protects properties.
    """
    queue_id = message.property_of(props.REAL_QID) or ""
    return (
        bool(message.property_of(props.REAL_TOPIC))
        and queue_id.isdecimal()
        and len(queue_id) < 10
        and message.property_of(props.TRAN_MSG) is not None
    )


def _asked_after(half: MessageView, checks: int) -> bytes:
    """Return the half message as its producer sent it: with real topic and queue.

    A property has the number of the check.
    """
    properties = dict(half.properties)
    properties[props.TRANSACTION_CHECK_TIMES] = str(checks)
    encoded = props.encode_properties(properties).encode()
    if len(encoded) > props.PROPERTIES_BYTES_MAX:
        encoded = half.property_bytes
    return encode_record(
        topic=properties[props.REAL_TOPIC],
        queue_id=int(properties[props.REAL_QID]),
        flag=half.flag,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host_bytes,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host_bytes,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
        body=half.stored_body,
        properties=encoded,
    )
