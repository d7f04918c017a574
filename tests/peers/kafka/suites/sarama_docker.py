"""The part of `docker compose` that sarama's own tests use, for brokers that run without containers.

tests/peers/kafka/proxied.py starts those, and says in the environment where they are.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def order(what: str, service: str) -> None:
    """Have a broker stopped or started; returns when that is done."""
    port = int(os.environ["SUITE_ORDERS"])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{what} {service}\n".encode())
        if not connection.recv(16):
            sys.exit(f"{service}: {what} has failed")


def run(command: list[str]) -> None:
    """Become one of Kafka's tools, or a shell that does; it is told where the tools and the first broker are."""
    version = os.environ["KAFKA_VERSION"]
    places = {
        f"/opt/kafka-{version}/bin": os.environ["SUITE_TOOLS"],
        "kafka-1:9091": os.environ["SUITE_BROKER"],
    }
    for name, place in places.items():
        command = [word.replace(name, place) for word in command]
    os.execvp(command[0], command)


match sys.argv[1:]:
    case ["compose", "start" | "stop" as what, service]:
        order(what, service)
    case ["compose", "logs", "--since", _, service]:
        print((Path(os.environ["SUITE_LOGS"]) / f"{service}.log").read_text())
    case ["compose", "exec", "-T", "kafka-1", *command]:
        run(command)
    case ["compose", "up" | "down" | "rm", *_] | ["compose", "--profile", "zookeeper", *_]:
        pass  # the brokers are there before the tests begin, and stay
    case words:
        sys.exit(f"unknown words: {words}")
