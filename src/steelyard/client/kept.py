"""The file of a broadcasting consumer's offsets, in the format of Java clients.

`~/.rocketmq_offsets/<client id>/<group>/offsets.json`, with the previous content in
`offsets.json.bak`:

    {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:42}}

New content is written to another file that then replaces it, so that a crash leaves one of the two
intact. The client id is part of the path: a consumer that gets a different one at each start would
start over each time. Therefore a broadcasting consumer is `ip@DEFAULT` by default, and two members
of a group on one machine need ids.
Source: client/consumer/store/LocalFileOffsetStore.java, common/MixAll.java `string2File`.
"""

from __future__ import annotations

import os
from pathlib import Path

from steelyard.config import ConsumerConfig
from steelyard.driver.logs import logger
from steelyard.errors import ConfigError, ProtocolError, StorageError
from steelyard.nodes.consumer.remoting.offsets import read_kept
from steelyard.types import MessageModel

DEFAULT_FOLDER = "~/.rocketmq_offsets"


class KeptFile:
    """An offsets file; see the module docstring."""

    def __init__(self, folder: str, client_id: str, group: str) -> None:
        for part in (client_id, group):
            if part in ("", ".", "..") or any(mark in part for mark in "/\\\0"):
                raise ConfigError(
                    f"{part!r} is part of the path of the offsets file: it cannot contain / or \\"
                )
        home = Path(folder or DEFAULT_FOLDER).expanduser()
        self.path = home / client_id / group / "offsets.json"
        self.backup = self.path.with_name("offsets.json.bak")
        self._log = logger("steelyard.consumer")

    def load(self) -> bytes:
        """Return the last content, or the previous one if that is damaged or missing; else empty.

        Raises StorageError if neither can be read, because starting over silently would skip
        messages.
        """
        damage: list[str] = []
        for path in (self.path, self.backup):
            try:
                data = path.read_bytes()
                read_kept(data)
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                damage.append(f"{path}: {error}")
                continue
            if data:
                if damage:
                    self._log.warning("using the offsets in %s, because %s", path, damage[0])
                return data
        if damage:
            raise StorageError(
                "the offsets cannot be read; repair the file, or delete it to start over:"
                f" {'; '.join(damage)}"
            )
        return b""

    def write(self, data: bytes) -> None:
        """Replace the content. An error of the disk is logged; the next change is written."""
        fresh = self.path.with_name("offsets.json.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data)
            if self.path.exists():
                os.replace(self.path, self.backup)
            os.replace(fresh, self.path)
        except OSError as error:
            self._log.warning("offsets could not be written to %s: %s", self.path, error)


def kept_file(config: ConsumerConfig) -> KeptFile | None:
    """Return a broadcasting consumer's file; None if offsets are at the brokers.

    Raises ConfigError.
    """
    if config.message_model is not MessageModel.BROADCASTING:
        return None
    return KeptFile(config.offsets_folder, config.client_id, config.group)
