"""The files of `deploy/`: their settings and commands are ones that the code knows."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from steelyard.admin import server_options
from steelyard.admin.main import build_parser
from steelyard.config import BrokerConfig, HttpConfig, NameserverConfig
from steelyard.servers.deployment import Deployment, check_ports
from steelyard.settings import build, from_table, settings_of

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS = DEPLOY / "steelyard.toml"
TABLES: dict[str, type] = {
    "up": Deployment,
    "nameserver": NameserverConfig,
    "broker": BrokerConfig,
    "http": HttpConfig,
}
EXAMPLES = {"kafka_port", "http_port", "nameservers", "kafka.brokers"}
"""Settings that have no default which could be written."""


def parse(words: list[str]) -> argparse.Namespace:
    """What our own parser makes of a command; exits for one that is wrong."""
    assert Path(words[0]).name == "steelyard"
    return build_parser().parse_args(words[1:])


def written() -> list[tuple[str, str]]:
    """Every setting of the file: its table, and its line without the comment sign."""
    table, found = "", []
    for line in SETTINGS.read_text().splitlines():
        if line.startswith("["):
            table = line.strip("[]")
        elif re.match(r"#\w", line):
            found.append((table, line[1:]))
    return found


@pytest.mark.parametrize(("table", "line"), written())
def test_each_setting_is_accepted_alone_and_has_its_default(table: str, line: str) -> None:
    root, _, inner = table.partition(".")
    cls = TABLES[root]
    values = from_table(cls, tomllib.loads(f"[{table}]\n{line}")[root])
    (name,) = values
    assert name == ".".join(filter(None, (inner, line.partition(" ")[0])))
    build(cls, values)
    if name not in EXAMPLES:
        assert values[name] == settings_of(cls)[name].default


def test_all_settings_are_there_and_accepted_together() -> None:
    text = re.sub(r"^#(?=\w)", "", SETTINGS.read_text(), flags=re.MULTILINE)
    tables = tomllib.loads(text)
    assert list(tables) == list(server_options.TABLES)
    for table, cls in TABLES.items():
        values = from_table(cls, tables[table])
        build(cls, values)
        assert values.keys() == settings_of(cls).keys()


@pytest.mark.parametrize(("command", "cls"), [("broker", BrokerConfig), ("up", Deployment)])
def test_the_file_as_it_is_changes_nothing(command: str, cls: type) -> None:
    options = parse(["steelyard", command, "--data", "x", "--config", str(SETTINGS)])
    assert server_options.values(options, command, cls) == {}


# -- the image and the unit ------------------------------------------------------------------------


def docker(instruction: str) -> list[str]:
    """The arguments of the last instruction of this name, which are JSON or words."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    (*_, found) = re.findall(rf"^\s*{instruction}\s+(.*)$", text, re.MULTILINE)
    words: list[str] = json.loads(found) if found.startswith("[") else found.split()
    return words


def test_what_the_image_runs() -> None:
    options = parse(docker("ENTRYPOINT") + docker("CMD"))
    assert [options.data] == docker("VOLUME")
    layout = server_options.layout(options)
    ports = (layout.nameserver_port, layout.broker_port, layout.kafka_port)
    assert docker("EXPOSE") == [str(port) for port in ports]
    assert docker("STOPSIGNAL") == ["SIGTERM"]
    assert docker("USER") == ["steelyard"]


def test_how_the_image_is_examined() -> None:
    words = docker("HEALTHCHECK")
    options = parse(json.loads(" ".join(words[words.index("CMD") + 1 :])))
    layout = server_options.layout(parse(docker("ENTRYPOINT") + docker("CMD")))
    assert options.brokerAddr == f"127.0.0.1:{layout.broker_port}"


def test_what_compose_runs_and_examines() -> None:
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
    (listed,) = re.findall(r"command:\n((?: {6}- .*\n)*)", text)
    command = re.findall(r"- (.*)\n", listed)
    options = parse(["steelyard", *command])
    assert options.config == "/etc/steelyard.toml"
    layout = server_options.layout(argparse.Namespace(**vars(options) | {"config": None}))
    check_ports(layout)
    ports = (layout.nameserver_port, layout.broker_port, layout.kafka_port)
    published = re.findall(r'- "127.0.0.1:(\d+):(\d+)"', text)
    assert published == [(str(port), str(port)) for port in ports]
    assert (layout.advertise, layout.kafka_advertise) == ("127.0.0.1", "127.0.0.1")
    (words,) = re.findall(r"test: \[CMD, (.*)\]", text)
    checked = parse([word.strip(' "') for word in words.split(",")])
    assert checked.brokerAddr == f"127.0.0.1:{layout.broker_port}"


def service() -> str:
    return (DEPLOY / "steelyard.service").read_text()


def test_what_the_unit_runs() -> None:
    (command,) = re.findall("^ExecStart=(.*)$", service(), re.MULTILINE)
    options = parse(shlex.split(command))
    assert options.config == "/etc/steelyard.toml"
    assert options.data == "/var/lib/" + re.findall("StateDirectory=(.*)", service())[0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "steelyard.service"
    unit.write_text(service().replace("/opt/steelyard/bin/steelyard", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.peer
def test_the_wheel_of_the_image_runs_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """The steps of the Dockerfile, but for Docker's; needs the package index."""
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    wheels = tmp_path / "wheels"
    for command in (
        [sys.executable, "-m", "venv", str(tmp_path / "venv")],
        [*pip, "install", "--quiet", "build"],
        [str(python), "-m", "build", "--wheel", "--outdir", str(wheels), str(DEPLOY.parent)],
    ):
        subprocess.run(command, check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--quiet", f"{wheel}[http,uvloop]"], check=True)
    program = ["-c", "import uvicorn, uvloop, steelyard; print(steelyard.__file__)"]
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [str(python), *program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))
    done = subprocess.run(
        [str(python.with_name("steelyard")), "--version"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("steelyard ")
