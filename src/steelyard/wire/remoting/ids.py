"""Message ids: offset ids (from brokers) and unique ids (from producers), and their hosts.

A host on the wire is 4 or 16 bytes of address and an int32 port, big-endian.
Source: MessageDecoder.createMessageId, decodeMessageId; MessageClientIDSetter.java.
"""

from __future__ import annotations

import struct
from ipaddress import ip_address

from steelyard.addresses import is_port
from steelyard.errors import ConfigError

_DAY_MS = 86_400_000
_ZONES_MS = 15 * 3_600_000
"""Maximum distance of local time from UTC, and of clocks from each other."""


def host_bytes(address: str) -> bytes:
    """Encode `ip:port` (`[ip]:port` for IPv6). Raises ConfigError for host names."""
    host, _, port = address.rpartition(":")
    try:
        number = int(port)
        if not 0 <= number <= 0xFFFF:
            raise ValueError
        return ip_address(host.strip("[]")).packed + number.to_bytes(4, "big")
    except ValueError:
        raise ConfigError(f"{address!r} is not an address; give it as ip:port") from None


def host_address(host: bytes) -> str:
    """Decode a host as `ip:port` (`[ip]:port` for IPv6)."""
    ip = ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big", signed=True)
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def offset_message_id(host: bytes, physical_offset: int) -> str:
    """Return the id by which the broker at `host` finds the message (VIEW_MESSAGE_BY_ID)."""
    return (host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def is_unique_id(text: str) -> bool:
    """Return whether it is a producer's id of a message, which may have the length of a broker's.

    It has a process and a salt where the broker's has the port.
    """
    try:
        address, _ = parse_offset_message_id(text)
    except ConfigError:
        return False
    return not is_port(address.rpartition(":")[2])


def parse_offset_message_id(text: str) -> tuple[str, int]:
    """Return (broker address, physical offset) of an id. Raises ConfigError for anything else."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28) or len(text) != 2 * len(data):
        raise ConfigError(f"{text!r} is not an offset message id; expected 32 or 56 hex digits")
    return host_address(data[:-8]), int.from_bytes(data[-8:], "big", signed=True)


class UniqueIds:
    """Generator of unique ids: ip, process, salt, milliseconds of the month, counter.

    Unique among producers with different (ip, pid, salt), and for 65,536 messages per millisecond.
    The month begins in UTC; Java uses its local time zone.
    """

    def __init__(self, ip: bytes, pid: int, salt: int) -> None:
        assert len(ip) in (4, 16)
        fixed = ip + struct.pack(">HI", pid & 0xFFFF, salt & 0xFFFFFFFF)
        self._prefix = fixed.hex().upper()
        self._counter = 0
        self._month_start = 0
        self._month_end = 0

    def next(self, now: int) -> str:
        """Return a new id: 32 hex digits, 56 if the ip is IPv6."""
        if not self._month_start <= now < self._month_end:
            self._month_start, self._month_end = _month_around(now)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{now - self._month_start:08X}{counter:04X}"


def born_after(unique_id: str, now: int) -> int:
    """Return the earliest time, in ms, at which a producer may have made an id; 0 if it is none.

    Ids contain the time within a month, not the month: those older than some weeks appear younger.
    """
    try:
        size = len(bytes.fromhex(unique_id))
    except ValueError:
        size = 0
    if size not in (16, 28):
        return 0
    month_start, _ = _month_around(now)
    since_month = int(unique_id[-12:-4], 16)
    if month_start + since_month - _ZONES_MS > now:
        month_start, _ = _month_around(month_start - 1)
    return max(0, month_start + since_month - _ZONES_MS)


def _month_around(now: int) -> tuple[int, int]:
    """Return start and end of the UTC month of `now`, in ms since the epoch."""
    days = now // _DAY_MS
    # Civil date from days, counted in years that begin with March: Howard Hinnant,
    # chrono-Compatible Low-Level Date Algorithms. datetime would not read a clock here, but pure
    # rooms do without it.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    first = days - (day_of_year - (153 * month + 2) // 5)
    if month == 11:  # February
        year = era * 400 + year_of_era + 1
        length = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        length = (31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31)[month]
    return first * _DAY_MS, (first + length) * _DAY_MS
