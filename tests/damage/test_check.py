"""`check` and `salvage`: what is found in a folder of both dialects' data, what a repair keeps, and what it says is lost."""

from __future__ import annotations

import pytest
from tests.damage.both import SMALL, BothRig
from tests.damage.filling import filled
from tests.damage.reading import Plain, faults_of, read_everything

from steelyard.errors import DamageError, OwnerError
from steelyard.store import check, salvage
from steelyard.store.address import POSITION_MASK
from steelyard.store.check import DAMAGE, NOTE, CheckFinding, Summary
from steelyard.store.files import Files
from steelyard.store.identity import Identity
from steelyard.store.memory import Killed, MemoryDisk
from steelyard.store.store import Store

NOW = 1_700_000_100_000
ASIDE = "damaged-1"


def checked(disk: MemoryDisk) -> tuple[list[CheckFinding], Summary]:
    before = {path: bytes(file.data) for path, file in disk.files.items()}
    results = list(check.check(Files(disk)))
    assert {path: bytes(file.data) for path, file in disk.files.items()} == before
    findings = [result for result in results if isinstance(result, CheckFinding)]
    (summary,) = [result for result in results if isinstance(result, Summary)]
    assert summary.damage == sum(finding.severity == DAMAGE for finding in findings)
    return findings, summary


def segments(disk: MemoryDisk, topic: str, queue_id: int) -> list[str]:
    """The paths of a log's segments, the first one first; the number of the log, in the name of its folder, is found."""
    start = f"logs/{topic}/{queue_id}-"
    return sorted(path for path in disk.files if path.startswith(start) and path.endswith(".log"))


def repaired(disk: MemoryDisk) -> list[salvage.Deed]:
    findings, _ = checked(disk)
    deeds = list(salvage.repair(Files(disk), findings, "1", NOW))
    assert [finding for finding in checked(disk)[0] if finding.severity == DAMAGE] == []
    return deeds


@pytest.fixture(scope="module")
def whole() -> MemoryDisk:
    return filled()


@pytest.fixture(scope="module")
def expected(whole: MemoryDisk) -> Plain:
    return read_everything(BothRig(whole.copy()))


def test_a_sound_folder_has_no_findings(whole: MemoryDisk) -> None:
    findings, summary = checked(whole.copy())
    assert findings == []
    assert summary.clean_stop
    assert summary.owner.broker == "broker-a"
    tables = [path for path in whole.files if path.startswith("tables/")]
    logs = {path.rpartition("/")[0] for path in whole.files if path.startswith("logs/")}
    assert (summary.tables, summary.logs) == (len(tables), len(logs))
    store = BothRig(whole.copy()).store
    kept = [log for topic in store.topics() for log in store.logs(topic)]
    left = 5 + 1  # in their segments: by DeleteRecords, by the compaction of __transaction_state
    assert summary.messages == sum(log.max_offset - log.min_offset for log in kept) + left


def test_after_a_kill_a_torn_write_is_a_note(whole: MemoryDisk) -> None:
    disk = whole.copy()
    disk.remove("clean-stop")
    data = disk.files["tables/offsets.table"].data
    del data[-3:]
    findings, _ = checked(disk)
    (finding,) = findings
    assert (finding.severity, finding.path) == (NOTE, "tables/offsets.table")
    assert finding.position + finding.size == len(data)


def test_after_a_clean_stop_the_end_of_a_table_is_reported_as_lost(whole: MemoryDisk) -> None:
    disk = whole.copy()
    del disk.files["tables/offsets.table"].data[-3:]
    (finding,) = checked(disk)[0]
    assert (finding.severity, finding.path) == (DAMAGE, "tables/offsets.table")
    (deed,) = [deed for deed in repaired(disk) if deed.lost]
    assert deed.path == "tables/offsets.table"
    assert f"from byte {finding.position} on" in deed.lost


def test_a_damaged_table_loses_the_damaged_record_only(whole: MemoryDisk, expected: Plain) -> None:
    disk = whole.copy()
    path = "tables/kafka_offsets.table"
    before = bytes(disk.files[path].data)
    disk.files[path].data[30] ^= 8
    with pytest.raises(DamageError, match="kafka_offsets"):
        BothRig(disk.copy())
    (finding,) = checked(disk)[0]
    assert (finding.severity, finding.part, finding.path, finding.position) == (
        DAMAGE,
        check.TABLE,
        path,
        0,
    )
    deeds = repaired(disk)
    (deed,) = [deed for deed in deeds if deed.lost]
    assert deed.path == path
    assert "at byte 0" in deed.lost
    aside = disk.files[f"{ASIDE}/{path}"].data
    assert len(aside) == len(before)
    assert bytes(disk.files[path].data) == before[finding.size :]
    # The offset was committed again later: only its first value is gone.
    assert read_everything(BothRig(disk)) == expected


def test_what_is_lost_from_a_table_is_named(whole: MemoryDisk) -> None:
    disk = whole.copy()
    path = "tables/offsets.table"
    disk.files[path].data[-1] ^= 1
    (deed,) = [deed for deed in repaired(disk) if deed.lost]
    assert "'others@orders" in deed.lost or "orders@others" in deed.lost
    assert "an older value becomes current" in deed.lost
    offsets = read_everything(BothRig(disk))["offsets"]
    assert isinstance(offsets, dict)
    assert offsets["others orders/1"] == "6"
    assert offsets["readers orders/1"] == "9"


def test_a_lost_list_of_logs_is_made_anew(whole: MemoryDisk, expected: Plain) -> None:
    for damage in ("remove", "flip"):
        disk = whole.copy()
        if damage == "remove":
            disk.remove("tables/logs.table")
        else:
            disk.files["tables/logs.table"].data[200] ^= 1
        with pytest.raises(DamageError, match=r"tables/logs\.table"):
            BothRig(disk.copy())
        repaired(disk)
        found = read_everything(BothRig(disk))
        assert {name: found[name] for name in ("remoting", "kafka", "committed")} == {
            name: expected[name] for name in ("remoting", "kafka", "committed")
        }


def test_a_new_log_gets_no_id_that_a_folder_has(whole: MemoryDisk) -> None:
    disk = whole.copy()
    disk.remove("tables/logs.table")
    repaired(disk)
    store = BothRig(disk).store
    ids = {log.log_id for topic in store.topics() for log in store.logs(topic)}
    assert store.create_log("new", 0).log_id > max(ids)


def test_a_second_log_of_a_queue_is_set_aside(whole: MemoryDisk, expected: Plain) -> None:
    disk = whole.copy()
    folder = segments(disk, "events", 1)[0].rpartition("/")[0]
    names = [path for path in disk.files if path.startswith(f"{folder}/")]
    for path in names:
        copy = path.replace(folder, "logs/events/1-90")
        disk.make_folder(copy.rpartition("/")[0])
        disk.open(copy).write(0, bytes(disk.files[path].data))
    (finding,) = [finding for finding in checked(disk)[0] if finding.part == check.FOLDER]
    assert (finding.severity, finding.path) == (NOTE, "logs/events/1-90")
    findings, _ = checked(disk)
    deeds = list(salvage.repair(Files(disk), findings, "1", NOW))
    assert [deed.path for deed in deeds if deed.lost] == ["logs/events/1-90"]
    assert sum(path.startswith(f"{ASIDE}/logs/events/1-90/") for path in disk.files) == len(names)
    assert read_everything(BothRig(disk)) == expected


def test_a_table_that_is_gone_is_named(whole: MemoryDisk) -> None:
    disk = whole.copy()
    disk.remove("tables/offsets.table")
    (finding,) = checked(disk)[0]
    assert (finding.severity, finding.problem) == (DAMAGE, "is missing")
    (deed,) = [deed for deed in repaired(disk) if deed.lost]
    assert (deed.path, deed.lost) == ("tables/offsets.table", "everything that it held")
    assert faults_of(read_everything(BothRig(disk))) == []


def test_a_damaged_identity_is_made_anew(whole: MemoryDisk, expected: Plain) -> None:
    disk = whole.copy()
    disk.files["format"].data[80] ^= 1
    with pytest.raises(DamageError):
        BothRig(disk.copy())
    repaired(disk)
    assert f"{ASIDE}/format" in disk.files
    assert read_everything(BothRig(disk)) == expected


def test_a_directory_is_given_to_another_broker(whole: MemoryDisk) -> None:
    disk = whole.copy()
    other = Identity("DefaultCluster", "id", "broker-b", 7)
    with pytest.raises(OwnerError):
        Store(disk, SMALL.store, other).open(NOW)
    assert salvage.disown(Files(disk)).broker == "broker-a"
    Store(disk, SMALL.store, other).open(NOW)
    assert checked(disk)[1].owner == other


def test_a_repair_that_is_killed_is_run_again(whole: MemoryDisk, expected: Plain) -> None:
    disk = whole.copy()
    disk.remove("tables/logs.table")
    disk.files["tables/kafka_offsets.table"].data[30] ^= 8
    for alive in range(0, 6_000, 353):
        half = disk.copy()
        half.kill_after_bytes = alive
        try:
            repaired(half)
        except Killed:
            half = half.copy()
            repaired(half)
        half.kill_after_bytes = None
        assert read_everything(BothRig(half)) == expected


@pytest.mark.parametrize(("topic", "offset"), [("orders", 7), ("mixed", 12), ("mixed", 13)])
def test_a_damaged_entry_is_passed_over_and_nothing_else_is(
    whole: MemoryDisk, expected: Plain, topic: str, offset: int
) -> None:
    """By consumers of both dialects, be it a record or a batch; what is lost is named, and a copy of it is kept."""
    rig = BothRig(whole.copy())
    kept = rig.store.log(topic, 0)
    assert kept is not None
    begin = kept.address_at(offset) & POSITION_MASK
    count = 2 if kept.address_at(offset + 1) & POSITION_MASK == begin else 1
    disk = whole.copy()
    path = segments(disk, topic, 0)[0]
    assert begin < disk.files[path].size(), "in the first segment"
    disk.files[path].data[begin + 70] ^= 1
    (finding,) = [each for each in checked(disk)[0] if each.severity == DAMAGE]
    assert (finding.part, finding.path, finding.position) == (check.LOG, path, begin)
    assert (finding.topic, finding.queue_id, finding.offset, finding.count) == (
        topic,
        0,
        offset,
        count,
    )
    (deed,) = [deed for deed in repaired(disk) if deed.lost]
    what = f"offset {offset}" if count == 1 else f"offsets {offset} to {offset + 1}"
    assert deed.lost == f"{what} of queue 0 of topic {topic!r}"
    aside = disk.files[f"{ASIDE}/{path}.{begin}"].data
    assert bytes(aside) == bytes(disk.files[path].data[begin : begin + finding.size])
    found = read_everything(BothRig(disk))
    assert faults_of(found) == []
    lost = {str(offset + number) for number in range(count)}
    for part, records in (("remoting", "messages"), ("kafka", "records")):
        for name in (f"{topic}/0", "events/1", "orders/1"):
            gone = lost if name == f"{topic}/0" else set()
            before, after = expected[part], found[part]
            assert isinstance(before, dict)
            assert isinstance(after, dict)
            wanted = {at: it for at, it in before[name][records].items() if at not in gone}
            assert after[name][records] == wanted
            assert after[name]["high"] == before[name]["high"]


def test_damage_in_messages_that_were_deleted_is_a_note(whole: MemoryDisk) -> None:
    disk = whole.copy()
    disk.files[segments(disk, "events", 0)[0]].data[70] ^= 1
    (finding,) = checked(disk)[0]
    assert (finding.severity, finding.offset) == (NOTE, 0)
    assert finding.problem.endswith("; these messages were deleted")
