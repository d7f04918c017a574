"""Who is let in: signatures, white lists, penalties, and the server's own account."""

from __future__ import annotations

import msgspec
import pytest
from tests.nodes.access.test_needs import CLERK, GROUP, OPERATOR, TOPIC, Guarded
from tests.nodes.broker.conftest import send_ext
from tests.nodes.broker.driver import START

from steelyard.acl.accounts import Account, AccountGrant, Accounts
from steelyard.acl.address_patterns import AddressPattern
from steelyard.config import BrokerConfig, ClientConfig, NameserverConfig, check
from steelyard.errors import ConfigError
from steelyard.nodes.access import guard
from steelyard.nodes.access.book import AccountBook, AccountsChanged
from steelyard.nodes.access.guard import DELAY_MS
from steelyard.nodes.broker.peers.requests import USERS
from steelyard.nodes.nameserver import ACCESS_TIMER, NameserverNode
from steelyard.nodes.penalties import DELAYED_MAX
from steelyard.nodes.seam import Asked, Closed, Due, Opened, Received, Send, SetTimer
from steelyard.wire.remoting.acl import SIGNATURE, UNIQUE_KEY_QUERY, is_signed, signed, signer_of
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import ONEWAY_FLAG, Command

SEND, DENIED = RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION
LIAR = msgspec.structs.replace(OPERATOR, secret=b"some-other-secret")


def test_a_signature_covers_fields_and_body() -> None:
    request = signed(Command(10, ext={"topic": "t"}, body=b"body"), "clerk-one", b"secret")
    assert is_signed(request, b"secret")
    changes: list[Command] = [
        msgspec.structs.replace(request, body=b"other"),
        msgspec.structs.replace(request, ext={**request.ext, "topic": "u"}),
        msgspec.structs.replace(request, ext={**request.ext, "more": "u"}),
        msgspec.structs.replace(request, ext={**request.ext, "AccessKey": "operator-1"}),
        msgspec.structs.replace(request, ext={**request.ext, SIGNATURE: "ä"}),
    ]
    without = {key: value for key, value in request.ext.items() if key != SIGNATURE}
    changes.append(msgspec.structs.replace(request, ext=without))
    assert not any(is_signed(changed, b"secret") for changed in changes)
    assert not is_signed(request, b"other")


def test_clients_sign_the_same_way() -> None:
    config = ClientConfig(access_key="clerk-one", secret_key="secret-1", security_token="token")
    sign = signer_of(config)
    assert sign is not None
    assert is_signed(sign(Command(12, ext={"topic": "t"})), b"secret-1")


def test_a_field_that_old_clients_do_not_sign() -> None:
    signed_without = signed(Command(12, ext={"topic": "t"}), "clerk-one", b"secret")
    request = msgspec.structs.replace(
        signed_without, ext={**signed_without.ext, UNIQUE_KEY_QUERY: "true"}
    )
    assert is_signed(request, b"secret")
    new = signed(Command(12, ext={"topic": "t", UNIQUE_KEY_QUERY: "true"}), "clerk-one", b"secret")
    assert is_signed(new, b"secret")


# -- white lists -----------------------------------------------------------------------------------


def test_white_lists() -> None:
    rig = Guarded()
    ext = send_ext(TOPIC)
    assert rig.asked(SEND, ext, None, b"x") == DENIED
    assert rig.node._accounts is not None
    rig.node._accounts.replace(Accounts([OPERATOR], [AddressPattern("10.1.1.*")]))
    assert rig.asked(SEND, ext, None, b"x") == 0
    white = msgspec.structs.replace(CLERK, white=AddressPattern("10.1.1.1"))
    rig.grant(white)
    assert rig.asked(SEND, ext, None, b"x") == DENIED
    unsigned = msgspec.structs.replace(white, secret=b"whatever")
    assert rig.asked(SEND, ext, unsigned, b"x") == 0
    rig.client = rig.connect("10.1.1.2:5000")
    assert rig.asked(SEND, ext, unsigned, b"x") is None  # a wrong signature
    assert rig.asked(SEND, ext, white, b"x") == DENIED  # and no permission


# -- who guesses -----------------------------------------------------------------------------------


def test_wrong_signatures_are_answered_later_and_later() -> None:
    rig = Guarded()
    delays = []
    for _ in range(9):
        request = rig.command(SEND, send_ext(TOPIC), LIAR, b"x")
        began = rig.now
        rig.event(Received(rig.client, request))
        while rig.reply_to(rig.client, request.opaque) is None:
            assert rig.now < began + 10_000
            rig.advance(DELAY_MS)
        delays.append(rig.now - began)
    assert delays == [DELAY_MS * factor for factor in (1, 1, 1, 1, 1, 2, 4, 8, 16)]
    assert "check signature failed for accessKey=operator-1" in "".join(
        line.text for line in rig.told
    )
    assert not any("secret" in line.text for line in rig.told)
    assert rig.node._parts.statistics.remoting_refused[int(DENIED)] == 9


def test_who_has_proven_an_account_does_not_wait_for_guessers() -> None:
    """Guesses of an address are not even looked at while many of its answers wait."""
    rig = Guarded()
    good, bad = rig.client, rig.connect("10.1.1.1:6000")
    rig.client = bad
    for _ in range(DELAYED_MAX):
        assert rig.asked(SEND, send_ext(TOPIC), LIAR, b"x") is None
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") == DENIED  # right, but not looked at
    rig.client = good  # it has signed before
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") == 0
    assert rig.asked(SEND, send_ext(TOPIC), CLERK, b"x") == DENIED  # not with this account
    rig.event(Closed(bad, "it gave up"))
    rig.advance(60_000)
    rig.client = rig.connect("10.1.1.1:7000")
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") == 0
    assert not [each for each in rig.sent if each[0] == bad and each[1].code != DENIED]


def test_a_link_that_has_signed_may_not_guess_on() -> None:
    """Its first wrong signature makes it a stranger again, so that answers do not pile up."""
    rig = Guarded()
    for _ in range(DELAYED_MAX):
        assert rig.asked(SEND, send_ext(TOPIC), LIAR, b"x") is None
    assert rig.asked(SEND, send_ext(TOPIC), LIAR, b"x") == DENIED
    rig.advance(60_000)
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") == 0


def test_few_answers_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many addresses guess."""
    monkeypatch.setattr(guard, "LATE_MAX", 3)
    rig = Guarded()
    answers = []
    for number in range(5):
        rig.client = rig.connect(f"10.2.2.{number}:5000")
        answers.append(rig.asked(SEND, send_ext(TOPIC), LIAR, b"x"))
    assert answers == [None, None, None, DENIED, DENIED]


def test_one_way_requests_are_refused_without_an_answer() -> None:
    rig = Guarded()
    for account in (LIAR, None):
        request = rig.command(SEND, send_ext(TOPIC), account, b"x")
        rig.event(Received(rig.client, msgspec.structs.replace(request, flag=ONEWAY_FLAG)))
        rig.advance(10_000)
        assert rig.reply_to(rig.client, request.opaque) is None
    assert len(rig.messages(TOPIC)) == 1


def test_a_nameserver_answers_late_as_well() -> None:
    node = NameserverNode(NameserverConfig(), Accounts([OPERATOR]))
    node.start(START)
    node.handle(Opened(1, "10.1.1.1:5000"), START)
    request = signed(Command(int(RequestCode.GET_BROKER_CLUSTER_INFO)), "operator-1", b"wrong-one")
    effects = node.handle(Received(1, request), START)
    assert not [each for each in effects if isinstance(each, Send)]
    due = START + DELAY_MS
    assert SetTimer(ACCESS_TIMER, due) in effects
    (sent,) = [e for e in node.handle(Due(ACCESS_TIMER), due) if isinstance(e, Send)]
    assert isinstance(sent.message, Command)
    assert sent.message.code == DENIED


# -- the server's own account ----------------------------------------------------------------------


def test_brokers_ask_each_other_with_their_account() -> None:
    """Whoever is no administrator changes neither users nor access rules of Kafka's clients."""
    rig = Guarded()
    asked: list[Command] = []

    def nameserver(request: Command) -> Command | None:
        asked.append(request)
        return None

    rig.nameservers["n:1"] = nameserver
    config = BrokerConfig(acl_access_key=OPERATOR.access_key, nameservers=("n:1",))
    rig.config = config
    rig.restart()
    assert asked
    assert all(is_signed(request, OPERATOR.secret) for request in asked)
    rig.client = rig.connect()
    everything = msgspec.structs.replace(
        CLERK, default_topic=AccountGrant.PUB_OR_SUB, default_group=AccountGrant.SUB
    )
    rig.grant(everything)
    assert rig.asked(9007, {}, everything) == DENIED


def test_a_request_that_is_passed_on_has_no_signature() -> None:
    """307 goes to a member, which must not get what the operator has signed."""
    rig = Guarded()
    member = rig.connect("10.1.1.9:5000")
    account = msgspec.structs.replace(CLERK, groups={GROUP: AccountGrant.SUB})
    rig.grant(account)
    rig.node._accounts.replace(Accounts([OPERATOR, account], [AddressPattern("10.1.1.9")]))  # type: ignore[union-attr]
    rig.beat(member, "client", TOPIC, group=GROUP)
    rig.asked(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": GROUP, "clientId": "client"},
        OPERATOR,
    )
    (asked,) = [
        message
        for link, message in rig.sent
        if link == member and message.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    ]
    assert asked.ext["clientId"] == "client"
    assert not {"AccessKey", SIGNATURE} & asked.ext.keys()


@pytest.mark.parametrize(
    "accounts",
    [
        [],
        [CLERK],
        [Account("operator-1", b"operator-secret")],
        [Account("operator-1", b"s", is_admin=True, topics={"t": AccountGrant.PUB})],
    ],
)
def test_the_own_account_must_be_an_administrators(accounts: list[Account]) -> None:
    with pytest.raises(ConfigError, match="own account 'operator-1'"):
        AccountBook(Accounts(accounts), "operator-1")
    rig = Guarded()
    rig.event(Asked(7, AccountsChanged(Accounts(accounts))))
    assert isinstance(rig.answers[7], ConfigError)
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") == 0  # the former ones apply


def test_accounts_are_replaced() -> None:
    rig = Guarded()
    new = Account("operator-1", b"a-new-secret", is_admin=True)
    rig.event(Asked(7, AccountsChanged(Accounts([new]))))
    assert rig.answers[7] is None
    assert rig.asked(SEND, send_ext(TOPIC), OPERATOR, b"x") is None  # wrong by now
    assert rig.asked(SEND, send_ext(TOPIC), new, b"x") == 0
    assert rig.node._parts.accounts is not None
    signed_request = rig.node._parts.accounts.sign(Command(USERS))
    assert is_signed(signed_request, b"a-new-secret")


@pytest.mark.parametrize(
    "config", [BrokerConfig(acl_file="a.yml"), BrokerConfig(acl_access_key="operator-1")]
)
def test_half_of_the_settings(config: BrokerConfig) -> None:
    with pytest.raises(ConfigError, match="belong together"):
        check(config)
