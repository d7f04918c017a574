"""38 CreateDelegationToken, 39 Renew-, 40 Expire- and 41 DescribeDelegationToken (versions 1-3).

There are no delegation tokens, as at a broker of Apache Kafka without
`delegation.token.secret.key`: DELEGATION_TOKEN_AUTH_DISABLED, and before that
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients of whom nobody knows who they are.
Source: core/kafka/server/KafkaApis.scala handleCreateTokenRequest, ControllerApis.scala.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.requests import Peer
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from steelyard.wire.kafka.schema import ApiMessage


class DelegationTokens:
    """Handlers of the requests for delegation tokens.

    `principal_of`: who a client is, as Kafka writes it; `anonymous`: nobody knows.
    """

    def __init__(self, principal_of: Callable[[Peer], str], anonymous: str) -> None:
        self._principal_of = principal_of
        self._anonymous = anonymous

    def _fault(self, call: OpenRequest) -> ErrorCode:
        if self._principal_of(call.peer) == self._anonymous:
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    @serves(CreateDelegationTokenRequest)
    def create(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        message = call.read(CreateDelegationTokenRequest)
        kind, _, name = self._principal_of(call.peer).partition(":")
        owner = (kind, name)
        if message.owner_principal_type and message.owner_principal_name:
            owner = (message.owner_principal_type, message.owner_principal_name)
        return CreateDelegationTokenResponse(self._fault(call), *owner, kind, name, -1, -1, -1)

    @serves(RenewDelegationTokenRequest)
    def renew(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        return RenewDelegationTokenResponse(self._fault(call), -1)

    @serves(ExpireDelegationTokenRequest)
    def expire(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        return ExpireDelegationTokenResponse(self._fault(call), -1)

    @serves(DescribeDelegationTokenRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        return DescribeDelegationTokenResponse(self._fault(call))
