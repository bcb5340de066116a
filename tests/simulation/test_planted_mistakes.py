"""The judge judged: mistakes planted into the broker, one at a time, must each be found within a few seeds."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_broker.replication import isr
from ottla_broker.storage import recovery
from ottla_broker.storage.directory_loading import DirectoryLoader
from ottla_broker.storage.log import Log
from ottla_broker.storage.producers import ProducerStates
from simulation.runner import run_seed


def found_by(scenario: str, seeds: range) -> str:
    """What the first failing seed says, "" when all pass."""
    for seed in seeds:
        outcome = run_seed(scenario, seed)
        if outcome.error:
            return outcome.error
    return ""


def test_acknowledging_before_the_sync_that_flush_messages_asks_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "_sync_or_track", lambda self, segment, write: self._track(write, None))
    assert found_by("single", range(60)) != ""


def test_claiming_more_flushed_than_the_platter_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flush(self: Any, up_to: int | None = None) -> None:
        await self._write_epochs()
        self.flushed_offset = self.recovery_point = self.log_end_offset

    monkeypatch.setattr(Log, "_flush", flush)
    found = found_by("log", range(40))
    assert "the platter has" in found and "virtual time passes" not in found


def test_taking_torn_batches_for_whole_ones_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "is_batch_intact", lambda batch, magic: True)
    # One seed in sixty has such a batch where it does harm: from shortly before one that has, as far as it takes.
    assert found_by("log", range(70, 470)) != ""


def test_forgetting_the_sequences_of_idempotent_producers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda *arguments: None)
    assert "stands at offsets" in found_by("single", range(20))


def test_a_high_watermark_that_does_not_wait_for_the_followers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(current: int, leader_end_offset: int, *rest: Any) -> isr.Watermark:
        return isr.Watermark(max(current, leader_end_offset), "impatience")

    monkeypatch.setattr(isr, "high_watermark", impatient)
    assert found_by("replicated", range(40)) != ""


def test_losing_a_log_at_a_restart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load_nothing(self: Any, directory: Any) -> None:
        for name, is_directory, _ in await directory.disk.list():
            if is_directory:
                await directory.disk.delete(name)

    monkeypatch.setattr(DirectoryLoader, "load", load_nothing)
    assert found_by("single", range(10)) != ""
