"""Producers of both kinds that gather concurrent sends: every result is where its message is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api.twins import Twins

from steelyard import SendResult, aio
from steelyard.driver.loops import run


@pytest.mark.parametrize("kind", ["blocking", "aio"])
def test_concurrent_sends_share_requests_and_each_result_is_right(
    nameservers: str, kind: str
) -> None:
    """What waits when the producer closes is sent, too."""
    twins = Twins(kind)

    async def main() -> None:
        topic = f"Gathered-{kind}"
        made = twins.make("Producer", topic, nameservers, auto_batch=True, batch_max_delay_ms=200)
        async with twins.wrap(made) as producer:
            futures: list[Any] = [
                await producer.send_async(topic, b"%d" % number) for number in range(200)
            ]
        waiting = [each if kind == "aio" else asyncio.wrap_future(each) for each in futures]
        results: list[SendResult] = await asyncio.gather(*waiting)
        assert len({(each.queue, each.queue_offset) for each in results}) == 200
        assert len({each.queue for each in results}) < 8  # in turn to all queues without batches
        async with aio.PullConsumer(topic, nameservers) as consumer:
            for number, result in enumerate(results):
                if number % 20 == 0:
                    pulled = await consumer.pull(result.queue, result.queue_offset, max_messages=1)
                    (message,) = pulled.messages
                    assert message.body == b"%d" % number
                    assert message.message_id == result.message_id
                    assert message.offset_message_id == result.offset_message_id

    run(main())
