"""Signs requests for brokers that check who asks (aclEnable, authenticationEnabled).

A signature is the base64 of HmacSHA1, under the secret key, over the values of the request's ext fields,
joined without separators in the order of their keys, followed by the body. `AccessKey` and `SecurityToken`
are ext fields too and take part; `Signature` does not. Text is UTF-8. Code, opaque and flag take no part.

Trap: brokers of 4.9 leave the field `_UNIQUE_KEY_QUERY` of QUERY_MESSAGE (12) out, 5.x brokers do not for
peers that are newer than 4.9.3, as we are; so that both accept a request, it must not have the field.
Source: acl/common/AclClientRPCHook.java, AclUtils.combineRequestContent, AclSigner.java;
auth/.../DefaultAuthenticationContextBuilder.java.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable

import msgspec

from steelyard.config import ClientConfig
from steelyard.wire.remoting.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"

Signer = Callable[[Command], Command]
"""A request to the same request, signed. Nothing may be added to its ext fields or body afterwards."""


def signer_of(config: ClientConfig) -> Signer | None:
    """What signs a client's requests, None for a client without credentials."""
    if not config.access_key:
        return None
    identity = {ACCESS_KEY: config.access_key}
    if config.security_token:
        identity[SECURITY_TOKEN] = config.security_token
    secret = config.secret_key.encode()

    def sign(request: Command) -> Command:
        ext = {**request.ext, **identity}
        ext[SIGNATURE] = signature(ext, request.body, secret)
        return msgspec.structs.replace(request, ext=ext)

    return sign


def signature(ext: dict[str, str], body: bytes, secret: bytes) -> str:
    """The signature of a request with these fields, whether or not it has one already."""
    # Java compares keys by UTF-16 units; all keys are ASCII, where that is the same.
    values = [value for key, value in sorted(ext.items()) if key != SIGNATURE]
    content = "".join(values).encode(errors="replace") + body
    return b64encode(hmac.digest(secret, content, hashlib.sha1)).decode()
