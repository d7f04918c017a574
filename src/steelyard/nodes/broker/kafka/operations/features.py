"""57 UpdateFeatures (versions 0-2), and the features that ApiVersions announces.

FEATURES has the only level of each that these brokers know, so that it cannot be changed: an update
to another level is refused as by a controller that does not support it.
Source: metadata/controller/FeatureControlManager.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from steelyard.nodes.broker.kafka.cluster.cluster import Cluster
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.versions import FEATURES
from steelyard.nodes.seam import Effect
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.controllers import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from steelyard.wire.kafka.schema import ApiMessage

UPGRADE_TYPES = (1, 2, 3)
"""Upgrade, safe and unsafe downgrade. Source: FeatureUpdate.UpgradeType."""
_FAILED = "The update failed for all features since the following feature had an error:"


class FeatureUpdates:
    """The handler of UpdateFeatures."""

    def __init__(self, cluster: Cluster, features: Mapping[str, int] = FEATURES) -> None:
        self._cluster = cluster
        self._features = features

    @serves(UpdateFeaturesRequest)
    def update_features(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        updates = call.read(UpdateFeaturesRequest).feature_updates
        for update in updates:
            fault = self._fault(update)
            if fault:
                text = (
                    f"{_FAILED} Invalid update version {update.max_version_level} for feature"
                    f" {update.feature}. {fault}"
                )
                return UpdateFeaturesResponse(0, ErrorCode.INVALID_UPDATE_VERSION, text)
        results = [UpdatableFeatureResult(each.feature, 0, "NONE") for each in updates]
        return UpdateFeaturesResponse(error_message=None, results=results)

    def _fault(self, update: FeatureUpdateKey) -> str:
        """Return why a feature cannot have a level, in Kafka's words; empty if it has it."""
        known = self._features.get(update.feature)
        controller = f"Local controller {self._cluster.controller.node_id}"
        if update.upgrade_type not in UPGRADE_TYPES:
            return "The controller does not support the given upgrade type."
        if update.max_version_level < 0:
            return "A feature version cannot be less than 0."
        if known is None:
            return f"{controller} does not support this feature."
        if update.max_version_level != known:
            return f"{controller} only supports versions {known}-{known}"
        return ""
