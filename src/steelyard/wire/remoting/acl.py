"""Signatures of requests, for brokers that authenticate (aclEnable, authenticationEnabled).

A signature is the base64 of HmacSHA1, under the secret key, over the values of the request's ext
fields, joined without separators in the order of their keys, followed by the body. `AccessKey` and
`SecurityToken` are ext fields too and take part; `Signature` does not. Text is UTF-8. Code, opaque
and flag take no part.

Caution: 4.9 brokers omit the field `_UNIQUE_KEY_QUERY` of QUERY_MESSAGE (12), but 5.x brokers do
not for peers newer than 4.9.3, such as ours; for both to accept a request, it must not have the
field. Source: acl/common/AclClientRPCHook.java, AclUtils.combineRequestContent, AclSigner.java;
auth/.../DefaultAuthenticationContextBuilder.java.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from steelyard.config import ClientConfig
from steelyard.wire.remoting.command import Command

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
_SIGNING = frozenset((ACCESS_KEY, SECURITY_TOKEN, SIGNATURE))
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

Signer = Callable[[Command], Command]
"""Returns the request, signed. Its ext fields and body must not be changed afterwards."""


def signer_of(config: ClientConfig) -> Signer | None:
    """Return the signer of a client's requests; None for a client without credentials."""
    if not config.access_key:
        return None
    identity = {ACCESS_KEY: config.access_key}
    if config.security_token:
        identity[SECURITY_TOKEN] = config.security_token
    secret = config.secret_key.encode()
    return partial(_signed, identity, secret)


def signed(request: Command, access_key: str, secret: bytes) -> Command:
    """Return a request, signed by an account."""
    return _signed({ACCESS_KEY: access_key}, secret, request)


def _signed(identity: Mapping[str, str], secret: bytes, request: Command) -> Command:
    ext = {**request.ext, **identity}
    ext[SIGNATURE] = signature(ext, request.body, secret)
    return msgspec.structs.replace(request, ext=ext)


def unsigned(ext: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a request without those of its signature."""
    return {key: value for key, value in ext.items() if key not in _SIGNING}


def is_signed(request: Command, secret: bytes) -> bool:
    """Return whether a request has the signature of that secret. Takes constant time.

    Clients up to 4.9.3 leave out `_UNIQUE_KEY_QUERY`, later ones do not; either is accepted.
    """
    given = request.ext.get(SIGNATURE, "").encode(errors="replace")
    found = signature(request.ext, request.body, secret)
    is_right = hmac.compare_digest(given, found.encode())
    if not is_right and UNIQUE_KEY_QUERY in request.ext:
        ext = {key: value for key, value in request.ext.items() if key != UNIQUE_KEY_QUERY}
        return hmac.compare_digest(given, signature(ext, request.body, secret).encode())
    return is_right


def signature(ext: Mapping[str, str], body: bytes, secret: bytes) -> str:
    """Return the signature of a request with these fields; an existing one is ignored."""
    # Java compares keys by UTF-16 units; all keys are ASCII, which sorts the same way.
    values = [value for key, value in sorted(ext.items()) if key != SIGNATURE]
    content = "".join(values).encode(errors="replace") + body
    return b64encode(hmac.digest(secret, content, hashlib.sha1)).decode()
