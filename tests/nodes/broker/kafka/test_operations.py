"""38 to 41, 55, 57, 64, 71 and 72: what is asked about the cluster as a whole; and the features of ApiVersions."""

from __future__ import annotations

import pytest
from tests.nodes.broker.kafka.brokers import Brokers
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.nodes.broker.kafka.operations.telemetry import TELEMETRY_BYTES_MAX
from steelyard.nodes.broker.kafka.requests.versions import UNANNOUNCED
from steelyard.nodes.seam import KAFKA, Opened
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from steelyard.wire.kafka.messages.controllers import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FeatureUpdateKey,
    QuorumPartition,
    QuorumTopic,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from steelyard.wire.kafka.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from steelyard.wire.kafka.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    TokenPrincipal,
)
from steelyard.wire.kafka.schema import NO_ID

E = ErrorCode

# -- features ------------------------------------------------------------------------------------------


def supported(answer: ApiVersionsResponse) -> dict[str, tuple[int, int]]:
    return {each.name: (each.min_version, each.max_version) for each in answer.supported_features}


def test_features_are_announced(rig: KafkaRig) -> None:
    answer = rig.ask(ApiVersionsRequest("test", "1"), 4, ApiVersionsResponse)
    found = {
        each.name: (each.min_version_level, each.max_version_level)
        for each in answer.finalized_features
    }
    assert found == {
        "group.version": (1, 1),
        "share.version": (1, 1),
        "streams.version": (1, 1),
        "transaction.version": (2, 2),
    }
    assert answer.finalized_features_epoch == 0
    assert supported(answer) == {
        "group.version": (1, 1),
        "share.version": (1, 1),
        "streams.version": (1, 1),
        "transaction.version": (0, 2),
    }
    older = rig.ask(ApiVersionsRequest("test", "1"), 3, ApiVersionsResponse)
    assert supported(older) == {
        "group.version": (1, 1),
        "share.version": (1, 1),
        "streams.version": (1, 1),
    }
    assert not {each.api_key for each in answer.api_keys} & set(UNANNOUNCED)


def updated(rig: KafkaRig, *updates: FeatureUpdateKey, version: int = 2) -> tuple[int, str | None]:
    message = UpdateFeaturesRequest(60_000, updates, version >= 1)
    answer = rig.ask(message, version, UpdateFeaturesResponse)
    assert len(answer.results) == (0 if answer.error_code else len(updates))
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_has_the_level_that_it_has(rig: KafkaRig, version: int) -> None:
    assert updated(rig, version=version) == (0, None)
    assert updated(rig, FeatureUpdateKey("group.version", 1), version=version) == (0, None)


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (
            FeatureUpdateKey("group.version", 2),
            "Invalid update version 2 for feature group.version. Local controller 1 only supports",
        ),
        (FeatureUpdateKey("group.version", 0, False, 3), "only supports versions 1-1"),
        (FeatureUpdateKey("transaction.version", 3), "only supports versions 0-2"),
        (FeatureUpdateKey("transaction.version", 1), "Can't downgrade the version of this feature"),
        (FeatureUpdateKey("nope", 1), "Local controller 1 does not support this feature."),
        (FeatureUpdateKey("metadata.version", 30), "does not support this feature."),
        (FeatureUpdateKey("group.version", -1), "A feature version cannot be less than 0."),
        (FeatureUpdateKey("group.version", 1, False, 9), "does not support the given upgrade type"),
    ],
)
def test_other_levels_of_features_are_refused(
    rig: KafkaRig, update: FeatureUpdateKey, text: str
) -> None:
    """One that is refused has all refused, as in Apache Kafka."""
    code, told = updated(rig, FeatureUpdateKey("group.version", 1), update)
    assert code == E.INVALID_UPDATE_VERSION
    assert told is not None
    assert told.startswith(
        "The update failed for all features since the following feature had an error"
    )
    assert text in told


def level(brokers: Brokers, name: str) -> tuple[int, int]:
    """The level of transaction.version in use, and the epoch of all levels."""
    answer = brokers.ask(name, ApiVersionsRequest("test", "1"), 4, ApiVersionsResponse)
    found = {each.name: each.max_version_level for each in answer.finalized_features}
    return found.get("transaction.version", 0), answer.finalized_features_epoch


def test_every_broker_has_the_level_that_was_set() -> None:
    """Asked at a broker that is not the controller; kept over restarts, and known to who was away."""
    brokers = Brokers("broker-a", "broker-b")
    names = ("broker-a", "broker-b")

    def update(to: int, kind: int, *, dry: bool = False, version: int = 2) -> ErrorCode:
        key = FeatureUpdateKey("transaction.version", to, version == 0 and kind > 1, kind)
        message = UpdateFeaturesRequest(60_000, [key], dry)
        answer = brokers.ask("broker-b", message, version, UpdateFeaturesResponse)
        return ErrorCode(answer.error_code)

    assert update(1, 2, dry=True) == E.NONE
    assert [level(brokers, name) for name in names] == [(2, 0), (2, 0)]
    assert update(1, 2) == E.NONE
    assert [level(brokers, name) for name in names] == [(1, 1), (1, 1)]
    assert update(2, 3) == E.INVALID_UPDATE_VERSION  # no downgrade
    brokers.kill("broker-b")
    brokers.start("broker-b")
    brokers.advance(5_000)
    assert level(brokers, "broker-b") == (1, 1)
    assert update(0, 1, version=0) == E.INVALID_UPDATE_VERSION
    assert update(0, 2, version=0) == E.NONE
    assert [level(brokers, name) for name in names] == [(0, 2), (0, 2)]
    assert update(2, 1) == E.NONE
    assert [level(brokers, name) for name in names] == [(2, 3), (2, 3)]
    brokers.kill("broker-b")
    brokers.ask(
        "broker-a",
        UpdateFeaturesRequest(60_000, [FeatureUpdateKey("transaction.version", 1, False, 3)]),
        2,
        UpdateFeaturesResponse,
    )
    brokers.start("broker-b")
    brokers.advance(20_000)
    assert level(brokers, "broker-b") == (1, 4)


# -- the quorum ----------------------------------------------------------------------------------------


def test_all_brokers_vote_and_the_controller_leads() -> None:
    brokers = Brokers("broker-a", "broker-b")
    asked = DescribeQuorumRequest([QuorumTopic("__cluster_metadata", [QuorumPartition(0)])])
    for name in ("broker-a", "broker-b"):
        answer = brokers.ask(name, asked, 2, DescribeQuorumResponse)
        (partition,) = answer.topics[0].partitions
        assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
        assert [voter.replica_id for voter in partition.current_voters] == [1, 2]
        ages = [voter.last_caught_up_timestamp for voter in partition.current_voters]
        assert ages == [brokers.now] * 2
        listeners = [(node.node_id, node.listeners[0].port) for node in answer.nodes]
        assert listeners == [(1, 9092), (2, 9092)]
    brokers.kill("broker-a")
    brokers.advance(60_000)
    answer = brokers.ask("broker-b", asked, 2, DescribeQuorumResponse)
    (partition,) = answer.topics[0].partitions
    assert partition.leader_id == 2
    ages = [voter.last_caught_up_timestamp for voter in partition.current_voters]
    assert ages == [-1, brokers.now]
    assert [node.node_id for node in answer.nodes] == [2]


@pytest.mark.parametrize("named", [("t", 0), ("__cluster_metadata", 1)])
def test_other_topics_have_no_quorum(rig: KafkaRig, named: tuple[str, int]) -> None:
    asked = DescribeQuorumRequest([QuorumTopic(named[0], [QuorumPartition(named[1])])])
    (topic,) = rig.ask(asked, 2, DescribeQuorumResponse).topics
    assert topic.partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


def test_no_broker_is_unregistered(rig: KafkaRig) -> None:
    answer = rig.ask(UnregisterBrokerRequest(7), 0, UnregisterBrokerResponse)
    assert answer.error_code == E.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == "Broker ID 7 is not currently registered"
    answer = rig.ask(UnregisterBrokerRequest(1), 0, UnregisterBrokerResponse)
    assert answer.error_code == E.POLICY_VIOLATION


# -- telemetry -----------------------------------------------------------------------------------------


def test_a_subscription_to_nothing(rig: KafkaRig) -> None:
    def asked(client: bytes) -> GetTelemetrySubscriptionsResponse:
        message = GetTelemetrySubscriptionsRequest(client)
        return rig.ask(message, 0, GetTelemetrySubscriptionsResponse)

    def pushed(*fields: object) -> int:
        message = PushTelemetryRequest(*fields)  # type: ignore[arg-type]
        return rig.ask(message, 0, PushTelemetryResponse).error_code

    first, other = asked(NO_ID), asked(NO_ID)
    client, number = first.client_instance_id, first.subscription_id
    assert client not in (NO_ID, other.client_instance_id)
    assert asked(client) == first
    assert first.requested_metrics == ()
    assert pushed(client, number, False, 0, b"") == 0
    assert pushed(client, number + 1) == E.UNKNOWN_SUBSCRIPTION_ID
    assert pushed(NO_ID, 0) == E.INVALID_REQUEST
    assert pushed(client, number, False, 9) == E.UNSUPPORTED_COMPRESSION_TYPE
    too_much = bytes(TELEMETRY_BYTES_MAX + 1)
    assert pushed(client, number, True, 0, too_much) == E.TELEMETRY_TOO_LARGE


# -- delegation tokens ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_there_are_no_delegation_tokens(rig: KafkaRig, version: int) -> None:
    """Who is anonymous may not ask for them; who is known learns that there are none."""
    rig.links += 1
    known = rig.links
    rig.event(Opened(known, "10.9.9.9:5000", dialect=KAFKA, owner="CN=alice"))
    for link, code in (
        (rig.link, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (known, E.DELEGATION_TOKEN_AUTH_DISABLED),
    ):
        made = rig.ask(
            CreateDelegationTokenRequest(renewers=[TokenPrincipal("User", "bob")]),
            version,
            CreateDelegationTokenResponse,
            link=link,
        )
        assert (made.error_code, made.expiry_timestamp_ms, made.hmac) == (code, -1, b"")
        name = "ANONYMOUS" if link == rig.link else "CN=alice"
        assert (made.principal_type, made.principal_name) == ("User", name)
        renewed = rig.ask(
            RenewDelegationTokenRequest(b"x", 1), version, RenewDelegationTokenResponse, link=link
        )
        expired = rig.ask(
            ExpireDelegationTokenRequest(b"x", 1), version, ExpireDelegationTokenResponse, link=link
        )
        assert renewed.error_code == expired.error_code == code
        described = rig.ask(
            DescribeDelegationTokenRequest(None),
            version,
            DescribeDelegationTokenResponse,
            link=link,
        )
        assert described == DescribeDelegationTokenResponse(code)


def test_a_token_for_somebody_else(rig: KafkaRig) -> None:
    made = rig.ask(CreateDelegationTokenRequest("User", "bob"), 3, CreateDelegationTokenResponse)
    assert (made.principal_type, made.principal_name) == ("User", "bob")
    assert made.token_requester_principal_name == "ANONYMOUS"
