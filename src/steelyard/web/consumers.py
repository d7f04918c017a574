"""The consumers with which the HTTP server reads messages, of the ledger and for the console."""

from __future__ import annotations

import ssl

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer


def consumer_of(admin: Admin, group: str, tls: ssl.SSLContext | None) -> PullConsumer:
    """Return a consumer that has the same access as an administrator. It is to be started."""
    config = admin.config
    return PullConsumer(
        group,
        admin.nameservers,
        access_key=config.access_key,
        secret_key=config.secret_key,
        security_token=config.security_token,
        address_translation=config.address_translation,
        tls=tls,
    )
