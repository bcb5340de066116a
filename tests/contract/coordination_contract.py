"""The tests that every adapter of the Coordination port has to pass.

Subclass and provide the `harness` fixture: an empty store.

Nothing here waits for a time: every wait ends with an event of the adapter, or fails with what did not come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import pytest

from ottla_broker.ports.coordination import (
    BadVersion,
    Check,
    ConnectionLoss,
    Coordination,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    SessionExpired,
    Set,
    Stat,
    WatchEvent,
    WatchKind,
)

PATIENCE_S = 60.0
T = TypeVar("T")
Open = Callable[[], Awaitable[Coordination]]


class CoordinationHarness(Protocol):
    """An adapter under test."""

    def new(self) -> Coordination:
        """An adapter on the same store, not started."""
        ...

    async def expire(self, coordination: Coordination) -> None:
        """Expires the adapter's session from outside, while its broker goes on."""
        ...


class Received(Generic[T]):
    """Collects events; `until` waits for their number."""

    def __init__(self) -> None:
        self.events: list[T] = []
        self._grown = asyncio.Event()

    def __call__(self, event: T) -> None:
        self.events.append(event)
        self._grown.set()

    async def until(self, count: int) -> list[T]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.events) < count:
                self._grown.clear()
                await self._grown.wait()
        return self.events


class CoordinationContract:
    @pytest.fixture
    async def open_session(self, harness: CoordinationHarness) -> AsyncIterator[Open]:
        """Starts sessions on the store; they are closed after the test."""
        opened: list[Coordination] = []

        async def open_one() -> Coordination:
            coordination = harness.new()
            await coordination.start()
            opened.append(coordination)
            return coordination

        yield open_one
        for coordination in opened:
            await coordination.close()

    @pytest.fixture
    async def coordination(self, open_session: Open) -> Coordination:
        return await open_session()

    # ---- nodes

    async def test_a_created_node_is_read_back_with_its_stat(self, coordination: Coordination) -> None:
        assert await coordination.exists("/a") is None
        assert await coordination.create("/a", b"one") == "/a"
        data, stat = await coordination.get("/a")
        assert data == b"one"
        assert stat == Stat(stat.czxid, stat.czxid, 0, 0, 0)
        assert stat.czxid > 0
        assert await coordination.exists("/a") == stat

    async def test_empty_data_is_read_back_empty(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        assert (await coordination.get("/a"))[0] == b""
        await coordination.set("/a", b"x")
        await coordination.set("/a", b"")
        assert (await coordination.get("/a"))[0] == b""

    async def test_data_of_every_byte_value_and_of_half_a_mebibyte_is_kept(self, coordination: Coordination) -> None:
        data = bytes(range(256)) * 2048
        await coordination.create("/a", data)
        assert (await coordination.get("/a"))[0] == data

    async def test_children_are_sorted_and_counted(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        for name in ("10", "9", "b", "é"):
            await coordination.create(f"/a/{name}")
        assert await coordination.children("/a") == ["10", "9", "b", "é"]
        stat = await coordination.exists("/a")
        assert stat is not None
        assert (stat.num_children, stat.version) == (4, 0)
        assert await coordination.children("/a/9") == []

    async def test_the_root_is_there_from_the_start(self, coordination: Coordination) -> None:
        assert await coordination.exists("/") is not None
        assert await coordination.children("/") == []
        await coordination.create("/a")
        assert await coordination.children("/") == ["a"]

    async def test_creating_is_refused_for_an_existing_node_or_without_a_parent(
        self, coordination: Coordination
    ) -> None:
        await coordination.create("/a", b"first")
        with pytest.raises(NodeExists) as exists:
            await coordination.create("/a", b"second")
        assert exists.value.path == "/a"
        with pytest.raises(NoNode):
            await coordination.create("/b/c")
        assert (await coordination.get("/a"))[0] == b"first"

    async def test_every_set_raises_the_version_and_the_modification_zxid(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        created = await coordination.exists("/a")
        assert created is not None
        first = await coordination.set("/a", b"1")
        second = await coordination.set("/a", b"1", 1)
        assert (first.version, second.version) == (1, 2)
        assert created.mzxid < first.mzxid < second.mzxid
        assert created.czxid == second.czxid
        assert await coordination.exists("/a") == second

    async def test_a_wrong_version_refuses_set_and_delete(self, coordination: Coordination) -> None:
        await coordination.create("/a", b"0")
        with pytest.raises(BadVersion):
            await coordination.set("/a", b"1", 1)
        with pytest.raises(BadVersion):
            await coordination.delete("/a", 1)
        assert (await coordination.get("/a"))[0] == b"0"
        await coordination.delete("/a", 0)
        assert await coordination.exists("/a") is None

    async def test_an_absent_node_refuses_everything_but_exists(self, coordination: Coordination) -> None:
        for attempt in (
            coordination.get("/a"),
            coordination.children("/a"),
            coordination.set("/a", b""),
            coordination.delete("/a"),
        ):
            with pytest.raises(NoNode) as refused:
                await attempt
            assert refused.value.path == "/a"
        assert await coordination.exists("/a") is None

    async def test_a_node_with_children_is_not_deleted(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        await coordination.create("/a/b")
        with pytest.raises(NotEmpty):
            await coordination.delete("/a")
        await coordination.delete("/a/b")
        await coordination.delete("/a")

    async def test_a_node_that_is_created_again_is_a_new_node(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        first = await coordination.set("/a", b"")
        await coordination.delete("/a")
        await coordination.create("/a")
        second = await coordination.exists("/a")
        assert second is not None
        assert second.version == 0
        assert second.czxid > first.mzxid

    async def test_sequential_nodes_are_numbered_by_their_parent_with_ten_digits(
        self, coordination: Coordination
    ) -> None:
        for parent in ("/a", "/b"):
            await coordination.create(parent)
        assert await coordination.create("/a/n_", sequence=True) == "/a/n_0000000000"
        assert await coordination.create("/a/n_", sequence=True) == "/a/n_0000000001"
        assert await coordination.create("/b/n_", sequence=True) == "/b/n_0000000000"
        await coordination.delete("/a/n_0000000001")
        assert await coordination.create("/a/other_", sequence=True, ephemeral=True) == "/a/other_0000000002"
        assert await coordination.create("/a/", sequence=True) == "/a/0000000003"

    async def test_an_invalid_path_is_refused_at_once(self, coordination: Coordination) -> None:
        for path in ("", "a", "/a/", "//a", "/a/../b", "/./a", "/a\0"):
            with pytest.raises(ValueError, match="path"):
                coordination.create(path)
            with pytest.raises(ValueError, match="path"):
                coordination.get(path)

    # ---- order

    async def test_calls_take_effect_in_the_order_they_were_made(self, coordination: Coordination) -> None:
        calls: list[Awaitable[object]] = [coordination.create("/a", b"0")]
        for number in range(1, 300):
            calls.append(coordination.set("/a", b"%d" % number, number - 1))
            calls.append(coordination.get("/a"))
        calls += [coordination.delete("/a"), coordination.exists("/a"), coordination.create("/a", b"again")]
        results = await asyncio.gather(*calls)
        assert [result[0] for result in results[2:-3:2]] == [b"%d" % number for number in range(1, 300)]  # type: ignore[index]
        assert results[-2:] == [None, "/a"]

    async def test_a_refused_call_does_not_delay_later_calls(self, coordination: Coordination) -> None:
        first = coordination.create("/a", b"0")
        refused = coordination.create("/a", b"1")
        read = coordination.get("/a")
        assert await first == "/a"
        with pytest.raises(NodeExists):
            await refused
        assert (await read)[0] == b"0"

    async def test_each_of_many_concurrent_reads_gets_its_own_result(self, coordination: Coordination) -> None:
        count = 700
        await coordination.create("/a")
        for start in range(0, count, 100):
            await coordination.multi([Create(f"/a/{n}", b"%d" % n) for n in range(start, start + 100) if n % 7])
        await coordination.set("/a/1", b"")
        await coordination.set("/a/2", b"again")

        received: Received[WatchEvent] = Received()
        reads = [coordination.get(f"/a/{n}", received if n == 300 else None) for n in range(count)]
        written = coordination.set("/a/300", b"after them")
        later = coordination.get("/a/300")
        for number, read in enumerate(reads):
            if number % 7 == 0:
                with pytest.raises(NoNode, match=f"/a/{number}"):
                    await read
            else:
                expected = {1: (b"", 1), 2: (b"again", 1)}.get(number, (b"%d" % number, 0))
                data, stat = await read
                assert (data, stat.version) == expected
        assert await later == (b"after them", await written)
        await received.until(1)

    async def test_one_of_many_sessions_creates_the_node(self, open_session: Open) -> None:
        sessions = [await open_session() for _ in range(5)]
        attempts = [session.create("/controller", b"%d" % n, ephemeral=True) for n, session in enumerate(sessions)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        winners = [n for n, outcome in enumerate(outcomes) if outcome == "/controller"]
        assert len(winners) == 1
        assert sum(isinstance(outcome, NodeExists) for outcome in outcomes) == 4
        # The others see the created node at once.
        for loser in {0, 1, 2, 3, 4} - set(winners):
            assert (await sessions[loser].get("/controller"))[0] == b"%d" % winners[0]

    async def test_a_call_takes_effect_when_its_caller_is_cancelled(self, coordination: Coordination) -> None:
        coordination.create("/a", b"0").cancel()
        assert await coordination.set("/a", b"1") == (await coordination.get("/a"))[1]

    # ---- transactions

    async def test_a_transaction_sees_its_own_operations_and_returns_a_result_for_each(
        self, coordination: Coordination
    ) -> None:
        await coordination.create("/epoch", b"1")
        results = await coordination.multi(
            [
                Check("/epoch", 0),
                Create("/ids", b""),
                Create("/ids/1", b"", ephemeral=True),
                Set("/ids/1", b"me", 0),
                Create("/ids/n_", b"", sequence=True),
                Set("/epoch", b"2", 0),
                Delete("/epoch", 1),
            ]
        )
        data, stat = await coordination.get("/ids/1")
        assert results[:3] == [None, "/ids", "/ids/1"]
        assert results[3] == stat
        assert results[4] == "/ids/n_0000000001"
        assert isinstance(results[5], Stat)
        assert results[5].version == 1
        assert results[6] is None
        assert data == b"me"
        assert (stat.version, stat.ephemeral_owner) == (1, coordination.session_id)
        assert stat.czxid == stat.mzxid == results[5].mzxid
        assert await coordination.exists("/epoch") is None

    async def test_a_refused_transaction_names_the_operation_and_changes_nothing(
        self, coordination: Coordination
    ) -> None:
        await coordination.create("/a", b"0")
        await coordination.create("/a/b")
        before = await coordination.exists("/a")
        good = [Create("/new"), Create("/a/c"), Set("/a", b"1"), Delete("/a/b")]
        for refused, cause in (
            (Check("/a", 0), BadVersion),  # the third operation has incremented the version
            (Check("/absent", 0), NoNode),
            (Set("/a", b"", 7), BadVersion),
            (Set("/absent", b""), NoNode),
            (Delete("/a"), NotEmpty),
            (Delete("/a/b"), NoNode),
            (Create("/new"), NodeExists),
            (Create("/absent/x"), NoNode),
        ):
            with pytest.raises(MultiFailed) as failed:
                await coordination.multi([*good, refused, Create("/later")])
            assert failed.value.index == 4
            assert type(failed.value.cause) is cause
            assert failed.value.cause.path == refused.path
        assert await coordination.exists("/a") == before
        assert await coordination.children("/") == ["a"]
        assert await coordination.children("/a") == ["b"]

    async def test_a_refused_transaction_uses_no_sequence_number_and_fires_no_watch(
        self, coordination: Coordination
    ) -> None:
        received: Received[WatchEvent] = Received()
        await coordination.create("/a")
        await coordination.children("/a", received)
        with pytest.raises(MultiFailed):
            await coordination.multi([Create("/a/n_", sequence=True), Check("/absent", 0)])
        assert received.events == []
        assert await coordination.create("/a/n_", sequence=True) == "/a/n_0000000000"
        assert await received.until(1) == [WatchEvent(WatchKind.CHILDREN, "/a")]

    async def test_an_empty_transaction_is_fine(self, coordination: Coordination) -> None:
        assert await coordination.multi([]) == []

    async def test_a_transaction_of_many_steps(self, coordination: Coordination) -> None:
        await coordination.create("/a")
        results = await coordination.multi([Create(f"/a/{number}", b"x" * 100) for number in range(1000)])
        assert len(results) == 1000
        assert len(await coordination.children("/a")) == 1000

    # ---- watches

    async def test_a_watch_on_an_absent_node_fires_when_it_is_created(self, open_session: Open) -> None:
        watching, writing = await open_session(), await open_session()
        received: Received[WatchEvent] = Received()
        assert await watching.exists("/a", received) is None
        await writing.create("/a")
        assert await received.until(1) == [WatchEvent(WatchKind.CREATED, "/a")]

    async def test_a_watch_fires_once(self, open_session: Open) -> None:
        watching, writing = await open_session(), await open_session()
        received: Received[WatchEvent] = Received()
        await writing.create("/a")
        await watching.get("/a", received)
        stat = await writing.set("/a", b"1")
        await received.until(1)
        await writing.set("/a", b"2")
        await writing.delete("/a")
        await self.wait_until_seen(watching, "/a", None)
        assert received.events == [WatchEvent(WatchKind.CHANGED, "/a")]
        assert stat.version == 1

    async def test_each_change_fires_the_watches_of_its_kind(self, coordination: Coordination) -> None:
        data: Received[WatchEvent] = Received()
        children: Received[WatchEvent] = Received()
        await coordination.create("/a")
        await coordination.get("/a", data)
        await coordination.children("/a", children)
        await coordination.create("/a/b")
        await children.until(1)
        assert (data.events, children.events) == ([], [WatchEvent(WatchKind.CHILDREN, "/a")])
        await coordination.children("/a", children)
        await coordination.set("/a/b", b"of no interest to the parent")
        await coordination.set("/a", b"1")
        await data.until(1)
        assert (data.events, len(children.events)) == ([WatchEvent(WatchKind.CHANGED, "/a")], 1)
        await coordination.exists("/a", data)
        await coordination.delete("/a/b")
        await children.until(2)
        await coordination.children("/a", children)
        await coordination.delete("/a")
        assert (await data.until(2))[1] == WatchEvent(WatchKind.DELETED, "/a")
        assert (await children.until(3))[2] == WatchEvent(WatchKind.DELETED, "/a")

    async def test_a_callback_that_watches_twice_is_called_once(self, coordination: Coordination) -> None:
        received: Received[WatchEvent] = Received()
        await coordination.create("/a")
        await coordination.get("/a", received)
        await coordination.exists("/a", received)
        await coordination.children("/a", received)
        await coordination.delete("/a")
        await coordination.create("/a")
        await coordination.set("/a", b"1")
        await coordination.get("/a")
        assert received.events == [WatchEvent(WatchKind.DELETED, "/a")]

    async def test_reading_an_absent_node_leaves_no_watch(self, coordination: Coordination) -> None:
        received: Received[WatchEvent] = Received()
        for read in (coordination.get("/a", received), coordination.children("/a", received)):
            with pytest.raises(NoNode):
                await read
        await coordination.create("/a")
        await coordination.create("/a/b")
        await coordination.get("/a")
        assert received.events == []

    async def test_a_watch_fires_before_a_read_that_sees_the_change_completes(self, open_session: Open) -> None:
        watching, writing = await open_session(), await open_session()
        await writing.create("/a", b"0")
        await self.wait_until_seen(watching, "/a", 0)
        for round_number in range(1, 60):
            received: Received[WatchEvent] = Received()
            await watching.get("/a", received)
            written = writing.set("/a", b"")
            while True:
                # Several concurrent reads, so that one of them meets the change at every possible point.
                reads = [watching.get("/a") for _ in range(3)]
                await asyncio.sleep(0)  # a read may complete at once, without a turn of the loop
                versions = [(await read)[1].version for read in reads]
                if versions[-1] == round_number:
                    assert received.events == [WatchEvent(WatchKind.CHANGED, "/a")]
                    break
            assert (await written).version == round_number

    async def test_the_watch_events_of_a_transaction_are_delivered_together_in_its_order(
        self, open_session: Open
    ) -> None:
        watching, writing = await open_session(), await open_session()
        received: Received[WatchEvent] = Received()
        await writing.create("/a")
        await writing.create("/gone")
        await self.wait_until_seen(watching, "/gone", 0)
        await watching.exists("/b", received)
        await watching.exists("/a", received)
        await watching.exists("/gone", received)
        await writing.multi([Create("/b"), Set("/a", b""), Delete("/gone")])
        assert await received.until(3) == [
            WatchEvent(WatchKind.CREATED, "/b"),
            WatchEvent(WatchKind.CHANGED, "/a"),
            WatchEvent(WatchKind.DELETED, "/gone"),
        ]

    async def test_a_watcher_may_read_and_watch_again(self, open_session: Open) -> None:
        watching, writing = await open_session(), await open_session()
        await writing.create("/a", b"0")
        await self.wait_until_seen(watching, "/a", 0)
        received: Received[WatchEvent] = Received()
        reads: list[asyncio.Future[tuple[bytes, Stat]]] = []

        def watcher(event: WatchEvent) -> None:
            reads.append(watching.get("/a", watcher))
            received(event)

        await watching.get("/a", watcher)
        for number in range(1, 6):
            await writing.set("/a", b"%d" % number)
            await received.until(number)
            assert (await reads[-1])[0] == b"%d" % number

    # ---- sessions

    async def test_the_first_connection_is_reported(self, harness: CoordinationHarness) -> None:
        coordination = harness.new()
        received: Received[SessionEvent] = Received()
        coordination.add_session_listener(received)
        await coordination.start()
        assert received.events == [SessionEvent.CONNECTED]
        assert coordination.session_id != 0
        assert len(coordination.session_password) == 16
        await coordination.close()

    async def test_an_ephemeral_node_belongs_to_its_session_and_ends_with_it(self, open_session: Open) -> None:
        staying, leaving = await open_session(), await open_session()
        await leaving.create("/a")
        await leaving.create("/a/e", b"x", ephemeral=True)
        await leaving.create("/a/p", b"x")
        await self.wait_until_seen(staying, "/a/p", 0)
        stat = await staying.exists("/a/e")
        assert stat is not None
        assert stat.ephemeral_owner == leaving.session_id != staying.session_id
        received: Received[WatchEvent] = Received()
        await staying.children("/a", received)
        await leaving.close()
        await received.until(1)
        assert await staying.children("/a") == ["p"]

    async def test_an_ephemeral_node_has_no_children(self, coordination: Coordination) -> None:
        await coordination.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals):
            await coordination.create("/e/a")

    async def test_an_expired_session_is_reported_and_replaced_by_a_new_one(
        self, harness: CoordinationHarness, open_session: Open
    ) -> None:
        observer, coordination = await open_session(), await open_session()
        received: Received[SessionEvent] = Received()
        watched: Received[WatchEvent] = Received()
        meanwhile: list[asyncio.Future[object]] = []

        def listener(event: SessionEvent) -> None:
            if event is SessionEvent.EXPIRED:
                meanwhile.append(coordination.exists("/e"))  # type: ignore[arg-type]
                meanwhile.append(coordination.create("/f", ephemeral=True))  # type: ignore[arg-type]
                meanwhile.append(coordination.multi([Delete("/p")]))  # type: ignore[arg-type]
            received(event)

        coordination.add_session_listener(listener)
        await coordination.create("/e", ephemeral=True)
        await coordination.create("/p")
        await coordination.get("/p", watched)
        before = coordination.session_id
        await harness.expire(coordination)
        while SessionEvent.EXPIRED not in received.events or received.events[-1] is not SessionEvent.CONNECTED:
            await received.until(len(received.events) + 1)
        assert [event for event in received.events if event is not SessionEvent.SUSPENDED] == [
            SessionEvent.EXPIRED,
            SessionEvent.CONNECTED,
        ]
        assert coordination.session_id not in (before, 0)
        for call in meanwhile:
            with pytest.raises(SessionExpired):
                await call
        assert await coordination.exists("/e") is None
        assert await coordination.exists("/f") is None
        await coordination.create("/e", ephemeral=True)
        stat = await coordination.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == coordination.session_id
        await coordination.set("/p", b"the watch of the old session is gone")
        await coordination.get("/p")
        assert watched.events == []
        assert await observer.children("/") == ["e", "p"]

    async def test_an_abandoned_session_expires_after_its_timeout(
        self, harness: CoordinationHarness, open_session: Open
    ) -> None:
        observer, halted = await open_session(), harness.new()
        events: Received[SessionEvent] = Received()
        await halted.start()
        halted.add_session_listener(events)
        await halted.create("/e", ephemeral=True)
        await self.wait_until_seen(observer, "/e", 0)
        received: Received[WatchEvent] = Received()
        await observer.exists("/e", received)
        halted.abandon()
        assert await observer.exists("/e") is not None
        with pytest.raises(ConnectionLoss):
            await halted.exists("/e")
        assert await received.until(1) == [WatchEvent(WatchKind.DELETED, "/e")]
        assert events.events == []

    async def test_starting_with_an_earlier_session_ends_it_first(
        self, harness: CoordinationHarness, open_session: Open
    ) -> None:
        observer, killed, restarted = await open_session(), harness.new(), harness.new()
        await killed.start()
        await killed.create("/e", ephemeral=True)
        await self.wait_until_seen(observer, "/e", 0)
        earlier = (killed.session_id, killed.session_password)
        killed.abandon()
        await restarted.start(earlier)
        assert restarted.session_id not in (0, earlier[0])
        assert await restarted.exists("/e") is None
        await restarted.create("/e", ephemeral=True)
        await restarted.close()

    async def test_starting_with_an_expired_or_foreign_session_opens_a_new_one(
        self, harness: CoordinationHarness, open_session: Open
    ) -> None:
        living = await open_session()
        await living.create("/e", ephemeral=True)
        ended = harness.new()
        await ended.start()
        gone = (ended.session_id, ended.session_password)
        await ended.close()
        for session in (gone, (living.session_id, b"no such password"), (4711, bytes(16))):
            restarted = harness.new()
            await restarted.start(session)
            assert restarted.session_id not in (0, session[0])
            assert await restarted.create("/mine", ephemeral=True) == "/mine"
            await restarted.close()
        assert await living.exists("/e") is not None

    async def test_a_closed_session_refuses_calls_and_reports_nothing(self, harness: CoordinationHarness) -> None:
        coordination = harness.new()
        received: Received[SessionEvent] = Received()
        await coordination.start()
        coordination.add_session_listener(received)
        await coordination.close()
        await coordination.close()
        for call in (coordination.get("/a"), coordination.create("/a"), coordination.multi([Create("/a")])):
            with pytest.raises(ConnectionLoss):
                await call
        assert received.events == []

    async def test_a_session_that_was_not_started_refuses_calls(self, harness: CoordinationHarness) -> None:
        with pytest.raises(ConnectionLoss):
            await harness.new().exists("/a")

    async def wait_until_seen(self, coordination: Coordination, path: str, version: int | None) -> None:
        """Returns when this session sees that version of the path (None: absent): sessions may lag."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                received: Received[WatchEvent] = Received()
                stat = await coordination.exists(path, received)
                if (None if stat is None else stat.version) == version:
                    return
                await received.until(1)
