"""What TLS costs Kafka's clients: listeners with and without it, ours and Apache Kafka's, in one run.

`./dev bench tls` runs it, `--tiny` without Apache for the tests. The clients trust the authority of a certificate that
was made for the run; they do not show one of their own. See `run` for the cells and the rounds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script

from bench.kafka_door import servers  # noqa: E402
from bench.kafka_door.run import TINY, WHOLE, Figures, Kinds, Size, machine, of, run  # noqa: E402
from tests.certificates import Authority  # noqa: E402

SIZE = Size(
    rounds=3, startups=1, megabytes=WHOLE.megabytes, latency_s=WHOLE.latency_s, rebalances=False
)
PLAIN, TLS = "plain", "TLS"


def servers_of(
    maker: type[servers.Steelyard] | type[servers.Apache], authority: Authority
) -> Kinds:
    return {
        f"{maker.kind}, {PLAIN}": maker,
        f"{maker.kind}, {TLS}": partial(maker, authority=authority),
    }


def table(result: Figures, makers: list[str]) -> str:
    """A row for each figure, with what it is plain, with TLS, and TLS over plain, for each maker."""
    heads = [f"{maker}, {head}" for maker in makers for head in (PLAIN, TLS, "ratio")]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]

    def row(name: str, cell: str, figure: str, form: str) -> None:
        shown = []
        for maker in makers:
            plain, tls = (
                of(result["cells"][cell][f"{maker}, {kind}"], figure) for kind in (PLAIN, TLS)
            )
            shown += [format(plain, form), format(tls, form), f"{tls / plain:.2f}" if plain else ""]
        lines.append(f"| {name} | {' | '.join(shown)} |")

    for cell, by_kind in result["cells"].items():
        (first, *_) = by_kind.values()
        if "p50_ms" in first[0]:
            row(f"{cell}: p50, ms", cell, "p50_ms", ".2f")
            row(f"{cell}: p99, ms", cell, "p99_ms", ".2f")
        else:
            row(f"{cell}: messages/s", cell, "messages_per_s", ",.0f")
        row(f"{cell}: broker CPU, µs a message", cell, "broker_cpu_us_per_message", ".2f")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "bench")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "certificates")
        makers = [servers.Steelyard] if options.tiny else [servers.Steelyard, servers.Apache]
        kinds: Kinds = {k: v for maker in makers for k, v in servers_of(maker, authority).items()}
        result = run(TINY if options.tiny else SIZE, kinds, Path(folder))
    text = f"""# What TLS costs Kafka's clients

Written by `./dev bench tls` {machine()} Clients: confluent-kafka (librdkafka), in processes of their own on the same
cores, which encrypt and decrypt as well; one broker. Medians of the rounds, which alternate; a ratio is TLS over plain.

{table(result, [maker.kind for maker in makers])}
"""
    (options.out / "KAFKA_TLS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
