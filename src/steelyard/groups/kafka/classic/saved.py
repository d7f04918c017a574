"""Classic groups on disk: the table `kafka_groups`, with a JSON record per group.

A group is stored when its leader has assigned, and when it becomes empty: a restarted broker then
knows the members of the last stable generation, which continue without a rebalance. A static member
that returns, at any time, is stored in that generation under its new id before it receives the id:
otherwise a restarted broker would know the former process, and fence the live one. (Apache stores
it in a stable group only.)

The number of a generation is stored before its members learn of it, so that no two generations have
one number, whatever a restarted broker has forgotten. Otherwise a member of the first that did not
rejoin would seem to be one of the second, with partitions that others have by now; a static one
stays a member and would be taken for it. (Apache gives the number again.)
Source: GroupMetadataValue.json; KAFKA-10284.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from steelyard.decoding import prepared
from steelyard.groups.kafka.classic.members import ClassicGroupMember
from steelyard.store.tables import Table


class SavedMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of a stored generation. `epoch`: as in `ClassicGroupMember`."""

    member_id: str
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    instance_id: str | None = None
    epoch: int | None = None


class SavedGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """A group with its generation. `since`: when it entered this state, in ms since the epoch.

    `announced`: the last generation whose number members may know, 0 if that is `generation`.
    """

    group_id: str
    generation: int
    protocol_type: str
    since: int
    protocol: str | None = None
    leader: str | None = None
    members: tuple[SavedMember, ...] = ()
    announced: int = 0


def saved_member(member: ClassicGroupMember) -> SavedMember:
    return SavedMember(
        member.member_id,
        member.client_id,
        member.host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        tuple(member.protocols.items()),
        member.assignment,
        member.instance_id,
        member.epoch,
    )


def restored_member(saved: SavedMember, protocol_type: str) -> ClassicGroupMember:
    return ClassicGroupMember(
        saved.member_id,
        saved.instance_id,
        saved.client_id,
        saved.host,
        saved.session_timeout_ms,
        saved.rebalance_timeout_ms,
        protocol_type,
        dict(saved.protocols),
        saved.assignment,
        epoch=saved.epoch,
    )


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(prepared(SavedGroup)).decode


class SavedGroups:
    """The table of stored groups."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def save(self, group: SavedGroup) -> None:
        """Store a group. Raises StorageError."""
        self._table.put(group.group_id, _encode(group))

    def save_return(self, group_id: str, member: ClassicGroupMember) -> None:
        """Store `member` as the one with its instance id. Raises StorageError.

        Its metadata and its share stay those of the stored generation: its new subscription applies
        from the next one on.
        """
        data = self._table.get(group_id)
        if data is None:
            return
        saved = _decode(data)
        old = next((one for one in saved.members if one.instance_id == member.instance_id), None)
        if old is None:
            return
        new = replace(saved_member(member), protocols=old.protocols, assignment=old.assignment)
        members = tuple(new if one is old else one for one in saved.members)
        leader = new.member_id if saved.leader == old.member_id else saved.leader
        self.save(replace(saved, leader=leader, members=members))

    def save_announced(self, group_id: str, generation: int) -> None:
        """Store that members learn of this generation. Raises StorageError."""
        data = self._table.get(group_id)
        if data is not None:
            self.save(replace(_decode(data), announced=generation))

    def delete(self, group_id: str) -> None:
        self._table.delete(group_id)

    def load(self) -> list[SavedGroup]:
        return [_decode(data) for _, data in self._table.items()]
