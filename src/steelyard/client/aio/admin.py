"""The asyncio administrator."""

from __future__ import annotations

from steelyard.client.administration.doctor import Doctor
from steelyard.client.administration.messages import Messages
from steelyard.client.administration.resets import Resets
from steelyard.client.arguments import checked


@checked
class Admin(Resets, Messages, Doctor):
    """Looks after a cluster, from asyncio: everything that mqadmin's commands ask and tell, as typed methods.

    >>> async with Admin("127.0.0.1:9876") as admin:                   # doctest: +SKIP
    ...     for row in (await admin.consumer_progress("billing")).queues:
    ...         print(row.queue, row.lag, row.client_id)

    `nameservers`: host:port, several separated by `;`, or None for the variable NAMESRV_ADDR. `access_key`,
    `secret_key`, `security_token`: sign every request, for brokers with aclEnable. `tls`: None, True or an
    ssl.SSLContext (see `tls_context`). `timeout_ms`: for each request.

    It works with Apache RocketMQ 4.9 and 5.x as with Steelyard. Topics, groups and brokers are asked for one after the
    other; connections stay open until it is stopped. All methods raise RemotingError (nobody there, no reply),
    BrokerError (a broker's error, with its code), RouteError (no such topic, group or cluster), ConfigError (a wrong
    argument) or ClosedError.
    """
