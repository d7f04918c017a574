"""Identity of this process towards brokers: address, client id, message id salt."""

from __future__ import annotations

import os
import secrets
import socket
import time
from functools import cache
from itertools import count

from steelyard.wire.remoting.ids import UniqueIds

_instances = count()


@cache
def local_ip() -> str:
    """Return this machine's address as seen by others; 127.0.0.1 without a network.

    Connecting a datagram socket sends nothing: it only makes the kernel choose a source address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def new_client_id() -> str:
    """Return `ip@pid#nanoseconds`, as ClientConfig.buildMQClientId and changeInstanceNameToPID do.

    A counter and randomness are mixed into the nanoseconds: containers share addresses and process
    ids, and two members with one id starve each other (apache/rocketmq#1547).
    """
    moment = time.monotonic_ns() * 1000 + next(_instances) % 1000
    return f"{local_ip()}@{os.getpid()}#{moment ^ secrets.randbits(40)}"


def stable_client_id() -> str:
    """Return `ip@DEFAULT`, the same after each start, as in Java's broadcasting consumers.

    Source: ClientConfig.buildMQClientId.
    """
    return f"{local_ip()}@DEFAULT"


def new_ids() -> UniqueIds:
    """Create a generator of message ids; the salt stands for Java's class loader hash."""
    return UniqueIds(socket.inet_aton(local_ip()), os.getpid(), secrets.randbits(32))
