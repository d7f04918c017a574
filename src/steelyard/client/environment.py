"""The login at Kafka listeners that is in environment variables, for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from steelyard.errors import ConfigError

if TYPE_CHECKING:
    from steelyard.sasl.login import Login

KAFKA_VARIABLES = (
    "STEELYARD_SASL_USERNAME",
    "STEELYARD_SASL_PASSWORD",
    "STEELYARD_SASL_MECHANISM",
)
"""Name, password, and mechanism."""

DEFAULT_MECHANISM = "SCRAM-SHA-512"


def kafka_login() -> Login | None:
    """Return the login; None without one. Raises ConfigError if it is not complete."""
    user, password, mechanism = (os.environ.get(name, "") for name in KAFKA_VARIABLES)
    if not (user or password or mechanism):
        return None
    from steelyard.sasl.login import login_of

    try:
        return login_of(mechanism or DEFAULT_MECHANISM, user, password)
    except ConfigError as error:
        raise ConfigError(f"{error}; see the variables {', '.join(KAFKA_VARIABLES)}") from None
