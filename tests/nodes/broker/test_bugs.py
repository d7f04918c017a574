"""A planted bug in a handler: its asker gets the protocol's error, and what others wait for still happens."""

from __future__ import annotations

from typing import Any

import pytest
from tests.nodes.broker.conftest import Rig
from tests.nodes.broker.kafka.conftest import KafkaRig

from steelyard.config import BrokerConfig
from steelyard.nodes.broker import requests
from steelyard.nodes.nameserver import NameserverNode
from steelyard.nodes.seam import Effect, Flush, HandlerError, Opened, Received, Send, SetTimer
from steelyard.wire.kafka.apis import APIS
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.frame import Reply, Request, encode
from steelyard.wire.kafka.messages.cluster import METADATA, MetadataRequest
from steelyard.wire.kafka.messages.groups import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from steelyard.wire.kafka.schema import has_field
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, RESPONSE_FLAG, Command


def raising(*_: object) -> Any:
    raise KeyError("a planted bug")


def failed(node: Any, event: Received) -> list[Effect]:
    """The effects that come with the node's error; its invariants hold."""
    with pytest.raises(HandlerError) as caught:
        node.handle(event, 5_000)
    assert isinstance(caught.value.__cause__, KeyError)
    node.check()
    return caught.value.effects


def test_a_rocketmq_request_is_answered_with_system_error() -> None:
    rig = Rig()
    rig.event(Opened(7, "10.0.0.7:5000"))
    rig.node._remoting._handlers[RequestCode.GET_MAX_OFFSET] = raising
    effects = failed(rig.node, Received(7, Command(RequestCode.GET_MAX_OFFSET, opaque=3)))
    (send,) = (effect for effect in effects if isinstance(effect, Send))
    assert isinstance(send.message, Command)
    assert (send.link, send.message.opaque) == (7, 3)
    assert (send.message.code, send.message.flag) == (ResponseCode.SYSTEM_ERROR, RESPONSE_FLAG)
    oneway = Command(RequestCode.GET_MAX_OFFSET, opaque=4, flag=ONEWAY_FLAG)
    assert not [e for e in failed(rig.node, Received(7, oneway)) if isinstance(e, Send)]


def test_what_was_ordered_before_the_bug_is_not_lost() -> None:
    """1. With flush=sync a handler stores a message, which asks for a flush, and then fails. 2. The flush is still ordered:
    without it every later reply would wait for ever."""
    rig = Rig(BrokerConfig(flush="sync"))
    rig.disk_answers = False
    rig.event(Opened(7, "10.0.0.7:5000"))

    def stores_and_raises(asked: requests.RemotingRequest, now: int, effects: list[Effect]) -> None:
        rig.node._durability.acknowledge(asked, asked.reply(), effects)
        raising()

    rig.node._remoting._handlers[RequestCode.SEND_MESSAGE] = stores_and_raises
    effects = failed(rig.node, Received(7, Command(RequestCode.SEND_MESSAGE)))
    assert [e for e in effects if isinstance(e, Flush)]


def test_timers_of_others_are_set_after_a_bug() -> None:
    """The ledger is due although the handler which made its record failed."""
    rig = Rig()
    rig.event(Opened(7, "10.0.0.7:5000"))

    def ledger_and_raises(asked: object, now: int, effects: list[Effect]) -> None:
        rig.node._ledger.due_at = now + 1
        rig.node._ledger_at = None
        raising()

    rig.node._remoting._handlers[RequestCode.SEND_MESSAGE] = ledger_and_raises
    with pytest.raises(HandlerError) as caught:
        rig.node.handle(Received(7, Command(RequestCode.SEND_MESSAGE)), 5_000)
    assert SetTimer("ledger", 5_001) in caught.value.effects


def test_a_kafka_request_is_answered_with_unknown_server_error_where_there_is_a_place_for_it() -> (
    None
):
    rig = KafkaRig()
    assert rig.node._kafka is not None
    handlers = rig.node._kafka.channel._handlers
    handlers[HEARTBEAT.key] = handlers[METADATA.key] = raising
    request = Request(HEARTBEAT, 4, 9, "me", HeartbeatRequest())
    (send,) = (e for e in failed(rig.node, Received(rig.link, request)) if isinstance(e, Send))
    answer = HeartbeatResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert send == Send(rig.link, Reply(HEARTBEAT, 4, 9, answer))
    request = Request(METADATA, 9, 10, "me", MetadataRequest())
    assert not [e for e in failed(rig.node, Received(rig.link, request)) if isinstance(e, Send)]


def test_every_kafka_response_with_an_error_code_can_be_written_with_nothing_else() -> None:
    import msgspec

    count = 0
    for api in APIS.values():
        for version in range(api.versions[0], api.versions[1] + 1):
            if has_field(api.response, "error_code", version):
                answer = msgspec.structs.replace(api.response(), error_code=-1)
                encode(Reply(api, version, 1, answer))
                count += 1
    assert count > 50
    assert has_field(HeartbeatResponse, "throttle_time_ms", 1)
    assert not has_field(HeartbeatResponse, "throttle_time_ms", 0)


def test_a_nameserver_answers_with_system_error() -> None:
    from steelyard.config import NameserverConfig

    node = NameserverNode(NameserverConfig())
    node.start(0)
    node.handle(Opened(1, "10.0.0.1:5000"), 0)
    node._handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = raising
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=3)
    (send,) = (each for each in failed(node, Received(1, request)) if isinstance(each, Send))
    assert isinstance(send.message, Command)
    assert (send.message.code, send.message.opaque) == (ResponseCode.SYSTEM_ERROR, 3)
