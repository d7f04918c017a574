"""Applies acknowledgements, which come with ShareFetch and ShareAcknowledge, and stores them.

Those of a partition are accepted as a whole and stored with one write, or refused.
Source: core/kafka/server/KafkaApis.handleAcknowledgements, SharePartition.acknowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from steelyard.errors import StorageError
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.kafka.shares.places import ShareFault, SharePlace, SharePlaces
from steelyard.nodes.broker.kafka.shares.sessions import Place, SessionKey
from steelyard.nodes.broker.kafka.shares.share_partition import (
    AcknowledgementRefused,
    is_sound,
)
from steelyard.nodes.broker.kafka.shares.stored import SharePartitions
from steelyard.nodes.broker.turns import Steps
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.share_data import AcknowledgementBatch, AcknowledgeTopic

STEP_BATCHES = 100
"""Acknowledged batches in one step of about 4 ms."""

ACCEPTED = ShareFault(ErrorCode.NONE)


class Acknowledged(msgspec.Struct):
    """The outcome for each partition, and those in which something changed."""

    outcomes: dict[Place, ShareFault] = {}
    changed: list[SharePlace] = []


class Acknowledging:
    """See the module docstring."""

    def __init__(self, shares: SharePartitions, places: SharePlaces, faults: Faults) -> None:
        self._shares = shares
        self._places = places
        self._faults = faults

    def apply(
        self,
        call: OpenRequest,
        session: SessionKey,
        topics: Iterable[AcknowledgeTopic],
        now: int,
        *,
        renews: bool,
    ) -> Steps[Acknowledged]:
        """Apply what a member acknowledges. `renews`: the request says that it may renew locks."""
        done = Acknowledged()
        count = 0
        for topic in topics:
            for part in topic.partitions:
                batches = part.acknowledgement_batches
                if not batches:
                    continue
                place = topic.topic_id, part.partition_index
                done.outcomes[place] = self._one(
                    call, session, place, batches, now, done, renews=renews
                )
                count += len(batches)
                if count >= STEP_BATCHES:
                    count = 0
                    yield
        return done

    def _one(
        self,
        call: OpenRequest,
        session: SessionKey,
        place: Place,
        batches: Sequence[AcknowledgementBatch],
        now: int,
        done: Acknowledged,
        *,
        renews: bool,
    ) -> ShareFault:
        group, member = session
        if not is_sound(batches, renews=renews):
            return ShareFault(ErrorCode.INVALID_REQUEST)
        found = self._places.find(call, group, place)
        if isinstance(found, ShareFault):
            return found
        found.bound()
        partition, limits = found.partition, self._shares.limits(group)
        before = partition.copy()
        try:
            partition.acknowledge(member, batches, limits, self._shares.time(now))
            self._shares.store([found.key])
        except AcknowledgementRefused as refusal:
            return ShareFault(refusal.code, refusal.text)
        except StorageError as error:
            partition.restore(before)
            self._faults.note(f"acknowledgements of {group} are not stored: {error}")
            return ShareFault(ErrorCode.KAFKA_STORAGE_ERROR)
        finally:
            self._shares.locked(found.key)
        done.changed.append(found)
        return ACCEPTED
