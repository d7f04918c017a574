"""Signatures: those that mqadmin 4.9.8 sent, with the credentials of the `conf/tools.yml` that it ships with."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import ClientConfig, ProducerConfig, check
from steelyard.errors import ConfigError
from steelyard.wire.remoting.acl import signer_of
from steelyard.wire.remoting.command import Command

SHIPPED = ClientConfig(access_key="rocketmq2", secret_key="12345678")

CAPTURED = [
    (105, {"topic": "AdmTopic"}, b"", "4BlbessTO/ZN2T6dx1Ds+NgS8Y0="),
    (
        12,
        {
            "_UNIQUE_KEY_QUERY": "false",
            "beginTimestamp": "0",
            "topic": "AdmTopic",
            "maxNum": "64",
            "endTimestamp": "9223372036854775807",
            "key": "k3",
        },
        b"",
        "zxVl6UuOqshtJX01+kKPl7O65p0=",
    ),
    (
        34,
        {},
        b'{"clientID":"192.0.2.2@1795227461517","consumerDataSet":[],'
        b'"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}]}',
        "aWj7L+s3dWRDg7EEeeDbXsYPag4=",
    ),
    (
        200,
        {},
        b'{"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":false,'
        b'"groupName":"admg2","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}',
        "ROaSH53iSyeyKmtdJPpwKZikJls=",
    ),
]


@pytest.mark.parametrize(("code", "ext", "body", "signature"), CAPTURED)
def test_captured_signatures(code: int, ext: dict[str, str], body: bytes, signature: str) -> None:
    sign = signer_of(SHIPPED)
    assert sign is not None
    request = Command(code, 7, 2, ext, body, "r")
    signed = {**ext, "AccessKey": "rocketmq2", "Signature": signature}
    assert sign(request) == Command(code, 7, 2, signed, body, "r")
    assert sign(sign(request)) == sign(request), "a signature takes no part in the next"


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.dictionaries(st.text("abzABZ_", min_size=1, max_size=5), texts, max_size=6),
    st.binary(max_size=50),
    texts,
)
def test_the_token_takes_part(ext: dict[str, str], body: bytes, token: str) -> None:
    sign = signer_of(ClientConfig(access_key="ak", secret_key="sécret", security_token=token))
    assert sign is not None
    signed = sign(Command(10, ext=ext, body=body)).ext
    expected = {**ext, "AccessKey": "ak", **({"SecurityToken": token} if token else {})}
    content = "".join(expected[key] for key in sorted(expected)).encode() + body
    digest = hmac.new("sécret".encode(), content, hashlib.sha1).digest()
    assert signed == {**expected, "Signature": base64.b64encode(digest).decode()}


def test_without_credentials_nothing_is_signed() -> None:
    assert signer_of(ClientConfig()) is None


def test_text_that_is_none_is_signed_as_java_does() -> None:
    sign = signer_of(SHIPPED)
    assert sign is not None
    lone, question = (sign(Command(10, ext={"key": text})).ext for text in ("\ud800", "?"))
    assert lone["Signature"] == question["Signature"]


def test_secrets_are_not_shown() -> None:
    config = ProducerConfig(access_key="ak", secret_key="hidden-1", security_token="hidden-2")
    assert "ak" in repr(config)
    assert "hidden" not in repr(config)


@pytest.mark.parametrize("config", [ClientConfig(access_key="a"), ClientConfig(secret_key="a")])
def test_half_of_a_credential(config: ClientConfig) -> None:
    with pytest.raises(ConfigError, match="give both, or neither"):
        check(config)
