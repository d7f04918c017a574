"""Options that say how to log in at the Kafka listeners of a cluster (SASL)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from steelyard.client.environment import DEFAULT_MECHANISM, KAFKA_VARIABLES
from steelyard.errors import ConfigError
from steelyard.sasl.login import Login, login_of
from steelyard.spark.options import table

SASL = tuple(one.name for one in table.SASL)
"""Their names: those of user, password and mechanism.

Without saslPassword the variable STEELYARD_SASL_PASSWORD counts, which ps does not show.
"""


def login_among(given: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], Login | None]:
    """Return the other options, and the login that these make; None if none of them is given.

    Raises ConfigError if the login is not complete.
    """
    names = {name.lower() for name in SASL}
    others = [(name, value) for name, value in given if name.lower() not in names]
    found = {name.lower(): value for name, value in given if name.lower() in names}
    if not found:
        return others, None
    user, password, mechanism = (found.get(name.lower(), "") for name in SASL)
    password = password or os.environ.get(KAFKA_VARIABLES[1], "")
    try:
        return others, login_of(mechanism or DEFAULT_MECHANISM, user, password)
    except ConfigError as error:
        raise ConfigError(f"{error}: the options are {', '.join(SASL)}") from None
