"""50 DescribeUserScramCredentials and 51 AlterUserScramCredentials (version 0): the users.

Any broker changes them; the answer waits until the live brokers know. As in Kafka, one request may
name a user once, whatever the mechanism, and each user succeeds or fails on its own. What comes is
the salted password; what is stored verifies it, and cannot be used in its place.
Source: metadata/controller/ScramControlManager.java, metadata/image/ScramImage.java.
"""

from __future__ import annotations

from collections import Counter

from steelyard.errors import ConfigError, StorageError
from steelyard.nodes.broker.durability import Durability
from steelyard.nodes.broker.faults import Faults
from steelyard.nodes.broker.kafka.logins.spreading import UserSpreading
from steelyard.nodes.broker.kafka.requests.channel import OpenRequest, serves
from steelyard.nodes.broker.kafka.requests.refusals import RequestRefused
from steelyard.nodes.broker.users import USERS_MAX, User, UserStore, check_name
from steelyard.nodes.seam import Effect
from steelyard.printable import printable
from steelyard.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    SCRAM_MECHANISMS,
    SCRAM_NUMBERS,
    ScramMechanism,
    credential_of,
)
from steelyard.types import LogLine
from steelyard.wire.kafka.errors import ErrorCode
from steelyard.wire.kafka.messages.logins import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from steelyard.wire.kafka.schema import ApiMessage

ALTERED_MAX = 1_000
"""Most users in one request."""


class UserCredentials:
    """Handlers of DescribeUserScramCredentials and AlterUserScramCredentials."""

    def __init__(
        self, users: UserStore, spreading: UserSpreading, durability: Durability, faults: Faults
    ) -> None:
        self._users = users
        self._spreading = spreading
        self._durability = durability
        self._faults = faults

    @serves(DescribeUserScramCredentialsRequest)
    def describe(self, call: OpenRequest, now: int, effects: list[Effect]) -> ApiMessage:
        asked = call.read(DescribeUserScramCredentialsRequest).users
        times = Counter(user.name for user in asked) if asked else Counter(self._users.names())
        results = [self._described(name, count) for name, count in times.items()]
        return DescribeUserScramCredentialsResponse(error_message=None, results=results)

    def _described(self, name: str, count: int) -> DescribeUserScramCredentialsResult:
        user = self._users.get(name)
        if count > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            text = (
                "Cannot describe SCRAM credentials for the same user twice in a single request:"
                f" {name}"
            )
        elif user is None:
            code = ErrorCode.RESOURCE_NOT_FOUND
            text = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            infos = [
                CredentialInfo(SCRAM_MECHANISMS[each].number, credential.iterations)
                for each, credential in user.scram.items()
            ]
            return DescribeUserScramCredentialsResult(name, ErrorCode.NONE, None, infos)
        return DescribeUserScramCredentialsResult(name, code, text)

    @serves(AlterUserScramCredentialsRequest)
    def alter(self, call: OpenRequest, now: int, effects: list[Effect]) -> None:
        message = call.read(AlterUserScramCredentialsRequest)
        asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = []
        asked += message.deletions
        asked += message.upsertions
        times = Counter(item.name for item in asked)
        planned: dict[str, User] = {}
        results: dict[str, AlterUserScramCredentialsResult] = {}
        for item in asked[:ALTERED_MAX]:
            try:
                if times[item.name] > 1:
                    text = "A user credential cannot be altered twice in the same request"
                    raise RequestRefused(ErrorCode.DUPLICATE_RESOURCE, text)
                planned[item.name] = self._altered(item)
                results[item.name] = AlterUserScramCredentialsResult(item.name, 0, None)
            except RequestRefused as error:
                results[item.name] = AlterUserScramCredentialsResult(
                    item.name, error.code, error.text
                )
        for item in asked[ALTERED_MAX:]:
            text = f"A request may name {ALTERED_MAX} users"
            results.setdefault(
                item.name,
                AlterUserScramCredentialsResult(item.name, ErrorCode.POLICY_VIOLATION, text),
            )
        try:
            changed = self._users.merge(planned.values())
        except StorageError as error:
            self._faults.tell(f"users were not stored: {error}", now, effects)
            for name in planned:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                results[name] = AlterUserScramCredentialsResult(name, code, "see the broker's log")
            changed = []
        for user in changed:
            what = "deleted" if user.is_deleted else f"set for {', '.join(user.scram)}"
            text = f"{call.peer.address} changed user {printable(user.name)!r}: {what}"
            effects.append(LogLine("INFO", text))
        answer = AlterUserScramCredentialsResponse(results=list(results.values()))

        def then(now: int, effects: list[Effect]) -> None:
            self._durability.answer(call, answer, effects)

        if changed:
            self._spreading.publish(changed, then, now, effects)
        else:
            then(now, effects)

    def _altered(self, item: ScramCredentialDeletion | ScramCredentialUpsertion) -> User:
        """Return the user's next version. Raises RequestRefused, in Kafka's words."""
        if not item.name:
            text = "Username must not be empty"
            raise RequestRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
        mechanism = SCRAM_NUMBERS.get(item.mechanism)
        if mechanism is None:
            text = "Unknown SCRAM mechanism"
            raise RequestRefused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
        known = self._users.get(item.name)
        scram = {} if known is None else dict(known.scram)
        if isinstance(item, ScramCredentialUpsertion):
            self._check(item, mechanism)
            scram[mechanism.name] = credential_of(
                mechanism, item.salted_password, item.salt, item.iterations
            )
        elif scram.pop(mechanism.name, None) is None:
            text = "Attempt to delete a user credential that does not exist"
            raise RequestRefused(ErrorCode.RESOURCE_NOT_FOUND, text)
        return self._users.changed(item.name, scram)

    def _check(self, item: ScramCredentialUpsertion, mechanism: ScramMechanism) -> None:
        """Raise RequestRefused for a credential that cannot be stored."""
        text = ""
        try:
            check_name(item.name)
        except ConfigError as error:
            text = str(error)
        if item.iterations < ITERATIONS_MIN:
            text = "Too few iterations"
        elif item.iterations > ITERATIONS_MAX:
            text = "Too many iterations"
        elif not 0 < len(item.salt) <= SALT_BYTES_MAX:
            text = f"The salt must have 1 to {SALT_BYTES_MAX} bytes"
        elif len(item.salted_password) != mechanism.key_bytes:
            text = f"The salted password of {mechanism.name} must have {mechanism.key_bytes} bytes"
        elif not self._users.has_room(item.name):
            text = f"There are {USERS_MAX} users already"
        if text:
            raise RequestRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
