"""What operators ask of push consumers, through real brokers: running info, direct consumption, offset resets."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from typing import TypeVar

from tests.waiting import PATIENCE_S, until

from steelyard import ConsumeFrom, ConsumerConfig, MessageQueue, MessageView, Producer, PushConsumer
from steelyard.wire.remoting import fastjson, frame, headers
from steelyard.wire.remoting.bodies import (
    Body,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
    TopicRouteData,
)
from steelyard.wire.remoting.codes import RequestCode
from steelyard.wire.remoting.command import Command

FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)

B = TypeVar("B", bound=Body)


def ask(address: str, code: RequestCode, header: headers.Header) -> Command:
    """One request of an operator, and its answer."""
    host, _, port = address.rpartition(":")
    decoder = frame.Decoder()
    with socket.create_connection((host, int(port)), timeout=20) as link:
        link.sendall(frame.encode(Command(code=code, opaque=1, ext=headers.write(header))))
        while True:
            data = link.recv(65536)
            assert data, "the broker closed the link"
            for command in decoder.feed(data):
                return command


def asked(kind: type[B], address: str, code: RequestCode, header: headers.Header) -> B:
    answer = ask(address, code, header)
    assert answer.code == 0, answer.remark
    return fastjson.read(kind, answer.body)


def broker_of(nameservers: str, queue: MessageQueue) -> str:
    header = headers.GetRouteInfoRequestHeader(topic=queue.topic)
    route = asked(TopicRouteData, nameservers, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    (address,) = (
        b.broker_addrs[0] for b in route.broker_datas if b.broker_name == queue.broker_name
    )
    return address


def test_running_info_with_threads(nameservers: str) -> None:
    seen: list[MessageView] = []
    with Producer("p", nameservers) as producer:
        sent = producer.send("Watched", b"x")
    with PushConsumer(
        "watched", nameservers, seen.append, client_id="watched-1", config=FIRST
    ).subscribe("Watched"):
        until(lambda: seen)
        header = headers.ConsumerRunningInfoRequestHeader(
            consumer_group="watched", client_id="watched-1", jstack_enable=True
        )
        info = asked(
            ConsumerRunningInfo,
            broker_of(nameservers, sent.queue),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
        )
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.mq_table[sent.queue].commit_offset in (0, 1)
    assert info.status_table["Watched"].pull_tps > 0
    assert info.jstack is not None
    assert "describe_threads" in info.jstack


def test_running_info_tells_where_all_listeners_hang(nameservers: str) -> None:
    began, released = threading.Event(), threading.Event()

    def hanging_listener(message: MessageView) -> None:
        began.set()
        released.wait()

    with Producer("p", nameservers) as producer:
        sent = producer.send("Hanging", b"x")
    config = replace(FIRST, consume_threads=1)
    with PushConsumer(
        "hanging", nameservers, hanging_listener, client_id="hanging-1", config=config
    ).subscribe("Hanging"):
        assert began.wait(PATIENCE_S)
        header = headers.ConsumerRunningInfoRequestHeader(
            consumer_group="hanging", client_id="hanging-1", jstack_enable=True
        )
        address = broker_of(nameservers, sent.queue)
        try:
            info = asked(
                ConsumerRunningInfo, address, RequestCode.GET_CONSUMER_RUNNING_INFO, header
            )
        finally:
            released.set()
    assert info.jstack is not None
    assert "hanging_listener" in info.jstack


def test_a_message_consumed_on_demand(nameservers: str) -> None:
    seen: list[bytes] = []

    def listener(message: MessageView) -> None:
        seen.append(message.body)
        if len(seen) == 2:
            raise ValueError("enough")

    with Producer("p", nameservers) as producer:
        sent = producer.send("OnDemand", b"x")
    with PushConsumer(
        "on-demand", nameservers, listener, client_id="on-demand-1", config=FIRST
    ).subscribe("OnDemand") as consumer:
        until(lambda: consumer.state().offsets.get(sent.queue) == 1)
        header = headers.ConsumeMessageDirectlyRequestHeader(
            consumer_group="on-demand", client_id="on-demand-1", msg_id=sent.offset_message_id
        )
        address = broker_of(nameservers, sent.queue)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        failed = asked(ConsumeMessageDirectlyResult, address, code, header)
        content = asked(ConsumeMessageDirectlyResult, address, code, header)
    assert (failed.consume_result, failed.remark) == ("CR_THROW_EXCEPTION", "ValueError: enough")
    assert (content.consume_result, content.remark) == ("CR_SUCCESS", None)
    assert seen == [b"x"] * 3


def test_a_reset_brings_a_group_back_to_the_beginning(nameservers: str) -> None:
    """One that consumes in order: the messages come again, in order, and the offsets are committed."""
    seen: list[bytes] = []
    with Producer("p", nameservers) as producer:
        queue = producer.queues("Rewound")[0]
        for number in range(5):
            producer.send("Rewound", b"%d" % number, queue=queue)
    config = replace(FIRST, commit_interval_ms=10)
    with PushConsumer(
        "rewound", nameservers, lambda m: seen.append(m.body), orderly=True, config=config
    ).subscribe("Rewound") as consumer:
        until(lambda: len(seen) == 5)
        address = broker_of(nameservers, queue)
        status = headers.ConsumerStatusRequestHeader(topic="Rewound", group="rewound")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS

        def offsets() -> list[int]:
            found = asked(ConsumerStatusBody, address, code, status).consumer_table
            return [table[queue] for table in found.values()]

        until(lambda: offsets() == [5])
        reset = headers.ResetOffsetRequestHeader(
            group="rewound", topic="Rewound", timestamp=0, is_force=True
        )
        assert ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == 0
        until(lambda: len(seen) == 10)
        assert seen == [b"%d" % number for number in range(5)] * 2
        until(lambda: consumer.state().offsets[queue] == 5)
