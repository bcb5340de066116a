"""Which snapshot the producer state is loaded from."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.storage.log.producers import ProducerStates
from tests.broker.storage.logs import LogSetup, batch, rolled, written
from tests.broker.storage.transactions import ABORT, COMMIT, SMALL_SEGMENTS, begin, end


async def test_a_transaction_that_ended_above_the_high_watermark_is_unstable_after_a_restart(
    setup: LogSetup,
) -> None:
    log = await setup.open()
    begin(log, values=5)
    end(log, ABORT)
    await written(log)
    log.state.maybe_advance_high_watermark(3)
    await log.closer.close()
    setup.crash()
    log = await setup.open(high_watermark=3)
    assert (log.state.high_watermark, log.state.last_stable_offset) == (3, 0)
    log.state.maybe_advance_high_watermark(6)
    assert log.state.last_stable_offset == 6


async def test_an_unreadable_snapshot_is_skipped_for_the_one_before(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL_SEGMENTS)
    log = await setup.open()
    for number in range(10):
        begin(log, 7, number)
    await log.closer.close()
    dump = log.state.producers.dump().producers
    setup.crash()
    snapshots = sorted((tmp_path / "t-0").glob("*.snapshot"))
    assert len(snapshots) > 1
    snapshots[-1].write_bytes(b"\x00\x01broken")
    log = await setup.open(recovery_point=10, high_watermark=10)
    assert log.state.producers.dump().producers == dump
    assert (log.state.first_unstable_offset, log.state.last_stable_offset) == (0, 0)
    assert not snapshots[-1].exists()
    setup.close()


async def test_orderly_stops_leave_one_snapshot_besides_those_of_the_segments(setup: LogSetup, tmp_path: Path) -> None:
    for number in range(4):
        log = await setup.open(recovery_point=number)
        begin(log, 7, number)
        await log.closer.close()
        setup.crash()
    await setup.open(recovery_point=4)
    assert [path.name for path in (tmp_path / "t-0").glob("*.snapshot")] == [f"{4:020d}.snapshot"]


async def test_a_snapshot_has_the_open_transactions(tmp_path: Path) -> None:
    setup = LogSetup(str(tmp_path), SMALL_SEGMENTS)
    log = await setup.open()
    begin(log, 8)
    end(log, COMMIT, 8, coordinator_epoch=3)
    while len(log.state.segments) == 1:
        log.append_as_leader(batch(b"v" * 50), 0)
        begin(log, 9, log.state.assigned_offset)
        break
    while len(log.state.segments) == 1:
        log.append_as_leader(batch(b"v" * 50), 0)
    await rolled(log)
    base = log.state.segments[1].base_offset
    data = (tmp_path / "t-0" / f"{base:020d}.snapshot").read_bytes()
    states = ProducerStates.decode("s", data, base)
    found = {entry.producer_id: (entry.coordinator_epoch, entry.current_txn_first_offset) for entry in states.entries}
    assert found == {8: (3, -1), 9: (-1, 3)}
    assert states.transactions.first_undecided_offset == 3
    setup.close()
