"""Certificates made with openssl: an authority, and those that it signs."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_IDENTIFIERS = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
"""Without these, and the authority's key usage, Python 3.13 trusts nobody (VERIFY_X509_STRICT)."""
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `certificate` is its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not here to make certificates")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        files = ("-keyout", self._key, "-out", self.certificate)
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        _openssl("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}", *usage, *files)

    def sign(self, name: str, subject: str, host: str = "IP:127.0.0.1,DNS:localhost") -> Pair:
        """Make a key and its certificate. `subject`: as `openssl req -subj` takes it."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request = self._folder / f"{name}.csr"
        extension = self._folder / f"{name}.ext"
        extension.write_text(f"subjectAltName={host}\n{_IDENTIFIERS}")
        _openssl(
            *("req", "-new", "-utf8", *_NEW_KEY, "-subj", subject),
            *("-keyout", pair.key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-days", "2", "-out", pair.certificate),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", extension),
        )
        return pair

    def client_context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with its own certificate."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
