"""Pulls with a subscription newer than the broker's: the client is asked for it (307)."""

from __future__ import annotations

import pytest
from tests.nodes.broker.conftest import GROUP, Rig, pull_ext
from tests.nodes.broker.driver import TOPIC

from steelyard.config import BrokerConfig
from steelyard.groups.remoting.registry import ClientChannel, Registry
from steelyard.nodes.broker.remoting import renewals
from steelyard.nodes.broker.remoting.renewals import AGAIN_MS, FIRST_OPAQUE, WAIT_MS
from steelyard.nodes.broker.requests import Peer, RemotingRequest
from steelyard.nodes.seam import Closed, Effect, Received
from steelyard.wire.remoting import fastjson
from steelyard.wire.remoting.bodies import ConsumerData, ConsumerRunningInfo, SubscriptionData
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import RESPONSE_FLAG, Command

PULL = RequestCode.PULL_MESSAGE
INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
NEWER = 5


def scene(*, enabled: bool = True, client: tuple[str, int] = ("JAVA", 453)) -> tuple[Rig, int]:
    """A member that has told version 1 of its subscription, and a message for it."""
    rig = Rig(BrokerConfig(delayed_answers=enabled))
    link = rig.connect()
    rig.send(link, b"x")
    rig.beat(link, "c", TOPIC, client=client)
    return rig, link


def questions(rig: Rig, link: int) -> list[Command]:
    return [m for to, m in rig.sent if (to, m.code, m.flag & RESPONSE_FLAG) == (link, INFO, 0)]


def pull(rig: Rig, link: int, version: int = NEWER) -> int:
    return rig.post(link, PULL, pull_ext(subVersion=version))


def tell(rig: Rig, link: int, question: Command, *told: SubscriptionData) -> None:
    body = fastjson.write(ConsumerRunningInfo({}, told))
    rig.event(Received(link, Command(0, question.opaque, RESPONSE_FLAG, body=body)))


def code(rig: Rig, link: int, opaque: int) -> int | None:
    answer = rig.reply_to(link, opaque)
    return None if answer is None else answer.code


def test_a_pull_waits_until_the_client_has_told_its_subscription() -> None:
    rig, link = scene()
    first, second = pull(rig, link), pull(rig, link)
    (question,) = questions(rig, link)
    assert question.ext == {"consumerGroup": GROUP, "clientId": "c", "jstackEnable": "false"}
    assert (code(rig, link, first), code(rig, link, second)) == (None, None)
    tell(rig, link, question, SubscriptionData(TOPIC, "*", sub_version=NEWER))
    assert (code(rig, link, first), code(rig, link, second)) == (0, 0)
    assert code(rig, link, pull(rig, link)) == 0
    assert len(questions(rig, link)) == 1


def test_the_expression_that_was_told_is_the_filter() -> None:
    rig, link = scene()
    opaque = pull(rig, link)
    told = SubscriptionData(TOPIC, "apples", sub_version=NEWER)
    tell(rig, link, questions(rig, link)[0], told)
    assert code(rig, link, opaque) == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_pulls_that_wait_for_messages_are_repeated_with_an_expression_that_was_told() -> None:
    rig, link = scene()
    waiting = rig.post(link, PULL, pull_ext(1, subVersion=1))
    newer = pull(rig, link)
    tell(rig, link, questions(rig, link)[0], SubscriptionData(TOPIC, "apples", sub_version=NEWER))
    answers = [rig.reply_to(link, opaque) for opaque in (waiting, newer)]
    assert [each and (each.code, each.ext["nextBeginOffset"]) for each in answers] == [
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "1"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "1"),
    ]


@pytest.mark.parametrize(
    "told",
    [
        (),
        (SubscriptionData(TOPIC, "*", sub_version=NEWER - 1),),
        (SubscriptionData("other", "*", sub_version=NEWER),),
        (SubscriptionData(TOPIC, " || ", sub_version=NEWER),),
    ],
)
def test_an_answer_that_does_not_help_refuses_the_pull(told: tuple[SubscriptionData, ...]) -> None:
    rig, link = scene()
    opaque = pull(rig, link)
    tell(rig, link, questions(rig, link)[0], *told)
    assert code(rig, link, opaque) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert code(rig, link, pull(rig, link)) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert len(questions(rig, link)) == 1


def test_an_answer_that_cannot_be_read_refuses_the_pull() -> None:
    rig, link = scene()
    for answer in (
        Command(0, 0, RESPONSE_FLAG, body=b"{"),
        Command(1, 0, RESPONSE_FLAG, remark="The Consumer Group not exist in this consumer"),
    ):
        opaque = pull(rig, link)
        asked = questions(rig, link)[-1].opaque
        rig.event(
            Received(
                link, Command(answer.code, asked, RESPONSE_FLAG, {}, answer.body, answer.remark)
            )
        )
        assert code(rig, link, opaque) == ResponseCode.SUBSCRIPTION_NOT_LATEST
        rig.advance(AGAIN_MS)


def test_a_silent_client_is_waited_for_and_asked_again_later() -> None:
    rig, link = scene()
    opaque = pull(rig, link)
    rig.advance(WAIT_MS - 1)
    assert code(rig, link, opaque) is None
    rig.advance(1)
    assert code(rig, link, opaque) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    rig.advance(AGAIN_MS - WAIT_MS - 1)
    assert code(rig, link, pull(rig, link)) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    rig.advance(1)
    opaque = pull(rig, link)
    assert len(questions(rig, link)) == 2
    tell(rig, link, questions(rig, link)[1], SubscriptionData(TOPIC, "*", sub_version=NEWER))
    assert code(rig, link, opaque) == 0


def test_a_late_answer_of_a_silent_client_counts() -> None:
    rig, link = scene()
    pull(rig, link)
    rig.advance(WAIT_MS)
    tell(rig, link, questions(rig, link)[0], SubscriptionData(TOPIC, "*", sub_version=NEWER))
    assert code(rig, link, pull(rig, link)) == 0


def test_a_pull_that_waits_is_not_forgotten_by_a_process_that_stood_still() -> None:
    registry = Registry()
    data = ConsumerData(GROUP, subscription_data_set=(SubscriptionData(TOPIC, sub_version=1),))
    registry.heard(ClientChannel(1, "10.0.0.1:1", "c", "JAVA", 453), data, 0)
    waiting = renewals.Renewals(registry, enabled=True)
    peer = Peer(1, "10.0.0.1:1", bytes(8))
    first, second = (RemotingRequest(Command(int(PULL), number), peer) for number in (1, 2))
    effects: list[Effect] = []
    assert waiting.wait(first, GROUP, 0, effects)
    assert waiting.wait(second, GROUP, 2 * AGAIN_MS, effects)
    assert len(effects) == 1
    waiting.check()
    assert waiting.due(2 * AGAIN_MS) == [first, second]
    waiting.check()


def test_a_closed_link_takes_its_pulls_along() -> None:
    rig, link = scene()
    pull(rig, link)
    rig.event(Closed(link, "gone"))
    rig.advance(AGAIN_MS)
    assert not [m for to, m in rig.sent if m.code == ResponseCode.SUBSCRIPTION_NOT_LATEST]


@pytest.mark.parametrize(
    ("enabled", "client"), [(False, ("JAVA", 453)), (True, ("GO", 317)), (True, ("CPP", 0))]
)
def test_pulls_that_are_refused_at_once(enabled: bool, client: tuple[str, int]) -> None:
    rig, link = scene(enabled=enabled, client=client)
    answer = rig.reply_to(link, pull(rig, link))
    assert answer is not None
    assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert answer.remark == "the consumer's subscription not latest"
    assert questions(rig, link) == []


def test_the_number_of_waiting_pulls_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "WAITING_MAX", 1)
    rig, link = scene()
    waiting = pull(rig, link)
    assert code(rig, link, pull(rig, link)) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert code(rig, link, waiting) is None


def test_answers_that_nobody_asked_for_are_ignored() -> None:
    rig, link = scene()
    for opaque in (1, FIRST_OPAQUE + 99):
        assert rig.event(Received(link, Command(0, opaque, RESPONSE_FLAG))) == []


@pytest.mark.parametrize("enabled", [False, True])
def test_a_newer_version_of_another_member_vouches_for_the_same_filter(enabled: bool) -> None:
    rig, link = scene(enabled=enabled)
    rig.beat(rig.connect(), "d", TOPIC, version=NEWER)
    assert code(rig, link, pull(rig, link)) == 0


def test_a_newer_version_with_another_filter_vouches_for_nothing() -> None:
    rig, link = scene(enabled=False)
    rig.beat(rig.connect(), "d", TOPIC, version=NEWER, expression="apples")
    assert code(rig, link, pull(rig, link)) == ResponseCode.SUBSCRIPTION_NOT_LATEST
