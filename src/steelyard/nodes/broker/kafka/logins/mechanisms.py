"""The exchange that begins when a client has chosen a mechanism."""

from __future__ import annotations

from steelyard.config import KafkaConfig
from steelyard.nodes.broker.users import UserStore
from steelyard.sasl import oauthbearer, plain
from steelyard.sasl.credentials import (
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    credential_of,
    verifies,
)
from steelyard.sasl.login import nonce
from steelyard.sasl.oauthbearer import OAuthServer, unsecured
from steelyard.sasl.outcomes import ServerExchange
from steelyard.sasl.plain import PlainServer
from steelyard.sasl.scram import ScramServer
from steelyard.sasl.signed_tokens import SignedTokens
from steelyard.types import Random

_NOBODY = credential_of(SCRAM_SHA_512, bytes(64), bytes(24), 4_096)
"""Against which the password of an unknown user is checked, so that this takes as long."""


class Mechanisms:
    """Begins exchanges against a user store and the keys of tokens.

    `random` must not be predictable.
    """

    def __init__(
        self, config: KafkaConfig, users: UserStore, tokens: SignedTokens, random: Random
    ) -> None:
        self.enabled = tuple(dict.fromkeys(config.sasl_enabled_mechanisms))
        self._users = users
        self._random = random
        self._decoy = bytes(random.randrange(256) for _ in range(32))
        is_unsecured = config.sasl_oauthbearer_unsecured
        self._validate = unsecured if is_unsecured else tokens.validate

    def begin(self, mechanism: str) -> ServerExchange:
        """Begin an exchange of an enabled mechanism."""
        assert mechanism in self.enabled
        if mechanism == plain.MECHANISM:
            return PlainServer(self._is_password)
        if mechanism == oauthbearer.MECHANISM:
            return OAuthServer(self._validate)
        users = self._users
        return ScramServer(
            SCRAM_MECHANISMS[mechanism],
            lambda user: users.credential(user, mechanism),
            nonce(self._random),
            self._decoy,
        )

    def _is_password(self, user: str, password: str) -> bool:
        """Check a password against any credential of the user."""
        for mechanism in (SCRAM_SHA_512, SCRAM_SHA_256):
            credential = self._users.credential(user, mechanism.name)
            if credential is not None:
                return verifies(mechanism, credential, password)
        verifies(SCRAM_SHA_512, _NOBODY, password)
        return False
