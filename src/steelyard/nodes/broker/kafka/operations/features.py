"""57 UpdateFeatures (versions 0-2): changes the levels of the cluster's features.

Only the controller changes them, and then all brokers have them (`requests/feature_levels`). One
update that is refused has all refused.
Source: metadata/controller/FeatureControlManager.java.
"""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.errors import StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.dynamic_configs import DynamicConfigs
from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.cluster.config_spreading import ConfigSpreading
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.feature_levels import SUPPORTED, FeatureLevels
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.controllers import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Source: FeatureUpdate.UpgradeType."""
_FAILED = "The update failed for all features since the following feature had an error:"


class FeatureUpdates:
    """The handler of UpdateFeatures."""

    def __init__(
        self,
        cluster: Cluster,
        levels: FeatureLevels,
        configs: DynamicConfigs,
        spreading: ConfigSpreading,
        durability: Durability,
    ) -> None:
        self._cluster = cluster
        self._levels = levels
        self._configs = configs
        self._spreading = spreading
        self._durability = durability

    @serves(UpdateFeaturesRequest)
    def update_features(
        self, call: OpenRequest, now: int, effects: list[Effect]
    ) -> ApiMessage | None:
        message = call.read(UpdateFeaturesRequest)
        updates = message.feature_updates
        for update in updates:
            fault = self._fault(update, call.version)
            if fault:
                text = (
                    f"{_FAILED} Invalid update version {update.max_version_level} for feature"
                    f" {update.feature}. {fault}"
                )
                return UpdateFeaturesResponse(0, ErrorCode.INVALID_UPDATE_VERSION, text)
        results = [UpdatableFeatureResult(each.feature, 0, "NONE") for each in updates]
        answer = UpdateFeaturesResponse(error_message=None, results=results)
        if message.validate_only or not updates:
            return answer
        return self._store(updates, answer, call, now, effects)

    def _store(
        self,
        updates: Sequence[FeatureUpdateKey],
        answer: UpdateFeaturesResponse,
        call: OpenRequest,
        now: int,
        effects: list[Effect],
    ) -> ApiMessage | None:
        """Store the new levels, and answer when all live brokers have them."""
        levels = {each.feature: each.max_version_level for each in updates}
        try:
            stored = self._configs.merge([self._levels.changed(levels)])
        except StorageError as error:
            return UpdateFeaturesResponse(0, ErrorCode.KAFKA_STORAGE_ERROR, str(error))

        def then(now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, answer, effects)

        self._spreading.publish(stored, then, now, effects)
        return None

    def _fault(self, update: FeatureUpdateKey, version: int) -> str:
        """Return why a feature cannot get a level, in Kafka's words; empty if it can."""
        kind, level = update.upgrade_type, update.max_version_level
        if version == 0:
            kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        controller = f"Local controller {self._cluster.controller.node_id}"
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if update.feature not in SUPPORTED:
            return f"{controller} does not support this feature."
        lowest, highest = SUPPORTED[update.feature]
        if not lowest <= level <= highest:
            return f"{controller} only supports versions {lowest}-{highest}"
        known = self._levels.level(update.feature)
        if level < known and kind == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to"
                " either safe or unsafe downgrade."
            )
        if level > known and kind != UPGRADE:
            return "Can't downgrade to a newer version."
        return ""
