"""The options of a DataFrame reader or writer as the user wrote them, and what both have in common.

Every error names the option as the user did, its value, and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from steelyard.errors import ConfigError
from steelyard.spark.options.access import Access
from steelyard.spark.options.table import Option, Reads, named
from steelyard.wire.remoting.names import CLIENT_GROUP_CHARACTERS_MAX, NAME
from steelyard.wording import nearest

NUMBER_MAX = (1 << 63) - 1


class Given:
    """Options by their declared names, whatever aliases and cases they were given in."""

    def __init__(
        self, given: Mapping[str, str], declared: Sequence[Option], use: Reads | None, verb: str
    ) -> None:
        """`use`: what for, None if either. `verb`: how that is called of batches, e.g. df.write.

        Raises ConfigError for options that are not declared, given twice, or of the other use.
        """
        self._declared = declared
        self._use = use
        self._verb = verb
        self._names = named(declared)
        self._texts: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        for label, text in given.items():
            self._take(label, str(text).strip())

    def _take(self, label: str, text: str) -> None:
        option = self._names.get(label.lower())
        if option is None:
            near = nearest(label, self._names)
            known = ", ".join(one.name for one in self._declared)
            hint = (
                f"did you mean {_label(near[0], self._names[near[0]])!r}?"
                if near
                else f"known: {known}"
            )
            raise ConfigError(f"unknown option {label!r}; {hint}")
        if option.name in self._texts:
            both = f"{self._labels[option.name]!r} and {label!r}"
            raise ConfigError(f"options {both} are the same option; give one of them")
        if self._use is not None and option.only not in (None, self._use):
            verb = self._verb if option.only == "batch" else f"{self._verb}Stream"
            label = _label(label, option)
            raise ConfigError(f"option {label!r} is for {verb} only; leave it out here")
        self._labels[option.name] = _label(label, option)
        self._texts[option.name] = text

    # -- servers -----------------------------------------------------------------------------------

    def _nameservers(self) -> tuple[str, ...]:
        addresses = listed(self._text("nameservers").replace(";", ","))
        if not addresses:
            raise ConfigError("option 'nameservers' is missing; give it as 'host:port;host:port'")
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
                self._refuse(
                    "nameservers",
                    f"has {address!r}; give each one as 'host:port', e.g. '127.0.0.1:9876'",
                )
        return tuple(addresses)

    def _access(self) -> Access:
        access = Access(
            tls=self._flag("tls", False),
            ca_file=self._text("tlsCaFile"),
            check_hostname=self._flag("tlsCheckHostname", True),
            cert_file=self._text("tlsCertFile"),
            key_file=self._text("tlsKeyFile"),
            access_key=self._text("accessKey"),
            secret_key=self._text("secretKey"),
            security_token=self._text("securityToken"),
        )
        if not access.tls:
            for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile", "tlsCheckHostname"):
                if self._text(name):
                    self._refuse(name, "is given, but 'tls' is not true")
        if access.key_file and not access.cert_file:
            self._refuse("tlsKeyFile", "needs the option 'tlsCertFile'")
        if bool(access.access_key) != bool(access.secret_key):
            given, missing = ("access", "secret") if access.access_key else ("secret", "access")
            self._refuse(f"{given}Key", f"needs the option '{missing}Key'")
        if access.security_token and not access.access_key:
            self._refuse("securityToken", "needs the options 'accessKey' and 'secretKey'")
        return access

    # -- values ------------------------------------------------------------------------------------

    def _text(self, name: str) -> str:
        assert name.lower() in self._names, f"{name} is not declared"
        return self._texts.get(name, "")

    def _group(self, name: str) -> str:
        text = self._text(name)
        longest = CLIENT_GROUP_CHARACTERS_MAX
        if text and (NAME.fullmatch(text) is None or len(text) > longest):
            self._refuse(
                name, f"is {text!r}; it must have letters, digits and %|_- only, up to {longest}"
            )
        return text

    def _flag(self, name: str, default: bool) -> bool:
        text = self._text(name).lower() or str(default).lower()
        if text not in ("true", "false"):
            self._refuse(name, f"is {text!r}; it must be true or false")
        return text == "true"

    def _one_of(self, name: str, *words: str) -> str:
        text = self._text(name).lower() or words[0]
        if text not in words:
            self._refuse(name, f"is {text!r}; it must be {' or '.join(words)}")
        return text

    def _number(
        self, name: str, default: int | None, most: int = NUMBER_MAX, *, least: int = 1
    ) -> int | None:
        text = self._texts.get(name)
        if text is None:
            return default
        if not text.isdecimal() or not text.isascii() or not least <= int(text) <= most:
            self._refuse(name, f"is {text!r}; it must be a number from {least} to {most}")
        return int(text)

    def _duration(self, name: str, default: str) -> int:
        text = self._text(name).lower() or default
        found = re.fullmatch(r"(\d{1,9}) ?(ms|s|m|min|h|d)", text)
        if found is None:
            self._refuse(name, f"is {text!r}; it must be a number with ms, s, m, h or d: '15m'")
        milliseconds = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
        return int(found[1]) * milliseconds.get(found[2], 86_400_000)

    def _refuse(self, name: str, words: str) -> NoReturn:
        raise ConfigError(f"option {self._labels.get(name, name)!r} {words}")


def _label(label: str, option: Option) -> str:
    """Return the name that the user knows an option by; Spark passes names in lower case."""
    known = {name.lower(): name for name in (option.name, *option.aliases)}
    return known[label.lower()]


def listed(text: str) -> list[str]:
    """Return the parts of a text that are separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
