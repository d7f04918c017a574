"""The file of a broadcasting consumer's offsets: two generations, and what happens when one is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from steelyard.client.kept import KeptFile, kept_file
from steelyard.client.settings import client_config
from steelyard.config import ConsumerConfig
from steelyard.driver.identity import local_ip
from steelyard.errors import ConfigError, StorageError
from steelyard.types import MessageModel

ONE = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:1}}'
TWO = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:2}}'

GIVEN = {"group": "g", "nameservers": "ns:9876"}


@pytest.fixture
def file(tmp_path: Path) -> KeptFile:
    return KeptFile(str(tmp_path), "10.0.0.1@DEFAULT", "g")


def test_the_path_is_that_of_java_clients(file: KeptFile, tmp_path: Path) -> None:
    assert file.path == tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json"
    assert KeptFile("", "c", "g").path == Path.home() / ".rocketmq_offsets/c/g/offsets.json"


def test_what_was_written_last_is_loaded(file: KeptFile) -> None:
    assert file.load() == b""
    file.write(ONE)
    assert file.load() == ONE
    file.write(TWO)
    assert file.load() == TWO
    assert file.backup.read_bytes() == ONE
    assert sorted(path.name for path in file.path.parent.iterdir()) == [
        "offsets.json",
        "offsets.json.bak",
    ]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":3}', b"\xff\xfe", None])
def test_a_damaged_file_is_replaced_by_the_one_before(file: KeptFile, damage: bytes | None) -> None:
    file.write(ONE)
    file.write(TWO)
    if damage is None:
        file.path.unlink()
    else:
        file.path.write_bytes(damage)
    assert file.load() == ONE


def test_two_damaged_files_are_not_taken_for_none(file: KeptFile) -> None:
    file.write(ONE)
    file.write(TWO)
    file.path.write_bytes(b"{")
    file.backup.write_bytes(b"[")
    with pytest.raises(StorageError, match=r"offsets\.json:.*offsets\.json\.bak:"):
        file.load()


def test_a_disk_that_refuses_is_told_and_tried_again(
    file: KeptFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "10.0.0.1@DEFAULT").write_text("in the way")
    with caplog.at_level(logging.WARNING, "steelyard"):
        file.write(ONE)
    assert ["could not be written" in record.message for record in caplog.records] == [True]
    (tmp_path / "10.0.0.1@DEFAULT").unlink()
    file.write(ONE)
    assert file.load() == ONE


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b"])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(ConfigError, match="part of the path"):
        KeptFile("", name, "g")
    with pytest.raises(ConfigError, match="part of the path"):
        KeptFile("", "c", name)


def test_only_broadcasting_consumers_have_one_and_a_client_id_that_stays() -> None:
    clustering = client_config(ConsumerConfig, None, GIVEN)
    assert kept_file(clustering) is None
    assert clustering.client_id != client_config(ConsumerConfig, None, GIVEN).client_id
    template = ConsumerConfig(message_model=MessageModel.BROADCASTING)
    config = client_config(ConsumerConfig, template, GIVEN)
    assert config.client_id == f"{local_ip()}@DEFAULT"
    assert kept_file(config) is not None
    assert (
        client_config(ConsumerConfig, template, {**GIVEN, "client_id": "mine"}).client_id == "mine"
    )
