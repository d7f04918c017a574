"""Strangers of a cluster with accounts: they ask everything, unsigned or with a guessed secret.

The rule: no server ever answers them with anything but a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from steelyard.acl.accounts import Account, AccountGrant, Accounts
from steelyard.acl.policies import AclUser, PolicyDecision, PolicyEntry, PolicyType
from steelyard.config import ClientConfig
from steelyard.nodes.access.needs import NEEDS
from steelyard.nodes.admin import Invoke
from steelyard.nodes.broker.peers.requests import PEER_CODES
from steelyard.nodes.seam import Address
from steelyard.sim.world import Process, Violation, World
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import LockBatchBody
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

OPERATOR = Account("the-servers", b"servers-secret", is_admin=True)
"""The account of brokers and of the administrator."""
CLIENT = Account(
    "the-clients",
    b"clients-secret",
    default_topic=AccountGrant.PUB_OR_SUB,
    default_group=AccountGrant.SUB,
)
"""The account of the producers."""
MEMBER = AclUser(
    "the-members",
    "members-secret",
    entries=tuple(
        PolicyEntry(PolicyType.CUSTOM, resource, ("Sub", "Get"), (), PolicyDecision.ALLOW)
        for resource in ("Topic:*", "Group:*")
    ),
)
"""The user of 5.x as whom the consumers sign; brokers have it on their disks."""
ACCOUNTS = Accounts([OPERATOR, CLIENT])
LIAR = ClientConfig(access_key=OPERATOR.access_key, secret_key="a-guessed-secret")

ASK_MS_MAX = 2_000
"""Longest pause between two questions of a stranger."""
TIMEOUT_MS = 10_000

_FINE = frozenset(
    (
        ResponseCode.NO_PERMISSION,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,  # a broker's request at a nameserver, or the like
    )
)
_CODES = sorted({*map(int, NEEDS), *PEER_CODES})


class Strangers:
    """Asks through these processes, at random times, until the world ends."""

    def __init__(
        self,
        world: World,
        processes: Sequence[Callable[[], Process]],
        servers: Sequence[Address],
        topic: str,
        group: str,
        rng: Random,
    ) -> None:
        self._world = world
        self._servers = servers
        self._rng = rng
        self._ext = {
            **dict.fromkeys(("topic", "b"), topic),
            **dict.fromkeys(("group", "consumerGroup"), group),
            "clientID": "stranger",
            "queueId": "0",
            "commitOffset": "0",
        }
        locks = fastjson.write(LockBatchBody(group, "stranger"))
        self._bodies: dict[int, bytes] = {
            RequestCode.LOCK_BATCH_MQ: locks,
            RequestCode.UNLOCK_BATCH_MQ: locks,
        }
        """Those that others in the simulator read."""
        self.refused = 0
        """Questions that were refused."""
        for process in processes:
            self._later(process)

    def _later(self, process: Callable[[], Process]) -> None:
        self._world.after(1 + self._rng.randrange(ASK_MS_MAX), partial(self._ask, process))

    def _ask(self, process: Callable[[], Process]) -> None:
        address = self._rng.choice(self._servers)
        code = self._rng.choice(_CODES)
        body = self._bodies.get(code, b"")
        invoke = Invoke(address, Command(code, ext=self._ext, body=body), TIMEOUT_MS)
        process().ask(invoke, partial(self._answered, address, code))
        self._later(process)

    def _answered(self, address: Address, code: int, answer: object) -> None:
        if not isinstance(answer, Command):
            return  # nobody was there, or it took too long
        if answer.code not in _FINE:
            raise Violation(f"{address} answers request {code} of a stranger with {answer.code}")
        self.refused += answer.code == ResponseCode.NO_PERMISSION
