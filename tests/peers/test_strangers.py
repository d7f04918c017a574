"""Unmodified clients at the wrong port: the log says what they speak, and where they should go."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.peers.apache import NEW, Missing, Peer, free_port, java_environment
from tests.peers.kafka import builds, servers
from tests.peers.kafka.servers import QUICK_START, QUIET
from tests.waiting import until

pytestmark = pytest.mark.peer


class Server(NamedTuple):
    """The ports of one `steelyard up`, and its log."""

    nameserver: str
    broker: str
    kafka: str
    log: Path

    def says(self, *words: str) -> None:
        """Wait until a line of the log has all of these."""

        def is_said() -> bool:
            lines = self.log.read_text().splitlines()
            return any(all(word in line for word in words) for line in lines)

        until(is_said, f"{words} in {self.log}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("strangers")
    port = free_port()
    with servers.run_steelyard(folder, "--broker-port", str(port)) as running:
        broker = f"127.0.0.1:{port}"
        yield Server(running.nameserver, broker, running.bootstrap, folder / "up.log")


@pytest.mark.parametrize(
    ("port", "place"), [("nameserver", "nameserver"), ("broker", "RocketMQ port")]
)
def test_kafkas_java_client(server: Server, port: str, place: str) -> None:
    try:
        jars = f"{builds.jars('server', builds.SERVER)}/*"
    except Missing as reason:
        pytest.skip(f"no foreign peer: {reason}")
    java = ["java", *QUICK_START, QUIET, "-cp", jars, "org.apache.kafka.tools.TopicCommand"]
    client = subprocess.Popen(
        [*java, "--list", "--bootstrap-server", getattr(server, port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=java_environment(),
    )
    try:
        server.says("speaks Kafka's protocol to", place, "Kafka clients connect to")
    finally:
        client.kill()  # it goes on trying for a minute
        client.wait()


def test_rocketmqs_java_client(server: Server, peers: dict[str, Peer], name: str) -> None:
    """It takes the Kafka port for a nameserver. The log would not say the same of a second one for a while."""
    peer = peers[NEW]
    peer.ask("producer", f"{name}p", server.kafka, f"{name}pg")
    with pytest.raises(AssertionError, match=r"MQClientException|Remoting"):
        peer.ask("send", f"{name}p", name, "s", 0, 1, 60)
    server.says("speaks RocketMQ's remoting protocol to", "Kafka port", server.broker)
    peer.ask("stop", f"{name}p")


PLACES = {
    "nameserver": "a RocketMQ nameserver",
    "broker": "the RocketMQ port of broker",
    "kafka": "the Kafka port of broker",
}


@pytest.mark.parametrize("port", PLACES)
@pytest.mark.parametrize(
    ("options", "scheme", "speech"),
    [
        (("--http2-prior-knowledge",), "http", "HTTP/2 (gRPC"),
        ((), "http", "HTTP"),
        ((), "https", "TLS"),
    ],
    ids=["HTTP/2", "HTTP", "TLS"],
)
def test_curl(
    server: Server, port: str, options: tuple[str, ...], scheme: str, speech: str
) -> None:
    """From an address of its own for each port: a broker names the same one with the same protocol once for all its ports."""
    if shutil.which("curl") is None:
        pytest.skip("no curl on the PATH")
    address = f"127.0.0.{2 + [*PLACES].index(port)}"
    command = ["curl", "--silent", "--show-error", "--max-time", "20", "--interface", address]
    url = f"{scheme}://{getattr(server, port)}/"
    done = subprocess.run([*command, *options, url], capture_output=True, text=True, timeout=30)
    if speech == "HTTP":
        assert "HTTP is not served here" in done.stdout
    else:
        assert done.returncode not in (0, 28), done  # 28: it waited until its time was over
    server.says(f"{address}:", f" speaks {speech}", f" to {PLACES[port]}")
