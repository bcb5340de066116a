"""Damaged requests: a part of `python -m tests.fuzz`."""

from __future__ import annotations

import random

import pytest

from ottla_broker.protocol import codec
from tests.fuzz.drawing import SERVED, Drawing, Known
from tests.fuzz.rounds import run_round


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_broker_withstands_damaged_requests(seed: int) -> None:
    outcome = run_round(seed)
    assert outcome.findings == []
    assert outcome.answered + outcome.closed == outcome.cases
    assert outcome.answered > outcome.cases // 3


def test_a_broker_that_fails_at_a_request_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer's own test: a handler that raises."""
    from ottla_broker.server.handlers import metadata

    def fail(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(metadata, "handle", fail)
    outcome = run_round(1, 200)
    assert any("METADATA" in str(finding) and "planted" in str(finding) for finding in outcome.findings)


def test_every_version_of_every_listed_api_is_drawn() -> None:
    drawing = Drawing(random.Random(1), Known())
    drawn = set()
    for _ in range(12_000):
        api_key, version, frame = drawing.frame()
        header = codec.read_request_header(memoryview(frame)[4:])
        assert (header.api_key, header.api_version) == (api_key, version)
        codec.module(api_key).read_request(version, memoryview(frame)[4:], header.body_offset)
        drawn.add((api_key, version))
    missing = {(one.api_key, version) for one in SERVED for version in range(one.lowest, one.highest + 1)} - drawn
    assert missing == set()


def test_one_seed_is_one_round() -> None:
    assert run_round(3, 100) == run_round(3, 100)
