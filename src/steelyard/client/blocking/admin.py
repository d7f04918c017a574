"""The blocking administrator: `aio.Admin`, waited for on the background loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from steelyard.client.administration.asking import TIMEOUT_MS
from steelyard.client.aio.admin import Admin as AsyncAdmin
from steelyard.driver.loops import Background, background
from steelyard.errors import ClosedError

if TYPE_CHECKING:
    import ssl

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    """The method with the same arguments and text that waits for the coroutine."""

    @wraps(method)
    def call(admin: Admin, /, *args: P.args, **options: P.kwargs) -> R:
        return admin._wait(method(admin._admin, *args, **options))

    return call


class Admin:
    """Administers a cluster: mqadmin's commands as typed methods.

    >>> with Admin("127.0.0.1:9876") as admin:  # doctest: +SKIP
    ...     for row in admin.consumer_progress("billing").queues:
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
    the other; connections stay open until it is closed. Any number of threads may share one. All
    methods raise RemotingError (unreachable, no reply), BrokerError (a broker's error, with its
    code), RouteError (no such topic, group or cluster), ConfigError (a wrong argument) or
    ClosedError.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        access_key: str = "",
        secret_key: str = "",
        security_token: str = "",
        tls: bool | ssl.SSLContext | None = None,
        timeout_ms: int = TIMEOUT_MS,
        address_translation: Sequence[str] = (),
    ) -> None:
        self._admin = AsyncAdmin(
            nameservers,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            tls=tls,
            timeout_ms=timeout_ms,
            address_translation=address_translation,
        )
        self._loop: Background | None = None

    def start(self) -> Self:
        """Start the administrator; `with` calls this."""
        self._loop = self._loop or background()
        self._wait(self._admin.start())
        return self

    def close(self) -> None:
        """Close all connections; `with` calls this. May be called again."""
        if self._loop is not None and not self._loop.forked:
            self._wait(self._admin.close())

    stop = close

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, main: Coroutine[Any, Any, R]) -> R:
        wrong = ""
        if self._loop is None:
            wrong = "the admin is not running; use `with` or start()"
        elif self._loop.forked:
            wrong = "made in another process: a client does not survive a fork"
        elif threading.current_thread() is self._loop.thread:
            wrong = "called from the event loop's thread; use steelyard.aio there"
        if self._loop is None or wrong:
            main.close()
            raise ClosedError(wrong)
        return self._loop.wait(main)

    # -- requests ----------------------------------------------------------------------------------

    ask = _blocking(AsyncAdmin.ask)
    ask_nameserver = _blocking(AsyncAdmin.ask_nameserver)
    tell_nameservers = _blocking(AsyncAdmin.tell_nameservers)

    # -- topics ------------------------------------------------------------------------------------

    route = _blocking(AsyncAdmin.route)
    topics = _blocking(AsyncAdmin.topics)
    topics_of = _blocking(AsyncAdmin.topics_of)
    system_topics = _blocking(AsyncAdmin.system_topics)
    system_topics_of = _blocking(AsyncAdmin.system_topics_of)
    queues = _blocking(AsyncAdmin.queues)
    topic_stats = _blocking(AsyncAdmin.topic_stats)
    store_times = _blocking(AsyncAdmin.store_times)
    groups_of = _blocking(AsyncAdmin.groups_of)
    topic_configs = _blocking(AsyncAdmin.topic_configs)
    create_topic = _blocking(AsyncAdmin.create_topic)
    update_topic = _blocking(AsyncAdmin.update_topic)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    setting = _blocking(AsyncAdmin.setting)
    put_setting = _blocking(AsyncAdmin.put_setting)
    delete_setting = _blocking(AsyncAdmin.delete_setting)
    order_conf = _blocking(AsyncAdmin.order_conf)
    put_order_conf = _blocking(AsyncAdmin.put_order_conf)
    delete_order_conf = _blocking(AsyncAdmin.delete_order_conf)

    # -- groups ------------------------------------------------------------------------------------

    groups = _blocking(AsyncAdmin.groups)
    group_configs = _blocking(AsyncAdmin.group_configs)
    group_config = _blocking(AsyncAdmin.group_config)
    update_group = _blocking(AsyncAdmin.update_group)
    delete_group = _blocking(AsyncAdmin.delete_group)
    set_consume_mode = _blocking(AsyncAdmin.set_consume_mode)
    members = _blocking(AsyncAdmin.members)
    running_info = _blocking(AsyncAdmin.running_info)
    running_infos = _blocking(AsyncAdmin.running_infos)
    member_offsets = _blocking(AsyncAdmin.member_offsets)
    producers = _blocking(AsyncAdmin.producers)
    consumer_progress = _blocking(AsyncAdmin.consumer_progress)
    consume_stats = _blocking(AsyncAdmin.consume_stats)
    time_spans = _blocking(AsyncAdmin.time_spans)
    oldest_waits = _blocking(AsyncAdmin.oldest_waits)
    reset_offset = _blocking(AsyncAdmin.reset_offset)
    clone_offsets = _blocking(AsyncAdmin.clone_offsets)
    diagnose = _blocking(AsyncAdmin.diagnose)
    kafka_groups = _blocking(AsyncAdmin.kafka_groups)
    kafka_group = _blocking(AsyncAdmin.kafka_group)

    # -- messages ----------------------------------------------------------------------------------

    message = _blocking(AsyncAdmin.message)
    message_at = _blocking(AsyncAdmin.message_at)
    messages_by_key = _blocking(AsyncAdmin.messages_by_key)
    messages_by_unique_key = _blocking(AsyncAdmin.messages_by_unique_key)
    track = _blocking(AsyncAdmin.track)
    consume_directly = _blocking(AsyncAdmin.consume_directly)
    consume_queue = _blocking(AsyncAdmin.consume_queue)

    # -- brokers -----------------------------------------------------------------------------------

    clusters = _blocking(AsyncAdmin.clusters)
    masters = _blocking(AsyncAdmin.masters)
    runtime = _blocking(AsyncAdmin.runtime)
    broker_config = _blocking(AsyncAdmin.broker_config)
    update_broker_config = _blocking(AsyncAdmin.update_broker_config)
    stats = _blocking(AsyncAdmin.stats)
    broker_consume_stats = _blocking(AsyncAdmin.broker_consume_stats)
    wipe_write_permission = _blocking(AsyncAdmin.wipe_write_permission)
    add_write_permission = _blocking(AsyncAdmin.add_write_permission)
    clean_unused_topics = _blocking(AsyncAdmin.clean_unused_topics)
    clean_expired_consume_queues = _blocking(AsyncAdmin.clean_expired_consume_queues)
    delete_expired_commit_log = _blocking(AsyncAdmin.delete_expired_commit_log)

    # -- users of RocketMQ 5.x ---------------------------------------------------------------------

    create_user = _blocking(AsyncAdmin.create_user)
    update_user = _blocking(AsyncAdmin.update_user)
    delete_user = _blocking(AsyncAdmin.delete_user)
    users = _blocking(AsyncAdmin.users)
    update_acl = _blocking(AsyncAdmin.update_acl)
    delete_acl = _blocking(AsyncAdmin.delete_acl)
