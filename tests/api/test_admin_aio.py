"""The administrator from asyncio: the same methods, many at once."""

from __future__ import annotations

import asyncio

import pytest

from steelyard import aio
from steelyard.errors import ClosedError, ConnectError


def test_many_requests_at_once(nameservers: str) -> None:
    async def main() -> None:
        async with aio.Admin(nameservers) as admin, aio.Producer("g", nameservers) as producer:
            result = await producer.send("AdminAioTopic", b"x", keys="k")
            queries = (admin.messages_by_key("AdminAioTopic", "k") for _ in range(10))
            topics, clusters, found = await asyncio.gather(
                admin.topics(), admin.clusters(), asyncio.gather(*queries)
            )
            assert "AdminAioTopic" in topics
            assert list(clusters.cluster_addr_table) == ["DefaultCluster"]
            assert [[m.message_id for m in some] for some in found] == [[result.message_id]] * 10

    asyncio.run(main())


def test_nobody_there_and_not_running() -> None:
    async def main() -> None:
        admin = aio.Admin("127.0.0.1:1")
        with pytest.raises(ClosedError, match="async with"):
            await admin.topics()
        async with admin:
            with pytest.raises(ConnectError, match="cannot connect to 127"):
                await admin.topics()
        with pytest.raises(ClosedError, match="create a new one"):
            await admin.start()

    asyncio.run(main())
