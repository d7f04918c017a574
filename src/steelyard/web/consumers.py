"""The consumers with which the HTTP server reads messages, of the ledger and for the console."""

from __future__ import annotations

import logging
import ssl

from steelyard.client.aio.admin import Admin
from steelyard.client.aio.pull import PullConsumer
from steelyard.driver.logs import logger


class HttpConsumer(PullConsumer):
    """A consumer that does not log where a program's own consumers do."""

    _logged_as = "http.consumer"


_log = logger(f"steelyard.{HttpConsumer._logged_as}")


def leave_faults_to_console(is_told: bool) -> None:
    """Have consumers log only errors if the console tells anyway which servers do not answer."""
    _log.setLevel(logging.ERROR if is_told else logging.NOTSET)


def consumer_of(admin: Admin, group: str, tls: ssl.SSLContext | None) -> PullConsumer:
    """Return a consumer that has the same access as an administrator. It is to be started."""
    config = admin.config
    return HttpConsumer(
        group,
        admin.nameservers,
        access_key=config.access_key,
        secret_key=config.secret_key,
        security_token=config.security_token,
        address_translation=config.address_translation,
        tls=tls,
    )
