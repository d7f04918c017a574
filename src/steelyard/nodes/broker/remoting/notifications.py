"""Notifications (40): members of a group rebalance at once, not at the next of every 20 seconds.

With delayed answers a notification may wait, for LATER_MS if nothing else is said, and is then one
for all that happened in that time:

- **Members that joined or left**, if the group has clients that pace themselves. A client joins and
  leaves broker after broker. Members that are told by the first broker ask any of them who is in
  the group (38), half of the time one that does not know yet, and rebalance without a change. Java
  5.x then waits for a second, while the queues are read by two members or by none. Other clients
  rebalance again at once, with the notification of the next broker.
- **A member of Java 5.x that joined**, for JOINED_MS. It rebalances for the first time a second
  after it was created, and pulls half a second later. Those that have its queues go on reading them
  until then.
- **Queues that were unlocked**, for members that were refused their locks (`waiting_locks`).

A member that has gone meanwhile is not notified.
Source: broker/client/net/Broker2Client.java, DefaultConsumerIdsChangeListener.java; Java
RebalanceService.java (minInterval).
"""

from __future__ import annotations

from collections.abc import Iterable

from steelyard.groups.remoting.registry import GroupChange, Registry
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.seam import Effect, Link, Send
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command

LATER_MS = 100
"""Time that a notification waits."""

JOINED_MS = 1_000
"""Time that the notification of a new member waits that paces itself."""

PLANNED = ("heartbeat", "subscription", "unregistered")
"""Causes of changes that each broker hears of at its own time. A connection that closes does so at
all brokers at once, and a member that expired has been silent for long.
"""


class Notifications:
    """The notifications of one broker; see the module docstring."""

    def __init__(self, registry: Registry, groups: SubscriptionGroups, *, may_wait: bool) -> None:
        self._registry = registry
        self._groups = groups
        self._may_wait = may_wait
        self._due: dict[tuple[str, Link], int] = {}
        """When to notify members of groups."""
        self.next_at: int | None = None
        """When to call `expire` next, None if no notification waits."""
        self._opaque = 0

    def changed(self, change: GroupChange, now: int, effects: list[Effect]) -> None:
        """Notify the members that are left, at once or later."""
        if not self._may_wait or change.cause not in PLANNED or not self._paces(change.group):
            self._notify(change.group, change.links, effects)
            return
        after_ms = JOINED_MS if self._is_slow_newcomer(change) else LATER_MS
        self.later(change.group, change.links, now + after_ms)

    def _is_slow_newcomer(self, change: GroupChange) -> bool:
        """Return whether a change is a new member that paces itself."""
        if change.cause != "heartbeat":
            return False
        member = self._registry.find(change.group, change.client_id)
        return member is not None and member.client.paces_rebalances

    def _paces(self, group: str) -> bool:
        return any(member.client.paces_rebalances for member in self._registry.memberships(group))

    def later(self, group: str, links: Iterable[Link], at: int) -> None:
        """Notify these members at this time, or earlier if they will be notified anyway."""
        for link in links:
            self._due[group, link] = min(at, self._due.get((group, link), at))
            self.next_at = at if self.next_at is None else min(at, self.next_at)

    def expire(self, now: int, effects: list[Effect]) -> None:
        """Send the notifications that are due."""
        for group, link in [place for place, at in self._due.items() if at <= now]:
            del self._due[group, link]
            if self._registry.member(group, link) is not None:
                self._notify(group, (link,), effects)
        self.next_at = min(self._due.values(), default=None)

    def _notify(self, group: str, links: Iterable[Link], effects: list[Effect]) -> None:
        if not self._groups.get(group).notify_consumer_ids_changed_enable:
            return
        code, ext = int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), {"consumerGroup": group}
        for link in links:
            self._opaque = (self._opaque + 1) & 0x7FFFFFFF
            effects.append(Send(link, Command(code, self._opaque, ONEWAY_FLAG, ext)))

    def check(self) -> None:
        assert self._may_wait or not self._due
        assert self.next_at == min(self._due.values(), default=None)
