"""Compaction compared with a list: random appends, rolls, compactions, waits, crashes and restarts."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.records.compression import Codec
from ottla_broker.storage.cleaner.cleaner import CleanerSettings
from tests.broker.storage.cleaner.cleaning import (
    START_MS,
    Seen,
    Storage,
    append,
    close_segment,
    consume,
    extents,
    keyed,
)

_KEYS = st.sampled_from([b"a", b"b", b"c", b"a key of more than fifteen bytes", b"another one of that kind"])
_VALUES = st.one_of(st.none(), st.binary(max_size=12))
_BATCHES = st.tuples(
    st.just("append"), st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=5), st.sampled_from(list(Codec))
)
_STEPS = st.one_of(
    _BATCHES,
    _BATCHES,
    st.tuples(st.just("close segment")),
    st.tuples(st.just("clean")),
    st.tuples(st.just("wait"), st.sampled_from([400, 1000])),
    st.tuples(st.just("restart"), st.booleans()),
)
_DELETE_RETENTION_MS = 1000


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_STEPS, min_size=3, max_size=25), slots=st.sampled_from([3, 6, 1000]))
def test_a_compacted_log_has_the_last_value_of_every_key(steps: list[tuple], slots: int) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(_run(Path(path), steps, slots))


async def _run(path: Path, steps: list[tuple], slots: int) -> None:  # type: ignore[type-arg]
    storage = Storage(path, CleanerSettings(dedupe_buffer_size=24 * slots), delete_retention_ms=_DELETE_RETENTION_MS)
    log = await storage.start()
    model: list[Seen] = []
    first_cleaned: dict[int, int] = {}
    for name, *arguments in steps:
        if name == "append":
            records, codec = arguments
            info = append(log, keyed(*records, timestamp=START_MS + 10 * len(model), codec=codec))
            for number, (key, value) in enumerate(records):
                model.append(Seen(info.first_offset + number, key, value, START_MS + 10 * len(model) - 9 * number))
            model[-len(records) :] = [
                one._replace(timestamp=model[-len(records)].timestamp + number)
                for number, one in enumerate(model[-len(records) :])
            ]
        elif name == "close segment":
            await close_segment(log)
        elif name == "wait":
            storage.pass_time(arguments[0])
        elif name == "restart":
            log = await storage.again(is_clean=arguments[0])
            log.state.maybe_advance_high_watermark(log.state.log_end_offset)
        else:
            await storage.clean(log)
            last = {one.key: one.offset for one in model}
            for offset in last.values():
                first_cleaned.setdefault(offset, storage.wall_ms)
            assert log.state.clean_offset == log.state.log_end_offset or not model
        seen = await consume(log)
        by_offset = {one.offset: one for one in model}
        assert all(by_offset.get(one.offset) == one for one in seen)
        assert [one.offset for one in seen] == sorted({one.offset for one in seen})
        state = {one.key: one.value for one in seen}
        expected = {one.key: one.value for one in model}
        assert {key: value for key, value in state.items() if value is not None} == {
            key: value for key, value in expected.items() if value is not None
        }
        if name == "clean":
            assert len(seen) == len(state)  # one record a key
            # Recovery takes a gap between two segments for a hole, unless Apache Kafka's cleaner has left it.
            assert [end for _, end in extents(path)[:-1]] == [base for base, _ in extents(path)[1:]]
        for one in model:
            is_last = all(other.key != one.key or other.offset <= one.offset for other in model)
            age = storage.wall_ms - first_cleaned.get(one.offset, storage.wall_ms)
            if is_last and one.value is None and age < _DELETE_RETENTION_MS:
                assert one in seen
    storage.close()
