"""The asyncio administrator."""

from __future__ import annotations

from steelyard.client.administration.acl_users import AclUsers
from steelyard.client.administration.apache_requests import ApacheRequests
from steelyard.client.administration.consume_queues import ConsumeQueues
from steelyard.client.administration.doctor import Doctor
from steelyard.client.administration.resets import Resets
from steelyard.client.arguments import checked


@checked
class Admin(Resets, ConsumeQueues, Doctor, AclUsers, ApacheRequests):
    """Administers a cluster: mqadmin's commands as typed methods.

    >>> async with Admin("127.0.0.1:9876") as admin:  # doctest: +SKIP
    ...     for row in (await admin.consumer_progress("billing")).queues:
    ...         print(row.queue, row.lag, row.client_id)

    - `nameservers`: host:port, several separated by `;`, or a list; default: the variable
      NAMESRV_ADDR, or 127.0.0.1:9876.
    - `access_key`, `secret_key`, `security_token`: sign every request, for brokers with aclEnable.
    - `tls`: True encrypts connections and trusts the certificates of the system's authorities (or
      those in the file SSL_CERT_FILE); an ssl.SSLContext is used as configured.
    - `timeout_ms`: for each request.
    - `address_translation`: pairs "ADVERTISED=REACHED": connect to the latter, host:port, where a
      nameserver names the former, such as behind forwarded ports.

    It works with Apache RocketMQ 4.9 and 5.x as well as with Steelyard. Servers are asked one after
    the other; connections stay open until it is closed. Any number of tasks may share one. All
    methods raise RemotingError (unreachable, no reply), BrokerError (a broker's error, with its
    code), RouteError (no such topic, group or cluster), ConfigError (a wrong argument) or
    ClosedError.
    """
