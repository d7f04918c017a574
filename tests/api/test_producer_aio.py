"""What `steelyard.aio.Producer` can do beyond plain sends, against real brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest
from tests.api.conftest import Servers
from tests.waiting import until_async

from steelyard import (
    BrokerError,
    CallTimeoutError,
    ConsumeFrom,
    ConsumerConfig,
    Message,
    MessageError,
    MessageQueue,
    MessageView,
    SteelyardError,
    TransactionState,
    aio,
)
from steelyard.config import BrokerConfig
from steelyard.driver.loops import run

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@pytest.fixture(scope="module")
def curious(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Nameserver of brokers that ask after transactions almost at once."""
    config = BrokerConfig(transaction_timeout_ms=50, transaction_check_interval_ms=100)
    servers = Servers(tmp_path_factory.mktemp("curious"), config)
    yield servers.nameservers
    servers.stop()


def test_keys_and_selectors_choose_queues(nameservers: str) -> None:
    def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
        return queues[-1]

    async def main() -> None:
        async with aio.Producer("p", nameservers) as producer:
            results = [await producer.send("AioSharded", b"x", sharding_key="k") for _ in range(4)]
            assert len({result.queue for result in results}) == 1
            queues = await producer.queues("AioSharded")
            result = await producer.send("AioSharded", b"x", selector=last)
            assert result.queue == queues[-1]
            await producer.send_oneway("AioSharded", b"x", selector=last)
            with pytest.raises(MessageError, match="not both"):
                await producer.send("AioSharded", b"x", selector=last, queue=queues[0])

    run(main())


def test_transactions(nameservers: str) -> None:
    async def main() -> None:
        executed: list[Message] = []

        async def execute(message: Message) -> bool:
            await asyncio.sleep(0)
            executed.append(message)
            return message.body == b"yes"

        async with aio.Producer("aio-bank", nameservers) as producer:
            yes, no = await asyncio.gather(
                producer.send_in_transaction("AioBank", b"yes", execute=execute),
                producer.send_in_transaction("AioBank", b"no", execute=execute),
            )
            plain = await producer.send_in_transaction(
                "AioBank", b"plain function", execute=lambda message: TransactionState.COMMIT
            )
        states = [yes.state, no.state, plain.state]
        assert states == [
            TransactionState.COMMIT,
            TransactionState.ROLLBACK,
            TransactionState.COMMIT,
        ]
        ids = {message.body: message.properties["UNIQ_KEY"] for message in executed}
        assert ids == {b"yes": yes.send_result.message_id, b"no": no.send_result.message_id}
        seen: list[bytes] = []

        async def listener(message: MessageView) -> None:
            seen.append(message.body)

        consumer = aio.PushConsumer("aio-bank-c", nameservers, listener, config=FIRST)
        async with consumer.subscribe("AioBank"):
            await until_async(lambda: len(seen) == 2)
        assert sorted(seen) == [b"plain function", b"yes"]

    run(main())


def test_a_broker_asks_where_it_was_not_told(
    curious: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        checked: list[bytes] = []
        seen: list[bytes] = []

        async def check(message: MessageView) -> bool | None:
            await asyncio.sleep(0)
            checked.append(message.body)
            if message.body == b"badly":
                raise ValueError("no such table")
            return True

        async def execute(message: Message) -> None:
            raise ValueError("no such account")

        async def listener(message: MessageView) -> None:
            seen.append(message.body)

        async with (
            aio.Producer("aio-curious", curious, transaction_check=check) as producer,
            aio.PushConsumer("aio-curious-c", curious, listener, config=FIRST).subscribe("AioC"),
        ):
            await producer.send("AioC", b"known")
            for body in (b"done", b"badly"):
                result = await producer.send_in_transaction("AioC", body, execute=execute)
                assert result.state is TransactionState.UNKNOWN
            await until_async(lambda: len(seen) == 2 and checked.count(b"badly") > 1)
        assert sorted(seen) == [b"done", b"known"]

    with caplog.at_level(logging.ERROR, "steelyard"):
        run(main())
    words = " ".join(record.getMessage() for record in caplog.records)
    assert "execute failed for transaction" in words
    assert "transaction_check failed on" in words


def test_a_check_that_hangs_does_not_hold_up_the_stop(curious: str) -> None:
    async def main() -> None:
        asked = asyncio.Event()
        ended: list[str] = []

        async def check(message: MessageView) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(message.message_id)

        async with aio.Producer("hanging", curious, transaction_check=check) as producer:
            result = await producer.send_in_transaction(
                "Hanging", b"x", execute=lambda message: None
            )
            await asyncio.wait_for(asked.wait(), 20)
        assert set(ended) == {result.send_result.message_id}

    run(main())


def test_request_and_reply(nameservers: str) -> None:
    async def main() -> None:
        async with aio.Producer("aio-prices", nameservers) as producer:

            async def answer(request: MessageView) -> None:
                if request.body != b"hello?":
                    await producer.reply(request, b"3 euro for " + request.body)

            consumer = aio.PushConsumer("aio-service", nameservers, answer, config=FIRST)
            async with consumer.subscribe("AioPrices"):
                replies = await asyncio.gather(
                    *(
                        producer.request("AioPrices", b"%d" % n, timeout_ms=30_000)
                        for n in range(20)
                    )
                )
                assert [view.body for view in replies] == [b"3 euro for %d" % n for n in range(20)]
                with pytest.raises(CallTimeoutError, match="sent, but not replied to"):
                    await producer.request("AioPrices", b"hello?", timeout_ms=1_000)

    run(main())


def test_a_requester_that_is_gone_gets_no_reply(nameservers: str) -> None:
    async def main() -> None:
        requests: list[MessageView] = []

        async def keep(request: MessageView) -> None:
            requests.append(request)

        async with aio.Producer("gone", nameservers) as producer:
            await producer.queues("AioGone")
            with pytest.raises(CallTimeoutError):
                await producer.request("AioGone", b"?", timeout_ms=1_000)
        consumer = aio.PushConsumer("aio-late", nameservers, keep, config=FIRST)
        async with aio.Producer("r", nameservers) as producer, consumer.subscribe("AioGone"):
            await until_async(lambda: requests)
            with pytest.raises(BrokerError, match="channel"):
                await producer.reply(requests[0], b"!")

    run(main())


def test_a_dead_nameserver_is_logged_once_not_with_every_send(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with aio.Producer("p", "127.0.0.1:1") as producer:
            for _ in range(300):
                with pytest.raises(SteelyardError, match="cannot connect"):
                    await producer.send("AioDead", b"x")

    with caplog.at_level(logging.INFO, "steelyard"):
        run(main())
    # Once, and once more for every half minute that this takes on a busy machine.
    assert 1 <= len(caplog.records) <= 4
    assert "cannot connect to 127.0.0.1:1" in caplog.records[0].getMessage()


def test_a_dead_kafka_broker_is_not_logged_with_every_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with aio.KafkaConsumer(
            "AioDead", bootstrap_servers="127.0.0.1:1", group_id="g"
        ) as consumer:
            for _ in range(300):
                assert await consumer.poll(timeout_ms=1) == []

    with caplog.at_level(logging.INFO, "steelyard"):
        run(main())
    assert len(caplog.records) < 5, [record.getMessage() for record in caplog.records][:10]
