"""A broker whose disk has no file descriptor for it: requests are refused, nothing is lost, and it goes on afterwards."""

from __future__ import annotations

import errno

import pytest
from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.driver import TOPIC
from tests.nodes.broker.kafka.conftest import KafkaRig, batch

from steelyard.errors import DescriptorsError
from steelyard.store.files import Files
from steelyard.store.memory import MemoryDisk, MemoryFile
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.data import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from steelyard.wire.remoting.codes import ResponseCode


class Exhausted(MemoryDisk):
    """While `is_exhausted`, whatever needs a descriptor fails as the kernel has it fail."""

    is_exhausted = False

    def _take(self) -> None:
        if self.is_exhausted:
            raise OSError(errno.EMFILE, "Too many open files")

    def open(self, path: str) -> MemoryFile:
        self._take()
        return super().open(path)

    def open_existing(self, path: str) -> MemoryFile | None:
        self._take()
        return super().open_existing(path)

    def list(self, folder: str) -> list[str]:
        self._take()
        return super().list(folder)

    def sync_folder(self, path: str) -> None:
        self._take()
        super().sync_folder(path)


def test_a_send_without_a_descriptor_is_refused_and_the_next_one_is_not() -> None:
    disk = Exhausted()
    rig = Rig(disk=disk)
    link = rig.connect()
    assert rig.send(link).code == ResponseCode.SUCCESS
    rig.store._files.close()
    disk.is_exhausted = True
    assert rig.send(link).code == ResponseCode.SYSTEM_ERROR
    rig.node.check()
    disk.is_exhausted = False
    assert rig.send(link).code == ResponseCode.SUCCESS
    log = rig.store.log(TOPIC, 0)
    assert log is not None
    assert log.max_offset == 2
    assert len([tell for tell in rig.told if "Too many open files" in tell.text]) == 1


def test_a_produce_without_a_descriptor_is_refused_and_the_next_one_is_not() -> None:
    disk = Exhausted()
    rig = KafkaRig(disk=disk)
    rig.create_topic()

    def produce() -> int:
        parts = [PartitionProduceData(0, batch(b"x"))]
        request = ProduceRequest(None, -1, 1000, [TopicProduceData(TOPIC, b"", parts)])
        answer = rig.ask(request, 9, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code

    assert produce() == ErrorCode.NONE
    rig.store._files.close()
    disk.is_exhausted = True
    assert produce() == ErrorCode.KAFKA_STORAGE_ERROR
    rig.node.check()
    disk.is_exhausted = False
    assert produce() == ErrorCode.NONE
    assert rig.log().max_offset == 2


def test_a_sync_without_a_descriptor_says_so_and_loses_nothing() -> None:
    disk = Exhausted()
    files = Files(disk)
    files.create("folder/log")
    files.write("folder/log", 0, b"data")
    taken = files.take()
    disk.is_exhausted = True
    with pytest.raises(DescriptorsError, match="cannot sync folder/log: Too many open files"):
        taken.sync()
    disk.is_exhausted = False
    taken.sync()
    assert disk.files["folder/log"].synced_bytes == 4
