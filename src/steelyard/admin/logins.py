"""What commands advise whoever is refused for want of a login, or for one that nobody wants."""

from __future__ import annotations

import argparse
import os
import re

from steelyard.admin.asking import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from steelyard.client.environment import KAFKA_VARIABLES
from steelyard.errors import AuthenticationError, BrokerError, SteelyardError
from steelyard.wire.remoting.codes import ResponseCode

_NO_LOGINS = "does not ask for a login"
_CLOSED = re.compile("closed (the connection|by the peer)")
"""What a listener with logins does at the first request of somebody without one."""


def add_advice(error: SteelyardError, options: argparse.Namespace) -> None:
    """Add a note to an error that a login in the environment, or none, would probably mend."""
    text = ""
    if isinstance(error, BrokerError):
        # A group or topic that nobody may read is refused with the same code.
        if error.code == ResponseCode.NO_PERMISSION and "not signed" in error.remark:
            text = f"set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}"
    elif getattr(options, "kafka", None):
        text = _of_kafka(error)
    if text:
        error.add_note(text)


def _of_kafka(error: SteelyardError) -> str:
    name, password, mechanism = KAFKA_VARIABLES
    if any(map(os.environ.get, KAFKA_VARIABLES)):
        if isinstance(error, AuthenticationError) and _NO_LOGINS in str(error):
            return f"unset {name}, {password} and {mechanism}"
    elif _CLOSED.search(str(error)):
        return f"if this port wants a login, set {name} and {password}"
    return ""
