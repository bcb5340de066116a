"""Any sequence of calls has the same outcome on the embedded store and on a real ZooKeeper.

The contract names the rules that we know; this finds the ones we do not. zxids differ between the two stores and are
compared by their order only.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.ports.coordination import (
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    Operation,
    Set,
    Stat,
    WatchEvent,
)

PATHS = ("/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x")
SESSIONS = 2


@dataclass(frozen=True)
class Read:
    """get, exists or children by one session."""

    kind: str
    path: str
    is_watching: bool


paths = st.sampled_from(PATHS)
versions = st.sampled_from((-1, 0, 1, 2))
creates = st.builds(
    Create, paths, st.sampled_from((b"", b"data")), st.booleans(), st.integers(0, 4).map(lambda n: n == 0)
)
operations: st.SearchStrategy[Operation] = st.one_of(
    creates,
    creates,
    st.builds(Set, paths, st.sampled_from((b"", b"1")), versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
transactions = st.lists(operations, min_size=1, max_size=4)
reads = st.builds(Read, st.sampled_from(("get", "exists", "children")), paths, st.booleans())
steps = st.lists(st.tuples(st.integers(0, SESSIONS - 1), st.one_of(transactions, reads)), max_size=25)


class Recorder:
    """Runs the steps one at a time and records what each session sees, with zxids replaced by their rank.

    Of one step, what one session sees before another is not defined: each has a connection of its own.
    """

    def __init__(self, sessions: list[Coordination]) -> None:
        self._sessions = sessions
        self._owners = {session.session_id: index for index, session in enumerate(sessions)}
        self._zxids: list[int] = []
        self.seen: list[list[Any]] = [[] for _ in sessions]

    async def run(self, steps: list[tuple[int, Any]]) -> None:
        for index, step in steps:
            session = self._sessions[index]
            watch = self._watcher(index) if isinstance(step, Read) and step.is_watching else None
            call = getattr(session, step.kind)(step.path, watch) if isinstance(step, Read) else session.multi(step)
            outcome = await self._outcome(call)
            self.seen[index].append(outcome)
            # A read of every session makes sure that the effects of the step have reached it before the next one.
            for other, seen in zip(self._sessions, self.seen, strict=True):
                await other.exists("/")
                seen.append("next")

    def _watcher(self, index: int) -> Any:
        def received(event: WatchEvent) -> None:
            self.seen[index].append(event)

        return received

    async def _outcome(self, call: Awaitable[Any]) -> Any:
        try:
            return self._plain(await call)
        except MultiFailed as failed:
            return type(failed.cause).__name__, failed.index, failed.cause.path
        except CoordinationError as error:
            return type(error).__name__, error.path

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Stat):
            self._zxids += [value.czxid, value.mzxid]
            owner = self._owners.get(value.ephemeral_owner, -1)
            return "stat", len(self._zxids), value.version, owner, value.num_children
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        return value

    def order_of_zxids(self) -> list[int]:
        ranks = {zxid: rank for rank, zxid in enumerate(sorted(set(self._zxids)))}
        return [ranks[zxid] for zxid in self._zxids]


async def record(new: Any, steps: list[tuple[int, Any]]) -> tuple[list[list[Any]], list[int]]:
    sessions = [new() for _ in range(SESSIONS)]
    for session in sessions:
        await session.start()
    recorder = Recorder(sessions)
    await recorder.run(steps)
    # What a session sees of the end of another, when it is about to end as well, is not defined.
    seen = [list(of_session) for of_session in recorder.seen]
    for session in sessions:
        await session.close()
    return seen, recorder.order_of_zxids()


@pytest.mark.java
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps)
@example(
    steps=[
        (
            0,
            [
                Create("/a", b"", False, True),
                Create("/b", b"", True, False),
                Create("/b/x", b"", False, True),
            ],
        )
    ]
)
def test_the_embedded_store_does_what_zookeeper_does(
    steps: list[tuple[int, Any]], zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("equivalence") / "coordination.sqlite"

    async def both() -> tuple[Any, Any]:
        store = EmbeddedStore(str(path))
        embedded = await record(lambda: EmbeddedCoordination(store), steps)
        await store.close()
        connect = f"{zookeeper.connect}/equivalence/{uuid.uuid4()}"
        return embedded, await record(lambda: ZooKeeperCoordination(connect), steps)

    embedded, real = asyncio.run(both())
    assert embedded == real
