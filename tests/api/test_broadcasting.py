"""Broadcasting consumers of both kinds: every member reads everything, and finds its own offsets again."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.api.twins import Twins
from tests.waiting import PATIENCE_S, until_async

from steelyard import (
    ConfigError,
    ConsumeFrom,
    ConsumerConfig,
    LitePullConfig,
    MessageModel,
    MessageView,
    StorageError,
    aio,
)
from steelyard.driver.identity import local_ip
from steelyard.driver.loops import run
from steelyard.nodes.consumer.remoting.offsets import read_kept


@pytest.fixture(params=["blocking", "aio"])
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


def push_config(folder: Path, **more: Any) -> ConsumerConfig:
    return ConsumerConfig(
        message_model=MessageModel.BROADCASTING,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        offsets_folder=str(folder),
        route_poll_ms=500,  # a new topic comes to its two brokers one after the other
        **more,
    )


async def fill(nameservers: str, topic: str, numbers: range) -> None:
    async with aio.Producer("p", nameservers) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in numbers))


def listener(twins: Twins, seen: list[int]) -> Callable[[MessageView], object]:
    """Notes the number of each message."""

    def note(message: MessageView) -> None:
        seen.append(int(message.body))

    async def note_later(message: MessageView) -> None:
        note(message)

    return note_later if twins.kind == "aio" else note


def test_every_member_gets_everything_and_goes_on_where_it_was(
    nameservers: str, twins: Twins, tmp_path: Path
) -> None:
    async def main() -> None:
        topic = f"Broad-{twins.kind}"
        await fill(nameservers, topic, range(50))

        def member(client_id: str, seen: list[int]) -> Any:
            client = twins.make(
                "PushConsumer",
                topic,
                nameservers,
                listener(twins, seen),
                client_id=client_id,
                config=push_config(tmp_path),
            )
            return twins.wrap(client.subscribe(topic))

        one: list[int] = []
        two: list[int] = []
        async with member("one", one), member("two", two):
            await until_async(lambda: len(one) == len(two) == 50)
        assert sorted(one) == sorted(two) == list(range(50))
        path = tmp_path / "one" / topic / "offsets.json"
        assert sum(read_kept(path.read_bytes()).values()) == 50
        await fill(nameservers, topic, range(50, 60))
        again: list[int] = []
        async with member("one", again):
            await until_async(lambda: len(again) == 10)
        assert sorted(again) == list(range(50, 60))

    run(main())


def test_a_lite_pull_consumer_broadcasts_too(
    nameservers: str, twins: Twins, tmp_path: Path
) -> None:
    async def main() -> None:
        topic = f"BroadLite-{twins.kind}"
        await fill(nameservers, topic, range(20))
        config = LitePullConfig(
            message_model=MessageModel.BROADCASTING,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            offsets_folder=str(tmp_path),
            route_poll_ms=500,
        )

        def member() -> Any:
            client = twins.make("LitePullConsumer", topic, nameservers, config=config)
            assert client.config.client_id == f"{local_ip()}@DEFAULT"
            return twins.wrap(client.subscribe(topic))

        async def read(consumer: Any, count: int) -> list[int]:
            found: list[int] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < count:
                    found += [int(message.body) for message in await consumer.poll(500)]
            return found

        async with member() as consumer:
            assert sorted(await read(consumer, 20)) == list(range(20))
            await consumer.commit()
            offsets = read_kept(
                (tmp_path / f"{local_ip()}@DEFAULT" / topic / "offsets.json").read_bytes()
            )
            assert sum(offsets.values()) == 20
            for queue, offset in offsets.items():
                assert await consumer.committed(queue) == offset
        await fill(nameservers, topic, range(20, 24))
        async with member() as consumer:
            assert sorted(await read(consumer, 4)) == list(range(20, 24))

    run(main())


def test_a_failed_message_is_dropped_with_a_warning(
    nameservers: str, twins: Twins, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        topic = f"BroadFail-{twins.kind}"
        await fill(nameservers, topic, range(3))
        seen: list[int] = []
        note = listener(twins, seen)

        def fail(message: MessageView) -> bool:
            note(message)
            return message.body != b"1"

        async def fail_later(message: MessageView) -> bool:
            seen.append(int(message.body))
            return message.body != b"1"

        client = twins.make(
            "PushConsumer",
            topic,
            nameservers,
            fail_later if twins.kind == "aio" else fail,
            config=push_config(tmp_path),
        )
        async with twins.wrap(client.subscribe(topic)):
            await until_async(lambda: len(seen) == 3)
            await until_async(lambda: [r for r in caplog.records if "is dropped" in r.message])
        assert sorted(seen) == [0, 1, 2]

    with caplog.at_level(logging.WARNING, "steelyard"):
        run(main())


def test_damaged_offsets(nameservers: str, twins: Twins, tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "c" / "g"
        folder.mkdir(parents=True)
        (folder / "offsets.json").write_text("{broken")

        def member(client_id: str = "c") -> Any:
            client = twins.make(
                "PushConsumer",
                "g",
                nameservers,
                print,
                client_id=client_id,
                config=push_config(tmp_path),
            )
            return twins.wrap(client.subscribe("BroadDamaged"))

        with pytest.raises(StorageError, match=r"offsets\.json"):
            await member().start()
        with pytest.raises(ConfigError, match="part of the path"):
            await member("../c").start()
        (folder / "offsets.json.bak").write_text(json.dumps({"offsetTable": {}}))
        async with member():
            pass

    run(main())
