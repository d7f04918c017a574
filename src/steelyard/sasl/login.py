"""A client's login: what it is made of, and its exchange."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from steelyard.errors import AuthenticationError, ConfigError
from steelyard.sasl import oauthbearer, plain
from steelyard.sasl.credentials import SCRAM_MECHANISMS
from steelyard.sasl.oauthbearer import OAuthClient
from steelyard.sasl.outcomes import ClientExchange
from steelyard.sasl.plain import PlainClient
from steelyard.sasl.scram import ScramClient
from steelyard.types import Random

NONCE_CHARACTERS = 32
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

MECHANISMS = (plain.MECHANISM, *SCRAM_MECHANISMS, oauthbearer.MECHANISM)


class Login(msgspec.Struct, frozen=True):
    """Who a client is. Create it with `login_of`.

    `token`: returns an access token for OAUTHBEARER, for each connection anew.
    """

    mechanism: str
    user: str = ""
    password: str = ""
    token: Callable[[], str] | None = None

    def __repr__(self) -> str:
        return f"Login({self.mechanism!r}, {self.user!r})"


def login_of(
    mechanism: str, user: str = "", password: str = "", token: Callable[[], str] | None = None
) -> Login:
    """Return a login. Raises ConfigError if something is missing, or does not belong to it."""
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigError(f"sasl_mechanism is {mechanism!r}; expected one of: {known}")
    if mechanism == oauthbearer.MECHANISM:
        if token is None:
            raise ConfigError("OAUTHBEARER needs sasl_oauth_token, a function that returns a token")
    elif not user or not password:
        raise ConfigError(f"{mechanism} needs sasl_username and sasl_password")
    elif "\0" in user + password:
        raise ConfigError("sasl_username and sasl_password must not contain a NUL")
    return Login(mechanism, user, password, token)


def nonce(random: Random) -> str:
    """Return a random text for one exchange of SCRAM. `random` must not be predictable."""
    return "".join(random.choice(_ALPHABET) for _ in range(NONCE_CHARACTERS))


def exchange_of(login: Login, random: Random) -> ClientExchange:
    """Begin a login. Raises AuthenticationError if there is no token."""
    if login.mechanism == plain.MECHANISM:
        return PlainClient(login.user, login.password)
    if login.mechanism == oauthbearer.MECHANISM:
        assert login.token is not None
        try:
            token = login.token()
        except Exception as error:
            raise AuthenticationError(f"sasl_oauth_token failed: {error!r}") from error
        return OAuthClient(token)
    mechanism = SCRAM_MECHANISMS[login.mechanism]
    return ScramClient(mechanism, login.user, login.password, nonce(random))
