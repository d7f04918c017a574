"""What the Kafka peer tests run, fetched through the ordinary package clients and built once per content.

Everything lands in `CACHE`, outside the repository, in folders that are there whole or not at all.
`Missing` says why a thing cannot be had.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.peers.apache import Missing, java_environment

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "steelyard-peers" / "kafka"

SERVER = "4.3.1"
"""The newest server that Maven Central has whole: of 4.4.0 it lacks kafka-tools."""
OLD, NEW = "3.9.2", "4.4.0"
"""The last clients of 3.x, and the newest."""
SPARK = "4.2.0"
"""The newest Kafka source that Maven Central has; PySpark 4.3 takes it."""
TOXIPROXY = "v2.12.0"


def jars(profile: str, version: str) -> Path:
    """The folder with the jars of one profile of `java/pom.xml`: clients, streams, connect, server (with the tools) or spark.

    Raises Missing.
    """
    need("java", "javac", "mvn")
    pom = HERE / "java" / "pom.xml"
    option = "spark.version" if profile == "spark" else "kafka.version"

    def fetch(folder: Path) -> None:
        call(
            [
                *("mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"),
                *("-P", profile, f"-D{option}={version}", "-DincludeScope=runtime"),
                f"-DoutputDirectory={folder}",
            ],
            f"Maven cannot fetch the jars of {profile} {version}",
        )

    return made(f"{profile}-{version}", [pom], fetch)


def java_classes(version: str) -> str:
    """The class path of the programs in `java/`, compiled against one version of kafka-clients. Raises Missing."""
    return _classes("clients", version, sorted((HERE / "java").glob("*.java")))


def share_classes() -> str:
    """The same of those in `java/share/`, which need kafka-clients 4.3. Raises Missing."""
    programs = sorted((HERE / "java" / "share").glob("*.java"))
    programs = [*programs, HERE / "java" / "Lines.java"]
    return _classes("clients", SERVER, programs, "share-classes")


def streams_classes(version: str) -> str:
    """The same of those in `java/streams/`, with Kafka Streams. Raises Missing."""
    programs = sorted((HERE / "java" / "streams").glob("*.java"))
    programs = [*programs, HERE / "java" / "Lines.java"]
    return _classes("streams", version, programs, "streams-classes")


def record_classes() -> str:
    """The same of those in `java/records/`, with the server. Raises Missing."""
    programs = sorted((HERE / "java" / "records").glob("*.java"))
    return _classes("server", SERVER, programs, "server-classes")


def _classes(profile: str, version: str, programs: list[Path], name: str = "classes") -> str:
    library = jars(profile, version)
    release = "17" if profile == "server" else "11"
    sources = [*programs, HERE.parent / "java" / "Json.java"]

    def compile_all(folder: Path) -> None:
        call(
            [
                *(
                    "javac",
                    "-nowarn",
                    "--release",
                    release,
                    "-encoding",
                    "UTF-8",
                    "-d",
                    str(folder),
                ),
                *("-cp", f"{library}/*", *map(str, sources)),
            ],
            f"the Java programs do not compile against Kafka {version}",
        )

    return f"{made(f'{name}-{version}', sources, compile_all)}:{library}/*"


def go_program(name: str, module: Path = HERE / "go") -> Path:
    """The program NAME of a Go module. Raises Missing."""
    need("go")
    shared = HERE.parent / "go" / "listener"
    sources = sorted([*module.glob("go.*"), *module.rglob("*.go"), *shared.iterdir()])

    def build(folder: Path) -> None:
        call(
            ["go", "build", "-o", f"{folder}/", "./..."],
            "the Go programs cannot be built",
            cwd=module,
        )

    return made("go", sources, build) / name


def go_tests(
    package: str, module: Path = HERE / "go", *, tags: str = "", alone: bool = False
) -> tuple[Path, Path]:
    """The program of a package's own tests, in the version that the Go module names, and the folder to run it in. Raises Missing.

    With `alone` it is built where its sources are, with the dependencies that its own module names: ours lacks some.
    """
    need("go")
    name = f"{Path(package).name}.test"
    target = "." if alone else package
    found = call(
        ["go", "list", "-f", "{{.Dir}}", package], f"there are no sources of {package}", cwd=module
    )
    sources = Path(found.strip())

    def build(folder: Path) -> None:
        call(
            ["go", "test", "-c", "-tags", tags, "-o", str(folder / name), target],
            f"the tests of {package} cannot be built",
            cwd=sources if alone else module,
        )

    return made(name, sorted(module.glob("go.*")), build) / name, sources


def toxiproxy() -> Path:
    """Toxiproxy's server, in the version that sarama's tests use. Raises Missing."""
    need("go")

    def build(folder: Path) -> None:
        call(
            ["go", "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@{TOXIPROXY}"],
            "Toxiproxy cannot be built",
            environment={"GOBIN": str(folder)},
        )

    return made(f"toxiproxy-{TOXIPROXY}", [], build) / "server"


def node_program() -> Path:
    """`js/member.mjs` in a folder with its packages. Raises Missing."""
    need("node", "npm")
    sources = sorted((HERE / "js").glob("*.*"))

    def install(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        call(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"],
            "npm cannot install the packages of js/package.json",
            cwd=folder,
        )

    return made("js", sources, install) / "member.mjs"


def kcat() -> tuple[str, dict[str, str]]:
    """The program kcat, of this machine or out of Debian's packages, and its environment. Raises Missing."""
    found = shutil.which("kcat")
    if found:
        return found, {}
    need("apt-get", "dpkg")

    def unpack(folder: Path) -> None:
        packages = ("kcat", "librdkafka1", "libyajl2")
        download = ["apt-get", "download", *packages]
        try:
            call(download, "", cwd=folder)
        except Missing:  # a machine that never asked for the lists
            call(["apt-get", "update"], "apt cannot be asked for packages")
            call(download, "apt has no kcat", cwd=folder)
        for package in folder.glob("*.deb"):
            call(["dpkg", "-x", str(package), str(folder)], f"{package.name} cannot be unpacked")

    folder = made("kcat", [], unpack)
    libraries = {str(library.parent) for library in folder.rglob("*.so.1")}
    return str(folder / "usr/bin/kcat"), {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Missing(f"these peer tests need {program} on the PATH")


def made(name: str, sources: Iterable[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills from these sources; made anew when they change."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    folder = CACHE / f"{name}-{digest.hexdigest()[:12]}"
    with _alone():
        if not folder.exists():
            fresh = Path(tempfile.mkdtemp(dir=CACHE))
            try:
                make(fresh)
                fresh.chmod(0o755)  # apt's download user reads here
                fresh.rename(folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return folder


@contextmanager
def _alone() -> Iterator[None]:
    """One test process at a time: the first one makes what the others find."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def call(
    command: list[str],
    failure: str,
    cwd: Path = HERE,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a build step prints; Missing says what it said when it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**java_environment(), **environment},
            capture_output=True,
            text=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{failure}: no end after 600 s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()
        errors = [line for line in said if "error" in line.lower()]
        raise Missing(f"{failure}: {(errors or said or ['it said nothing'])[0][:500]}")
    return done.stdout
