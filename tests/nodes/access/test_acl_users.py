"""Users of RocketMQ 5.x and their policies: requests 3001 to 3010, and what they allow."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from tests.nodes.access.test_needs import (
    BROKERS,
    CREATE,
    DENIED,
    GROUP,
    NAMESERVERS,
    OPERATOR,
    TOPIC,
    Guarded,
    GuardedNameserver,
    need_of,
)
from tests.nodes.broker.conftest import pull_ext, send_ext

from steelyard.acl.accounts import Account, ResourceKind
from steelyard.nodes.access.needs import NEEDS, Administration, NeedLevel
from steelyard.nodes.broker.acl_users import AclUserStore
from steelyard.wire.remoting.codes import RequestCode, ResponseCode, SteelyardCode
from steelyard.wire.remoting.command import Command

C, INVALID = RequestCode, ResponseCode.INVALID_PARAMETER
ANNA = Account("anna", b"annas-secret")
SUBJECT = {"subject": "User:anna"}


class UserRig(Guarded):
    """A broker of which an operator asks things about users."""

    def tell(
        self,
        code: int,
        ext: Mapping[str, object],
        body: object = None,
        account: Account | None = OPERATOR,
    ) -> Command:
        data = b"" if body is None else json.dumps(body).encode()
        answer = self.answered(code, ext, account, data)
        assert answer is not None
        return answer

    def create(self, name: str = "anna", **more: str) -> Command:
        body = {"username": name, "password": "annas-secret", **more}
        return self.tell(C.AUTH_CREATE_USER, {"username": name}, body)

    def allow(self, *resources: str, actions: str = "All", **more: object) -> Command:
        entries = [
            {"resource": each, "actions": actions.split(","), "decision": "Allow", **more}
            for each in resources
        ]
        body = {"subject": "User:anna", "policies": [{"policyType": "Custom", "entries": entries}]}
        return self.tell(C.AUTH_CREATE_ACL, SUBJECT, body)

    def sends(self, account: Account = ANNA) -> bool:
        """Whether a user may send."""
        return self.asked(C.SEND_MESSAGE_V2, send_ext(TOPIC), account, b"x") == 0


@pytest.fixture
def rig() -> UserRig:
    return UserRig()


def test_a_user_from_beginning_to_end(rig: UserRig) -> None:
    assert rig.create().code == 0
    assert not rig.sends()
    assert rig.allow(f"Topic:{TOPIC}", actions="pub").code == 0
    assert rig.sends()
    pull = pull_ext(0, topic=TOPIC, consumerGroup=GROUP, sysFlag=0)
    assert rig.asked(C.PULL_MESSAGE, pull, ANNA) == DENIED
    rig.allow(f"Topic:{TOPIC}", f"Group:{GROUP}", actions="Pub,Sub")
    assert rig.asked(C.PULL_MESSAGE, pull, ANNA) != DENIED
    shown = rig.tell(C.AUTH_GET_ACL, SUBJECT)
    assert json.loads(shown.body) == {
        "subject": "User:anna",
        "policies": [
            {
                "policyType": "Custom",
                "entries": [
                    {"resource": each, "actions": ["Pub", "Sub"], "decision": "Allow"}
                    for each in (f"Topic:{TOPIC}", f"Group:{GROUP}")
                ],
            }
        ],
    }
    rig.tell(C.AUTH_UPDATE_USER, {"username": "anna"}, {"userStatus": "DISABLE"})
    assert rig.asked(C.SEND_MESSAGE_V2, send_ext(TOPIC), ANNA, b"x") is None  # answered late
    rig.advance(10_000)
    rig.tell(C.AUTH_UPDATE_USER, {"username": "anna"}, {"userStatus": "enable"})
    assert rig.sends()
    one = {**SUBJECT, "resource": f"Topic:{TOPIC}"}
    assert rig.tell(C.AUTH_DELETE_ACL, one).code == 0
    assert not rig.sends()
    assert rig.tell(C.AUTH_DELETE_ACL, SUBJECT).code == 0
    assert rig.tell(C.AUTH_GET_ACL, SUBJECT).body == b""
    assert rig.tell(C.AUTH_DELETE_USER, {"username": "anna"}).code == 0
    assert rig.tell(C.AUTH_GET_USER, {"username": "anna"}).body == b""
    assert rig.tell(C.AUTH_DELETE_USER, {"username": "anna"}).code == 0


def test_passwords_and_types_change_by_themselves(rig: UserRig) -> None:
    rig.create(userType="super")
    assert rig.sends()
    rig.tell(C.AUTH_UPDATE_USER, {"username": "anna"}, {"userType": "Normal"})
    rig.tell(C.AUTH_UPDATE_USER, {"username": "anna"}, {"password": "another-secret"})
    shown = json.loads(rig.tell(C.AUTH_GET_USER, {"username": "anna"}).body)
    assert shown == {
        "username": "anna",
        "password": "another-secret",
        "userType": "Normal",
        "userStatus": "enable",
    }
    assert not rig.sends(Account("anna", b"another-secret"))


def test_lists(rig: UserRig) -> None:
    assert rig.tell(C.AUTH_LIST_USER, {}).body == b""
    assert rig.tell(C.AUTH_LIST_ACL, {}).body == b""
    for name in ("anna", "hannah", "bob"):
        rig.create(name)
    for filtered, names in (("", ["anna", "bob", "hannah"]), ("nn", ["anna", "hannah"])):
        listed = json.loads(rig.tell(C.AUTH_LIST_USER, {"filter": filtered}).body)
        assert [each["username"] for each in listed] == names
    rig.allow("Topic:a", "Group:b")
    for ext, resources in (
        ({}, ["Topic:a", "Group:b"]),
        ({"subjectFilter": "ann", "resourceFilter": "Group"}, ["Group:b"]),
    ):
        (acl,) = json.loads(rig.tell(C.AUTH_LIST_ACL, ext).body)
        assert acl["subject"] == "User:anna"
        (policy,) = acl["policies"]
        assert [each["resource"] for each in policy["entries"]] == resources
    assert rig.tell(C.AUTH_LIST_ACL, {"subjectFilter": "bob"}).body == b""


@pytest.mark.parametrize(
    ("code", "ext", "body", "why"),
    [
        (C.AUTH_CREATE_USER, {"username": "bob"}, {}, "needs a password"),
        (C.AUTH_CREATE_USER, {"username": "a\nb"}, {"password": "p"}, "cannot be the name"),
        (
            C.AUTH_CREATE_USER,
            {"username": "bob"},
            {"password": "p", "userType": "Big"},
            "'Big' is not a user type; expected Super, Normal",
        ),
        (C.AUTH_CREATE_ACL, {"subject": "Group:anna"}, {}, "expected User:NAME"),
        (C.AUTH_CREATE_ACL, SUBJECT, {}, "there is no policy entry"),
        (
            C.AUTH_CREATE_ACL,
            SUBJECT,
            {
                "policies": [
                    {"entries": [{"resource": "orders", "actions": ["Pub"], "decision": "Allow"}]}
                ]
            },
            "not a resource",
        ),
        (
            C.AUTH_UPDATE_ACL,
            SUBJECT,
            {"policies": [{"entries": [{"resource": "Topic:a", "actions": ["Pub"]}]}]},
            "no decision",
        ),
        (C.AUTH_DELETE_ACL, {**SUBJECT, "resource": "a", "policyType": "x"}, None, "policy type"),
    ],
)
def test_what_cannot_be_read(
    rig: UserRig, code: int, ext: dict[str, str], body: object, why: str
) -> None:
    rig.create()
    rig.allow("Topic:a")
    before = rig.files()
    answer = rig.tell(code, ext, body)
    assert (answer.code, why in answer.remark) == (INVALID, True), answer.remark
    assert rig.files() == before


def test_what_does_not_fit_what_is_there(rig: UserRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.create()
    nobody = {"subject": "User:nobody"}
    entry = {"resource": "Topic:a", "actions": ["Pub"], "decision": "Deny"}
    policies = {"policies": [{"entries": [entry]}]}
    cases: list[tuple[int, dict[str, str], object, str]] = [
        (C.AUTH_CREATE_USER, {"username": "anna"}, {"password": "p"}, "The user is existed"),
        (C.AUTH_CREATE_USER, {"username": OPERATOR.access_key}, {"password": "p"}, "existed"),
        (C.AUTH_UPDATE_USER, {"username": "nobody"}, {"password": "p"}, "The user is not exist"),
        (C.AUTH_UPDATE_USER, {"username": "clerk-one"}, {"password": "p"}, "in acl_file"),
        (C.AUTH_CREATE_ACL, nobody, policies, "The user is not exist"),
        (C.AUTH_GET_ACL, nobody, None, "The user is not exist"),
        (C.AUTH_DELETE_ACL, SUBJECT, None, "The acl is not exist"),
    ]
    for code, ext, body, why in cases:
        answer = rig.tell(code, ext, body)
        assert (answer.code, why in answer.remark) == (DENIED, True), answer
    monkeypatch.setattr(AclUserStore, "has_room", False)
    answer = rig.create("bob")
    assert (answer.code, "as many users" in answer.remark) == (INVALID, True)


def test_only_a_super_user_makes_super_users(rig: UserRig) -> None:
    rig.create()
    rig.allow("Cluster:DefaultCluster", actions="Update")
    rig.create("boss", userType="Super")

    def tell(code: int, name: str, **info: str) -> int:
        return rig.tell(code, {"username": name}, info, account=ANNA).code

    assert tell(C.AUTH_CREATE_USER, "bob", password="p") == 0
    assert tell(C.AUTH_CREATE_USER, "eve", password="p", userType="Super") == DENIED
    assert tell(C.AUTH_UPDATE_USER, "anna", userType="Super") == DENIED
    assert tell(C.AUTH_UPDATE_USER, "boss", password="p") == DENIED
    assert tell(C.AUTH_DELETE_USER, "boss") == DENIED
    assert tell(C.AUTH_GET_USER, "boss") == DENIED  # the answer would have the password
    assert tell(C.AUTH_DELETE_USER, "bob") == 0


def test_users_survive_a_restart(rig: UserRig) -> None:
    rig.create()
    rig.allow(f"Topic:{TOPIC}")
    rig.create("bob")
    rig.tell(C.AUTH_DELETE_USER, {"username": "bob"})
    rig.restart()
    rig.client = rig.connect("10.1.1.1:5001")
    assert rig.sends()
    listed = json.loads(rig.tell(C.AUTH_LIST_USER, {}).body)
    assert [each["username"] for each in listed] == ["anna"]


def test_a_source_address(rig: UserRig) -> None:
    rig.create()
    rig.allow(f"Topic:{TOPIC}", sourceIps=["10.1.2.0/24"])
    assert not rig.sends()
    rig.client = rig.connect("10.1.2.9:5000")
    assert rig.sends()


OPERATORS = [code for code in BROKERS if isinstance(need_of(code), Administration)]
AT_NAMESERVERS = [code for code in NAMESERVERS if isinstance(NEEDS[code], Administration)]
NAMES = {"topic": TOPIC, "groupName": GROUP}
ANYTHING = {
    ResourceKind.CLUSTER: "Cluster:DefaultCluster",
    ResourceKind.TOPIC: "Topic:*",
    ResourceKind.GROUP: "Group:*",
}


@pytest.mark.parametrize("code", OPERATORS)
def test_what_policies_allow_of_an_operators_requests(code: int) -> None:
    """Every such request is refused without its action, and goes on with it."""
    need = NEEDS[code]
    assert isinstance(need, Administration)
    rig = UserRig()
    rig.create()
    action = str(need.needed.name).title()
    others = ",".join({"Pub", "Sub", "Create", "Update", "Delete", "Get", "List"} - {action})
    ext = {**CREATE, "groupName": GROUP}
    rig.allow(*ANYTHING.values(), actions=others)
    assert rig.asked(code, ext, ANNA) == DENIED
    rig.allow(*ANYTHING.values(), actions=action)
    assert rig.asked(code, ext, ANNA) != DENIED


@pytest.mark.parametrize("code", AT_NAMESERVERS)
def test_the_same_at_a_nameserver(code: int) -> None:
    need = NEEDS[code]
    assert isinstance(need, Administration)
    server = GuardedNameserver()

    def tell(actions: list[str]) -> None:
        entries = [
            {
                "policy_type": "Custom",
                "resource": each,
                "actions": actions,
                "source_ips": [],
                "decision": "Allow",
            }
            for each in ANYTHING.values()
        ]
        users = [{"name": "anna", "password": "annas-secret", "entries": entries}]
        body = json.dumps(users).encode()
        assert server.asked(SteelyardCode.ACL_USERS, {"brokerName": "a"}, OPERATOR, body) == 0

    action = str(need.needed.name).title()
    ext = {"topic": TOPIC, "namespace": "ns", "key": "k", "value": "v", "brokerName": "a"}
    tell(sorted({"Pub", "Sub", "Create", "Update", "Delete", "Get", "List"} - {action}))
    assert server.asked(code, ext, ANNA) == DENIED
    tell([action])
    assert server.asked(code, ext, ANNA) != DENIED


def test_peers_requests_are_for_administrators_only(rig: UserRig) -> None:
    rig.create()
    rig.allow("*")
    for code in BROKERS:
        if need_of(code) is NeedLevel.ADMIN:
            assert rig.asked(code, {}, ANNA) == DENIED, code


def test_nameservers_know_the_users_of_all_brokers() -> None:
    server = GuardedNameserver()
    route = {"topic": TOPIC}

    def tell(broker: str, *names: str) -> int | None:
        entry = {
            "policy_type": "Custom",
            "resource": "*",
            "actions": ["All"],
            "source_ips": [],
            "decision": "Allow",
        }
        users = [{"name": n, "password": "annas-secret", "entries": [entry]} for n in names]
        body = json.dumps(users).encode()
        return server.asked(SteelyardCode.ACL_USERS, {"brokerName": broker}, OPERATOR, body)

    def found(name: str = "anna") -> bool:
        account = Account(name, b"annas-secret")
        return server.asked(C.GET_ROUTEINFO_BY_TOPIC, route, account) == 17

    assert not found()
    assert tell("a", "anna") == tell("b", "bob") == 0
    assert found()
    assert found("bob")
    assert tell("a") == 0
    assert not found()
    assert found("bob")
    assert server.asked(SteelyardCode.ACL_USERS, {"brokerName": "a"}, OPERATOR, b"[1]") == 1
    bob = Account("bob", b"annas-secret")
    assert server.asked(SteelyardCode.ACL_USERS, {"brokerName": "a"}, bob, b"[]") == DENIED
