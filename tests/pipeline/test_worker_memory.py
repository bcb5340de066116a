"""The garbage collection behind each of Spark's Python tasks."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace

import pytest

from ottla_pipeline import worker_memory


def test_what_a_worker_has_loaded_is_collected_once_and_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_memory, "_done_in", None)
    before = gc.get_freeze_count()
    worker_memory.exempt_loaded_modules()
    assert gc.get_freeze_count() == before, "this process is no worker of Spark's daemon"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"), raising=False)
    try:
        worker_memory.exempt_loaded_modules()
        frozen = gc.get_freeze_count()
        assert frozen > before + 10_000
        again = [[] for _ in range(1000)]
        worker_memory.exempt_loaded_modules()
        assert gc.get_freeze_count() <= frozen and len(again) == 1000
    finally:
        gc.unfreeze()
