"""The HTML report: complete, escaped, small, and in need of nothing from a network."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from steelyard.ledger import cost
from steelyard.ledger.columns import columns
from steelyard.ledger.events import Delivered, MemberJoined, RebalanceEnded, Record
from steelyard.ledger.tables import Costs, Rebalance
from steelyard.spark import charts
from steelyard.spark.charts import latencies, new_figure
from steelyard.spark.ownership import DeliverySpan
from steelyard.spark.report import Section, Totals, causes, write_report

PLOTLY = "plotly.min.js"
EVIL = "m2<script>alert(1)</script>"


def records() -> list[Record]:
    found: list[Record] = []
    for at, client, members in ((0, "m1", ("m1",)), (10_000, EVIL, ("m1", EVIL))):
        found.append(
            MemberJoined(
                at=at, broker="a", group="g", client=client, cause="heartbeat", members=members
            )
        )
    for n, client in ((1, "m1"), (2, "m1"), (12, EVIL), (13, EVIL)):
        found.append(
            Delivered(
                at=n * 1000,
                broker="broker-a",
                group="g",
                client=client,
                topic="T",
                queue=0,
                until=n * 1000 + 500,
                first=n * 10,
                next=n * 10 + 10,
                count=10,
                stored=n * 1000 - 300,
            )
        )
    return found


class Page(HTMLParser):
    """What a browser would see: texts outside of scripts, and addresses it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and not {"script", "style"} & set(self.open):
            self.texts.append(data.strip())


def test_the_report_holds_everything(tmp_path: Path) -> None:
    tables = cost.costs(records())
    path = write_report(
        tmp_path / "deep" / "report.html",
        held=records(),
        costs=tables,
        sections=[Section("A chart of mine", "With a note.", new_figure(100))],
        totals=Totals(published=1_000, consumed=1_000, lost=0, sent_again=4, reprocessed=7),
    )
    text = path.read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert page.loads == [PLOTLY]
    assert (path.parent / PLOTLY).stat().st_size > 1_000_000
    assert (
        "published 1,000, consumed 1,000 distinct, lost 0, sent again 4, reprocessed 7"
        in page.texts
    )
    headings = [column.heading for column in columns(Rebalance).values() if column.heading]
    place = page.texts.index("began")
    assert page.texts[place : place + len(headings)] == headings
    assert "Longest pause." in page.texts
    assert page.texts[page.texts.index("A chart of mine") + 1] == "With a note."
    cells = page.texts[place:]
    assert "left (closed)" not in cells
    assert cells.count("joined") == 3  # twice in one table, once summed up
    assert "300 ms" in cells  # stored 300 ms before its first delivery to the new owner
    assert EVIL not in text.replace("\\u003c", "<").split("</style>")[0]
    assert EVIL in page.texts  # as text, not as a script
    assert text.count("Plotly.newPlot(") == 6


def test_a_report_without_totals_has_no_check_line(tmp_path: Path) -> None:
    path = write_report(tmp_path / "r.html", held=records(), costs=cost.costs(records()))
    assert 'class="check' not in path.read_text("utf-8")


def test_a_report_of_nothing(tmp_path: Path) -> None:
    totals = Totals(published=3, consumed=2, lost=1, sent_again=0, reprocessed=0)
    path = write_report(tmp_path / "r.html", held=[], costs=Costs([], []), totals=totals)
    page = Page(path.read_text("utf-8"))
    assert "no rebalance" in page.texts
    assert 'class="check bad"' in path.read_text("utf-8")


def test_a_long_ledger_makes_no_large_page(tmp_path: Path) -> None:
    found = records()
    for n in range(5_000):
        client, at = ("m1", EVIL)[n % 2], 20_000 + n * 1000
        found.append(msgspec.structs.replace(found[-1], at=at, until=at + 500, client=client))
    few = cost.costs(records())
    many = Costs(few.handoffs * 3_000, few.rebalances * 600)
    path = write_report(tmp_path / "r.html", held=found, costs=many)
    assert path.stat().st_size < 1_000_000
    assert "3000 queues moved or stood still" in " ".join(Page(path.read_text("utf-8")).texts)


def test_rebalances_are_summed_up_by_trigger_and_strategy() -> None:
    ended = RebalanceEnded(
        at=10_001, broker="a", group="g", generation=2, protocol="range", duration_ms=1, members=()
    )
    found = [*records(), ended]
    tables = cost.costs(found)
    first, second = causes(tables.rebalances, tables.handoffs, found)
    assert (first.trigger, first.strategy, first.rebalances, first.queues) == ("joined", "", 1, 0)
    assert (second.trigger, second.strategy, second.queues) == ("joined", "range", 1)
    assert (second.pause_p50_ms, second.pause_max_ms, second.reprocessed) == (300, 300, "0")


def test_latencies_have_periods_without_deliveries() -> None:
    deliveries = [one for one in records() if isinstance(one, Delivered)]
    periods = latencies(deliveries)
    assert list(periods) == list(range(1_000, 14_000, 1_000))
    assert [at for at, waited in periods.items() if waited] == [1_000, 2_000, 12_000, 13_000]
    assert periods[1_000] == [300]
    assert latencies([]) == {}


def test_the_trend_is_a_median_of_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "TREND_MS", 2)
    trend = charts._trend([0, 1, 2, 3, 4], [1, 9, 2, 2, 100], [0, 2, 4])
    assert trend == [1, 2, 2]


def test_one_delivery_is_a_bar_that_can_be_seen() -> None:
    """A member that has got everything at once had the queue, too."""
    spans = [DeliverySpan("a:0", "m1", 0, 0), DeliverySpan("a:1", "m1", 5_000, 60_000)]
    (bars,) = charts.owners(spans, {"m1": "A"}, {"m1": "#000000"}, ()).data
    assert [*bars.x] == [60_000 // charts.BARS_MAX, 55_000]
    assert charts.owners([], {}, {}, ()).data == ()
