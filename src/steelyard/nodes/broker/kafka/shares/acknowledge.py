"""79 ShareAcknowledge, versions 1-2: what members have done with records (KIP-932).

The request carries the next epoch of the member's session; -1 ends the session, and releases what
the member still has.
Source: core/kafka/server/KafkaApis.handleShareAcknowledgeRequest.
"""

from __future__ import annotations

from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.shares.acknowledging import Acknowledged, Acknowledging
from steelyard.nodes.broker.kafka.shares.answers import acknowledge_answer, members_fault
from steelyard.nodes.broker.kafka.shares.fetch import ShareFetches
from steelyard.nodes.broker.kafka.shares.places import SharePlaces
from steelyard.nodes.broker.kafka.shares.sessions import ShareSessions
from steelyard.nodes.broker.kafka.shares.stored import SharePartitions
from steelyard.nodes.broker.turns import Turns
from steelyard.nodes.seam import Effect, Hang
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import LAST_EPOCH
from steelyard.wire.kafka.messages.share_data import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)


class ShareAcknowledgements:
    """The handler of ShareAcknowledge."""

    def __init__(
        self,
        turns: Turns,
        shares: SharePartitions,
        places: SharePlaces,
        sessions: ShareSessions,
        acknowledging: Acknowledging,
        fetches: ShareFetches,
        durability: Durability,
    ) -> None:
        self._turns = turns
        self._shares = shares
        self._places = places
        self._sessions = sessions
        self._acknowledging = acknowledging
        self._fetches = fetches
        self._durability = durability

    @serves(ShareAcknowledgeRequest)
    def acknowledge(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ShareAcknowledgeResponse | None:
        request = call.read(ShareAcknowledgeRequest)
        fault = members_fault(request.group_id, request.member_id)
        if fault:
            return ShareAcknowledgeResponse(0, ErrorCode.INVALID_REQUEST, fault)
        session = group, _ = (request.group_id or "", request.member_id or "")
        error = self._sessions.advance(session, request.share_session_epoch)
        if error is not ErrorCode.NONE:
            return ShareAcknowledgeResponse(0, error)

        def answer(done: Acknowledged, now: int, effects: list[Effect]) -> None:
            self._fetches.stir(done.changed, now, effects)
            if request.share_session_epoch == LAST_EPOCH:
                self._fetches.end_session(session, now, effects)
            lock_ms = self._shares.limits(group).lock_ms
            message = acknowledge_answer(done.outcomes, lock_ms, self._places)
            self._durability.answer(call, message, effects)

        renews = call.version >= 2 and request.is_renew_ack
        steps = self._acknowledging.apply(call, session, request.topics, now, renews=renews)
        if not self._turns.run(call.peer.link, steps, answer, now, effects):
            effects.append(Hang(call.peer.link, "too many acknowledgements wait for their turn"))
        return None
