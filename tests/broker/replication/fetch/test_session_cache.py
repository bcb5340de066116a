"""The session cache: ids, epochs and eviction, against a simple model of Kafka's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.metrics import Metrics
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.replication.fetch.session_cache import FetchSession, FetchSessionCache
from ottla_broker.replication.leader_session import LARGEST_EPOCH

EVICTION_MS = 1000


class _Content:
    def __init__(self, size: int) -> None:
        self.size = size
        self.is_closed = False

    def __len__(self) -> int:
        return self.size

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class _Cache:
    """A cache whose ids are 1, 2, 3, …"""

    def __init__(self, slots: int) -> None:
        self.metrics = Metrics()
        self.last_id = 0
        self.sessions: FetchSessionCache[_Content] = FetchSessionCache(
            slots, self._next_id, self.metrics, eviction_ms=EVICTION_MS
        )

    def _next_id(self, _limit: int) -> int:
        self.last_id += 1
        return self.last_id - 1

    def open(self, size: int = 1, *, now_ms: int = 0, is_privileged: bool = False) -> FetchSession[_Content] | None:
        return self.sessions.open(
            size, lambda _session_id: _Content(size), is_privileged=is_privileged, uses_topic_ids=True, now_ms=now_ms
        )

    def opened(self, size: int = 1, *, now_ms: int = 0, is_privileged: bool = False) -> FetchSession[_Content]:
        session = self.open(size, now_ms=now_ms, is_privileged=is_privileged)
        assert session is not None
        return session

    def has(self, session: FetchSession[_Content]) -> bool:
        found = self.sessions.find(session.session_id, session.epoch, uses_topic_ids=True)
        assert found is session or found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return found is session

    def metric(self, name: str) -> float:
        (child,) = self.metrics.families[f"kafka_server_fetchsessioncache_{name}"].children.values()
        return child.value  # type: ignore[union-attr]


def test_the_epoch_of_a_session_grows_with_each_request_and_wraps_to_one() -> None:
    cache = _Cache(2)
    session = cache.opened()
    assert (session.session_id, session.epoch) == (1, 1)
    assert cache.sessions.find(1, 1, uses_topic_ids=True) is session
    cache.sessions.advance(session, 1)
    assert session.epoch == 2
    session.epoch = LARGEST_EPOCH
    cache.sessions.advance(session, 2)
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("session_id", "epoch", "uses_topic_ids", "error"),
    [
        (9, 1, True, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, False, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_match_its_session_has_kafkas_error(
    session_id: int, epoch: int, uses_topic_ids: bool, error: ErrorCode
) -> None:
    cache = _Cache(2)
    cache.opened()
    assert cache.sessions.find(session_id, epoch, uses_topic_ids=uses_topic_ids) is error


def test_no_session_is_opened_without_slots() -> None:
    assert _Cache(0).open(is_privileged=True) is None


def test_the_least_recently_used_session_is_evicted_once_it_is_idle_long_enough() -> None:
    cache = _Cache(2)
    idle, used = cache.opened(5), cache.opened(5)
    cache.sessions.advance(used, 900)
    assert cache.open(9, now_ms=1000) is None
    newcomer = cache.opened(1, now_ms=1001)
    assert (cache.has(idle), cache.has(used), cache.has(newcomer)) == (False, True, True)
    assert idle.content.is_closed
    assert cache.metric("incrementalfetchsessionevictions") == 1


def test_a_follower_evicts_a_young_session_of_a_consumer_and_not_of_a_follower() -> None:
    cache = _Cache(1)
    consumer = cache.opened(1000)
    follower = cache.opened(1, is_privileged=True)
    assert (cache.has(consumer), cache.has(follower)) == (False, True)
    assert cache.open(1000, is_privileged=True) is None
    assert cache.open(1000) is None


def test_an_old_session_in_use_is_evicted_only_by_a_larger_one() -> None:
    cache = _Cache(2)
    small, large = cache.opened(5), cache.opened(9)
    for session in (small, large):
        cache.sessions.advance(session, 1001)
    assert cache.open(5, now_ms=1002) is None
    cache.opened(6, now_ms=1002)
    assert (cache.has(small), cache.has(large)) == (False, True)


def test_the_gauges_count_sessions_and_their_partitions() -> None:
    cache = _Cache(3)
    one, _other = cache.opened(5), cache.opened(7)
    one.content.size = 6
    cache.sessions.advance(one, 1)
    assert (
        cache.metric("numincrementalfetchsessions"),
        cache.metric("numincrementalfetchpartitionscached"),
    ) == (2, 13)
    assert cache.sessions.close(one.session_id) and not cache.sessions.close(one.session_id)
    assert (
        cache.metric("numincrementalfetchsessions"),
        cache.metric("numincrementalfetchpartitionscached"),
    ) == (1, 7)


class _Model:
    """Kafka's rules in plain code, which looks at all sessions every time."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.rows: dict[int, dict[str, int]] = {}
        self.count = 0

    def open(self, size: int, is_privileged: bool, now: int) -> int:
        if len(self.rows) >= self.slots and not self._evict(size, is_privileged, now):
            return 0
        self.count += 1
        self.rows[self.count] = {"p": is_privileged, "size": size, "born": now, "used": now, "seen": now, "order": now}
        return self.count

    def touch(self, number: int, size: int, now: int) -> None:
        self.rows[number].update(size=size, used=now)

    def _evict(self, size: int, is_privileged: bool, now: int) -> bool:
        if not self.rows:
            return False
        stalest = min(row["used"] for row in self.rows.values())
        if now - stalest > EVICTION_MS:
            del self.rows[next(n for n, row in self._by_use() if row["used"] == stalest)]
            return True
        fair = [
            (row["p"], row["size"], number)
            for number, row in self.rows.items()
            if row["used"] - row["born"] > EVICTION_MS or (is_privileged and not row["p"])
        ]
        if not fair or (is_privileged, size, 0) < min(fair):
            return False
        del self.rows[min(fair)[2]]
        return True

    def _by_use(self) -> list[tuple[int, dict[str, int]]]:
        return sorted(self.rows.items(), key=lambda pair: pair[1]["order"])


ACTIONS = st.tuples(
    st.sampled_from(["open", "open", "go on", "close"]),
    st.integers(0, 5),  # which session, among those there are
    st.integers(0, 4),  # its size
    st.booleans(),
    st.sampled_from([0, 1, 400, 1001]),  # time that passes before
)


@given(slots=st.integers(0, 4), actions=st.lists(ACTIONS, max_size=60))
def test_the_cache_has_the_sessions_that_kafkas_rules_keep(
    slots: int, actions: list[tuple[str, int, int, bool, int]]
) -> None:
    cache, model = _Cache(slots), _Model(slots)
    held: dict[int, FetchSession[_Content]] = {}
    now = 0
    for turn, (act, which, size, is_privileged, passes) in enumerate(actions):
        now += passes
        if act == "open":
            session = cache.open(size, now_ms=now, is_privileged=is_privileged)
            number = model.open(size, is_privileged, now)
            assert (session is None) == (number == 0)
            if session is not None:
                assert session.session_id == number
                held[number] = session
                model.rows[number]["order"] = turn
        elif model.rows:
            number = sorted(model.rows)[which % len(model.rows)]
            if act == "close":
                assert cache.sessions.close(number)
                del model.rows[number]
            else:
                held[number].content.size = size
                cache.sessions.advance(held[number], now)
                model.touch(number, size, now)
                model.rows[number]["order"] = turn
        assert {number for number, session in held.items() if not session.content.is_closed} == set(model.rows)
        assert len(cache.sessions) == len(model.rows) <= slots
        assert cache.sessions.partition_count == sum(row["size"] for row in model.rows.values())
