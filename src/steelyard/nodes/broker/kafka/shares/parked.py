"""Fetches of share groups that wait for records: new ones, or released ones of their group."""

from __future__ import annotations

import msgspec

from steelyard.nodes.broker.kafka.data.fetch_parked import PARKED_MAX, SLOT_MS
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest
from steelyard.nodes.broker.kafka.shares.places import ShareFault, SharePlace
from steelyard.nodes.broker.kafka.shares.sessions import Place, SessionKey, ShareSession
from steelyard.nodes.broker.kafka.shares.share_partition import Wanted
from steelyard.nodes.broker.parked import Parked, Queue
from steelyard.wire.kafka.errors import ErrorCode


class ShareFetch(msgspec.Struct):
    """A fetch of a member that was checked.

    `places`: its share partitions, in the order in which they are read; `faults`: those that cannot
    be served; `outcomes`: of the acknowledgements that came with it. `committed`: aborted records
    are not delivered. `due_at`: when it is answered at the latest. `error`: with what, if it has no
    session. `begun`: the session that it belongs to. `by_queue`: while it waits, the queues of its
    places.
    """

    call: OpenRequest
    session: SessionKey
    wanted: Wanted
    min_bytes: int
    max_bytes: int
    due_at: int
    places: list[SharePlace] = []
    faults: dict[Place, ShareFault] = {}
    outcomes: dict[Place, ShareFault] = {}
    committed: bool = False
    error: ErrorCode = ErrorCode.NONE
    begun: ShareSession | None = None
    by_queue: dict[Queue, SharePlace] = {}

    @property
    def group(self) -> str:
        return self.session[0]


class ParkedShareFetches(Parked[ShareFetch]):
    """The fetches that wait, each at the queues of its partitions."""

    def __init__(self, waiting_max: int) -> None:
        super().__init__(waiting_max, SLOT_MS, PARKED_MAX)

    def park(self, fetch: ShareFetch, due_at: int) -> bool:
        """Have a fetch wait until `due_at` at the latest; return False if too many do."""
        fetch.by_queue = {
            (place.queue.topic, place.queue.queue_id): place for place in fetch.places
        }
        return self.add(fetch, fetch.by_queue, fetch.call.peer.link, due_at)

    def at(self, queue: Queue, group: str | None) -> list[tuple[int, ShareFetch]]:
        """Return those that wait at a queue with their numbers, in order. `group`: None for any."""
        waiting = self.of_queue(queue) or {}
        return [each for each in waiting.items() if group is None or each[1].group == group]
