"""Brokers: their status, settings and statistics.

Source: DefaultMQAdminExtImpl.java, which defines the receiver of each request.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.client.administration.asking import Asking
from steelyard.errors import BrokerError
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import BrokerStatsData, ConsumeStatsList, KVTable
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command


class ConsumeStatsInBrokerRequestHeader(headers.Header, frozen=True, kw_only=True):
    """317 GET_BROKER_CONSUME_STATS. `is_order`: only ordered topics, otherwise only the others.

    Our brokers ignore it: they have no topic's order to go by.
    """

    is_order: bool


class Brokers(Asking):
    """Methods for brokers."""

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return a broker's figures by name, as printed by clusterList and brokerStatus."""
        reply = await self.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
        return fastjson.read(KVTable, reply.body).table

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings by name."""
        reply = await self.ask(broker, RequestCode.GET_BROKER_CONFIG)
        return read_properties(reply.body.decode(errors="replace"))

    async def update_broker_config(self, broker: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker.

        Apache brokers only; ours read them at their start.
        """
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        await self.ask(broker, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())

    async def stats(self, broker: str, name: str, key: str) -> BrokerStatsData | None:
        """Return a broker's statistics over the last minute, hour and day; None if not counted."""
        header = headers.ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        try:
            reply = await self.ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                return None
            raise
        return fastjson.read(BrokerStatsData, reply.body)

    async def broker_consume_stats(
        self, broker: str, *, ordered: bool = False, timeout_ms: int | None = None
    ) -> ConsumeStatsList:
        """Return the offsets of all groups at the broker at this address.

        `ordered`: in topics that are ordered, instead of in all others; ours return all.
        """
        header = ConsumeStatsInBrokerRequestHeader(is_order=ordered)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        reply = await self.ask(broker, code, header, timeout_ms=timeout_ms)
        return fastjson.read(ConsumeStatsList, reply.body)

    async def clean_unused_topics(self, broker: str) -> None:
        """Make a broker forget the queues of topics that it has no settings of any more.

        Ours delete them together with the topic; they answer that it is done.
        """
        await self.ask(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Make nameservers withdraw write permission for a broker's topics.

        This is the first step to take a broker out of service.

        Returns the number of changed topics per nameserver.
        """
        header = headers.BrokerNameHeader(broker_name=broker_name)
        replies = await self.tell_nameservers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return self._counts(replies, "wipeTopicCount")

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        """Undo `wipe_write_permission`."""
        header = headers.BrokerNameHeader(broker_name=broker_name)
        replies = await self.tell_nameservers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return self._counts(replies, "addTopicCount")

    def _counts(self, replies: list[Command], name: str) -> dict[str, int]:
        counts = (int(reply.ext.get(name, "0")) for reply in replies)
        return dict(zip(self.nameservers, counts, strict=True))


def read_properties(text: str) -> dict[str, str]:
    """Parse a Java properties text as written by brokers: `name=value` lines and `#` comments."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, separator, value in pairs if separator}
