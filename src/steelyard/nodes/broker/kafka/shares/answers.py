"""Answers to ShareFetch and ShareAcknowledge, and what is wrong with who asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from steelyard.groups.kafka.share.groups import MEMBER_ID_MAX
from steelyard.nodes.broker.kafka.data.partitions import LEADER_EPOCH
from steelyard.nodes.broker.kafka.shares.parked import ShareFetch
from steelyard.nodes.broker.kafka.shares.places import ShareFault, SharePlaces
from steelyard.nodes.broker.kafka.shares.sessions import Place
from steelyard.wire.kafka.messages.data import LeaderIdAndEpoch, NodeEndpoint
from steelyard.wire.kafka.messages.share_data import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
    SharePartitionData,
)

T = TypeVar("T")

_NO_LEADER = LeaderIdAndEpoch(0, 0)


def members_fault(group_id: str | None, member_id: str | None) -> str:
    """Return what is wrong with the ids in a request; empty if nothing is.

    Source: KafkaApis.handleShareFetchRequest, isMemberIdValid.
    """
    if group_id is None:
        return "Invalid group id in the request."
    if not member_id or len(member_id) > MEMBER_ID_MAX:
        return "Invalid member id in the request."
    return ""


def fetch_answer(
    fetch: ShareFetch, found: Mapping[Place, SharePartitionData], lock_ms: int, places: SharePlaces
) -> ShareFetchResponse:
    """Return the answer to a fetch that got these records."""
    parts: list[tuple[Place, SharePartitionData]] = []
    for place in {**found, **fetch.faults, **fetch.outcomes}:
        data = found.get(place) or SharePartitionData(place[1])
        fault, outcome = fetch.faults.get(place), fetch.outcomes.get(place)
        parts.append(
            (
                place,
                SharePartitionData(
                    place[1],
                    0 if fault is None else fault.code,
                    None if fault is None else fault.text,
                    0 if outcome is None else outcome.code,
                    None if outcome is None else outcome.text,
                    _leader(fault, outcome),
                    data.records,
                    data.acquired_records,
                ),
            )
        )
    topics = [ShareFetchableTopicResponse(*each) for each in _by_topic(parts)]
    faults = (*fetch.faults.values(), *fetch.outcomes.values())
    return ShareFetchResponse(0, 0, None, lock_ms, topics, _endpoints(faults, places))


def acknowledge_answer(
    outcomes: Mapping[Place, ShareFault], lock_ms: int, places: SharePlaces
) -> ShareAcknowledgeResponse:
    """Return the answer to acknowledgements with these outcomes."""
    parts = [
        (
            place,
            ShareAcknowledgePartitionData(place[1], fault.code, fault.text, _leader(fault, None)),
        )
        for place, fault in outcomes.items()
    ]
    topics = [ShareAcknowledgeTopicResponse(*each) for each in _by_topic(parts)]
    endpoints = _endpoints(outcomes.values(), places)
    return ShareAcknowledgeResponse(0, 0, None, lock_ms, topics, endpoints)


def _leader(*faults: ShareFault | None) -> LeaderIdAndEpoch:
    leaders = (fault.leader for fault in faults if fault is not None and fault.leader >= 0)
    leader = next(leaders, None)
    return _NO_LEADER if leader is None else LeaderIdAndEpoch(leader, LEADER_EPOCH)


def _by_topic(parts: Iterable[tuple[Place, T]]) -> list[tuple[bytes, list[T]]]:
    topics: dict[bytes, list[T]] = {}
    for (topic_id, _), part in parts:
        topics.setdefault(topic_id, []).append(part)
    return list(topics.items())


def _endpoints(faults: Iterable[ShareFault], places: SharePlaces) -> list[NodeEndpoint]:
    leaders = [fault.leader for fault in faults if fault.leader >= 0]
    return [NodeEndpoint(*each) for each in places.endpoints(leaders)]
