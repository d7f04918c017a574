"""What a step of a server's exchange comes to."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Challenge(msgspec.Struct, frozen=True, gc=False):
    """The exchange goes on: `token` is for the client."""

    token: bytes


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The client is who it says. `token` is the last one for it.

    `expires_at`: when its credential ends, in ms since the epoch; None if it does not.
    """

    user: str
    token: bytes = b""
    expires_at: int | None = None


class Denied(msgspec.Struct, frozen=True, gc=False):
    """The exchange has failed.

    `reason`: for the broker's log, without secrets. `told`: for the client; empty where it must not
    learn more than that its credentials are invalid. `user`: as far as the client gave its name.
    """

    reason: str
    told: str = ""
    user: str = ""


Step = Challenge | Accepted | Denied


class ServerExchange(Protocol):
    """The server's side of one login. After `Accepted` or `Denied` it is over."""

    def step(self, token: bytes, now: int) -> Step:
        """Take a token of the client. Never raises, whatever the bytes."""


class ClientExchange(Protocol):
    """The client's side of one login."""

    def first(self) -> bytes:
        """Return the first token."""

    def step(self, token: bytes) -> bytes | None:
        """Take the server's token; return the next one, None when the exchange is complete.

        Raises AuthenticationError if the server cannot prove that it knows the credentials, or
        refuses.
        """
