"""An administrator that continues without the brokers that do not answer, and remembers them.

`steelyard.Admin` raises for the first broker that is unreachable, because a program must not take a
part for the whole. A command prints what the other brokers said, names those that are missing, and
ends with `exits.UNREACHABLE`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from steelyard.admin.answers import Unreachable
from steelyard.checks import Int32
from steelyard.client.aio.admin import Admin
from steelyard.errors import BrokerError, RemotingError, SteelyardError
from steelyard.wire.remoting.command import Command
from steelyard.wire.remoting.headers import Header


class PatientAdmin(Admin):
    """As `Admin`, but of several brokers those that do not answer are left out.

    Each broker is waited for once: later requests to it fail at once. Nameservers are not
    remembered, because one of them that answers is enough.
    """

    def __init__(self, nameservers: str | None = None, **options: Any) -> None:
        """Take the arguments of `Admin`."""
        super().__init__(nameservers, **options)
        self.failures: dict[str, RemotingError] = {}
        """The error of each broker that did not answer, by its address."""
        self.refusals: dict[str, BrokerError] = {}
        """The error of each broker that refused what the command goes on without."""

    async def ask(
        self,
        address: str,
        code: Int32,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> Command:
        failed = self.failures.get(address)
        if failed is not None:
            raise failed
        try:
            return await super().ask(address, code, header, body, timeout_ms=timeout_ms)
        except RemotingError as error:
            if address not in self.nameservers:
                self.failures[address] = error
            raise

    def _unanswered(self, error: RemotingError) -> None:
        """The command continues; `failures` has the error."""

    async def unreachable(self) -> list[Unreachable]:
        """Return the brokers that did not answer, or refused to, by address, with their names."""
        missing: dict[str, SteelyardError] = {**self.refusals, **self.failures}
        if not missing:
            return []
        names: dict[str, str] = {}
        with suppress(SteelyardError):
            for broker in (await self.clusters()).broker_addr_table.values():
                names |= dict.fromkeys(broker.broker_addrs.values(), broker.broker_name)
        return [
            Unreachable(address, names.get(address, ""), str(error), isinstance(error, BrokerError))
            for address, error in sorted(missing.items())
        ]


def told(broker: Unreachable) -> str:
    """Format for standard error."""
    name = f"{broker.broker_name} at {broker.address}" if broker.broker_name else broker.address
    return f"broker {name} {'refused' if broker.refused else 'did not answer'}: {broker.error}"
