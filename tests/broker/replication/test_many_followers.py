"""Thousands of followers of one leader join its fetch session in several requests, and are looked at in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from ottla_broker.replication import fetcher
from ottla_broker.replication.leader_session import LeaderSession
from tests.broker.replication.fleet import Fleet

PARTITIONS, A_REQUEST = 11, 3


@pytest.mark.parametrize("has_sessions", [True, False])
async def test_followers_join_a_session_in_several_requests_where_the_leader_gives_one(
    three: Fleet, has_sessions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session each request names everybody: else whoever is not in the first would never be fetched."""
    monkeypatch.setattr(fetcher, "JOINING", A_REQUEST)
    if not has_sessions:
        on_answer = LeaderSession.on_answer
        monkeypatch.setattr(LeaderSession, "on_answer", lambda self, session_id: on_answer(self, 0))
    joining: list[int] = []
    question = LeaderSession.question

    def counted(self: LeaderSession[Any], parts: Iterable[Any]) -> Any:
        parts = list(parts)
        joining.append(sum(self.is_full or not self.holds(asking) for asking, _ in parts))
        return question(self, parts)

    monkeypatch.setattr(LeaderSession, "question", counted)
    await three.create("many", (1, 2, 3), partitions=PARTITIONS)
    for index in range(PARTITIONS):
        produced = await three.produce(1, "many", f"v{index}", index=index, acks=-1)
        assert produced.error_code == 0
    assert [await three.values(1, "many", index) for index in range(PARTITIONS)] == [
        [f"v{index}"] for index in range(PARTITIONS)
    ]
    if has_sessions:
        assert max(joining) <= A_REQUEST
    else:
        assert max(joining) >= PARTITIONS


async def test_followers_that_come_and_go_between_two_slices_miss_nothing(
    three: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice is one partition: elections and writes come between them, and no sweep finds what was missed."""
    monkeypatch.setattr(fetcher, "SLICE", 1)
    monkeypatch.setattr(fetcher, "SWEEP_S", 3600.0)
    await three.create("many", (1, 2, 3), partitions=PARTITIONS)
    leaders = dict.fromkeys(range(PARTITIONS), 1)
    written: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
    for number in range(6):
        moved = [index for index in range(PARTITIONS) if index % 6 == number]

        async def write(index: int, number: int = number) -> None:
            value = f"v{number}"
            assert (await three.produce(leaders[index], "many", value, index=index, acks=-1)).error_code == 0
            written[index].append(value)

        staying = [index for index in range(PARTITIONS) if index not in moved]
        for index in moved:
            leaders[index] = leaders[index] % 3 + 1
        await asyncio.gather(
            *(write(index) for index in staying),
            *(three.elect("many", leaders[index], (1, 2, 3), index=index) for index in moved),
        )
    for index in range(PARTITIONS):
        assert (await three.produce(leaders[index], "many", "last", index=index, acks=-1)).error_code == 0
        assert await three.values(leaders[index], "many", index) == [*written[index], "last"]
