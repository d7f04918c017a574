"""Where the brokers of a cluster of ours have their Kafka listeners, as its nameservers know."""

from __future__ import annotations

import msgspec

from steelyard.client.aio.admin import Admin
from steelyard.decoding import prepared
from steelyard.errors import SteelyardError
from steelyard.routes.brokers import BrokerEntry, brokers_namespace
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import KVTable
from steelyard.wire.remoting.codes import RequestCode


async def kafka_listeners(admin: Admin) -> dict[str, BrokerEntry]:
    """Return the brokers with a Kafka listener, by name. Raises as `Admin.clusters`."""
    found: dict[str, BrokerEntry] = {}
    for cluster in sorted((await admin.clusters()).cluster_addr_table):
        header = headers.KVConfigHeader(namespace=brokers_namespace(cluster))
        try:
            reply = await admin.ask_nameserver(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        except SteelyardError:
            continue  # there is none
        for name, text in fastjson.read(KVTable, reply.body).table.items():
            try:
                found[name] = msgspec.json.decode(text, type=prepared(BrokerEntry))
            except (msgspec.DecodeError, ValueError):
                continue
    return found
