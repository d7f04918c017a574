"""The file with the first users of a cluster.

    [admin]
    password = "..."

    [orders]
    "SCRAM-SHA-256" = "salt=...,stored_key=...,server_key=...,iterations=8192"

A password is salted here, for both mechanisms of SCRAM, and not kept.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping

from steelyard.checks import unknown
from steelyard.errors import ConfigError
from steelyard.nodes.broker.users import USERS_MAX, User, check_name
from steelyard.sasl.credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    credential_of,
    read_credential,
)

PASSWORD = "password"  # the name of the key


def read_users(path: str) -> tuple[User, ...]:
    """Read a file of users. Raises ConfigError, which quotes no secret."""
    tables, where = _tables(path), f"users_file {path}"
    if len(tables) > USERS_MAX:
        raise ConfigError(f"{where} has {len(tables)} users; at most {USERS_MAX} are possible")
    return tuple(_user(where, name, table) for name, table in tables.items())


def _tables(path: str) -> dict[str, object]:
    where = f"users_file {path}"
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror}") from None
    except (ValueError, RecursionError):
        # The parser's own text may quote a line, and with it a password.
        raise ConfigError(f"{where} is not TOML; expected tables [NAME] with a password") from None


def first_password(path: str) -> tuple[str, str] | None:
    """Return the first user of a file that has a password, and that; None if none has one.

    Raises ConfigError.
    """
    for name, table in _tables(path).items():
        password = table.get(PASSWORD) if isinstance(table, Mapping) else None
        if isinstance(password, str):
            return name, password
    return None


def _user(where: str, name: str, table: object) -> User:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {name[:50]!r} is not a table; write [NAME], then its password")
    try:
        check_name(name)
        return User(name, 0, _credentials(table))
    except ConfigError as error:
        raise ConfigError(f"{where}: user {name[:50]!r}: {error}") from None


def _credentials(table: Mapping[str, object]) -> dict[str, ScramCredential]:
    for key, value in table.items():
        if key not in (PASSWORD, *SCRAM_MECHANISMS):
            raise ConfigError(unknown("key", key, (PASSWORD, *SCRAM_MECHANISMS)))
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{key} is not a text, or empty")
    if PASSWORD in table:
        if len(table) > 1:
            raise ConfigError("give either password or credentials by mechanism, not both")
        return salted(str(table[PASSWORD]))
    if not table:
        raise ConfigError("it has no password and no credential")
    return {
        name: read_credential(SCRAM_MECHANISMS[name], str(text)) for name, text in table.items()
    }


def salted(password: str, iterations: int = ITERATIONS_MIN) -> dict[str, ScramCredential]:
    """Return credentials for all mechanisms of SCRAM, with new salts."""
    found = {}
    for mechanism in SCRAM_MECHANISMS.values():
        salt = os.urandom(SALT_BYTES)
        salted_password = mechanism.salted(password, salt, iterations)
        found[mechanism.name] = credential_of(mechanism, salted_password, salt, iterations)
    return found
