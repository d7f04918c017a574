"""The levels of the cluster's features, which every broker has on its disk.

An operator changes them (UpdateFeatures, `operations/features`); without that they are at their
latest. They go from broker to broker with the settings that are changed at run time
(`config_spreading`).

transaction.version: 1 writes flexible records of transactions, 2 is KIP-890 for the clients that
know it. group.version 1 is the consumer groups of KIP-848, share.version 1 the share groups of
KIP-932, streams.version 1 the streams groups of KIP-1071; these cannot be turned off.
Source: server-common/server/common/GroupVersion.java, ShareVersion.java, StreamsVersion.java,
TransactionVersion.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.nodes.broker.dynamic_configs import FEATURES, DynamicConfig, DynamicConfigs

GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"

SUPPORTED: Mapping[str, tuple[int, int]] = {
    GROUP_VERSION: (1, 1),
    SHARE_VERSION: (1, 1),
    STREAMS_VERSION: (1, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""The lowest and the highest level of each feature."""

_RESOURCE = ""


class FeatureLevels:
    """The levels that are in use; see the module docstring."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self._configs = configs

    @property
    def epoch(self) -> int:
        """Return a number that grows whenever a level changes."""
        found = self._configs.get(f"{FEATURES} {_RESOURCE}")
        return 0 if found is None else found.version

    def level(self, feature: str) -> int:
        """Return the level of a supported feature."""
        lowest, highest = SUPPORTED[feature]
        stored = self._configs.of(FEATURES, _RESOURCE).get(feature, "")
        return min(max(lowest, int(stored)), highest) if stored.isdecimal() else highest

    def levels(self) -> dict[str, int]:
        """Return the levels of all features."""
        return {feature: self.level(feature) for feature in SUPPORTED}

    @property
    def transaction_version(self) -> int:
        return self.level(TRANSACTION_VERSION)

    def changed(self, levels: Mapping[str, int]) -> DynamicConfig:
        """Return the record with these levels in place of the present ones, not stored yet."""
        texts = {name: str(level) for name, level in {**self.levels(), **levels}.items()}
        return self._configs.changed(FEATURES, _RESOURCE, texts)
