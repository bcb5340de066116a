"""The asking side of a fetch session: whatever happens, the leader holds just what is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchPartition, FetchTopic, ForgottenTopic
from ottla_broker.records.ids import TopicPartition
from ottla_broker.replication.fetchers import fetcher_number
from ottla_broker.replication.leader_session import LeaderSession, next_epoch


def test_a_partition_goes_to_the_fetcher_that_apache_kafka_gives_it_to() -> None:
    # Utils.abs(31 * topic.hashCode + partition) % 4, computed by Java, one of them with a negative hash.
    found = [fetcher_number(TopicPartition(topic, 7), 4) for topic in ("a", "orders", "__consumer_offsets", "")]
    assert found == [2, 2, 0, 3]


@dataclass(eq=False)
class _Asker:
    topic: str
    index: int
    topic_id: bytes
    offset: int = 0
    heard: int = 0
    part: FetchPartition = field(default_factory=FetchPartition)

    def request_part(self) -> FetchPartition:
        return FetchPartition(partition=self.index, fetch_offset=self.offset)


def _asker(index: int, offset: int = 0, *, topic_id: bytes = bytes(15) + b"\x01") -> _Asker:
    return _Asker("orders", index, topic_id, offset)


def _ask(session: LeaderSession[_Asker], *askers: _Asker) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
    return session.question((asker, asker.request_part()) for asker in askers)


def test_a_session_names_what_moved_and_what_is_to_be_forgotten() -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    one, two = _asker(1), _asker(2)
    topics, forgotten = _ask(session, one, two)
    assert (session.session_id, session.epoch) == (0, 0)
    assert [part.partition for part in topics[0].partitions] == [1, 2] and not forgotten
    session.on_answer(77)
    assert (session.session_id, session.epoch) == (77, 1)
    two.offset = 5
    session.leave(one)
    topics, forgotten = _ask(session, two)
    assert [(part.partition, part.fetch_offset) for part in topics[0].partitions] == [(2, 5)]
    assert forgotten[0].partitions == [1] and forgotten[0].topic_id == one.topic_id
    session.on_answer(77)
    assert _ask(session, two) == ([], []) and session.epoch == 2


def test_a_leader_that_gives_no_session_is_asked_for_everything_each_time() -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    one = _asker(1)
    for _ in range(2):
        topics, _ = _ask(session, one)
        assert len(topics) == 1 and session.epoch == 0
        session.on_answer(0)


def test_a_new_leader_epoch_and_a_topic_without_id_start_a_new_session() -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    one = _asker(1)
    for newcomer in (_asker(1), _asker(2, topic_id=ZERO_UUID)):
        _ask(session, one)
        session.on_answer(77)
        session.join(newcomer)
        assert session.is_full and session.session_id == 77  # which the full request closes


@pytest.mark.parametrize("is_first", [True, False])
def test_whoever_joins_in_place_of_another_while_a_request_is_under_way_is_told_everything(is_first: bool) -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    before, after = _asker(1), _asker(1)
    _ask(session, before)
    if not is_first:
        session.on_answer(77)
        before.offset = 5
        _ask(session, before)
    session.leave(before)
    session.join(after)
    session.on_answer(77)
    assert session.is_full and session.session_id == 77  # which the full request closes
    _ask(session, after)
    session.on_answer(78)
    assert (session.session_id, session.epoch) == (78, 1)


def test_what_a_leader_no_longer_knows_is_not_closed_and_what_it_mistook_is() -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    for error, session_id in (
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 77),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 77),
    ):
        _ask(session, _asker(1))
        session.on_answer(77)
        session.on_error(error)
        assert session.is_full and session.session_id == session_id


class _Leader:
    """Takes requests in as a Kafka leader does: first what is named, then what is forgotten. What it told of a
    partition (`news` counts its changes) it tells again only to a new session, or when that was forgotten meanwhile."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.held: dict[int, int] = {}
        self.news: dict[int, int] = {}
        self._told: dict[int, int] = {}

    def take(self, session_id: int, epoch: int, topics: list[FetchTopic], forgotten: list[ForgottenTopic]) -> ErrorCode:
        if epoch == 0:
            self.held = {}
            self._told = {}
            self.session_id += 1
            self.epoch = 1
        elif session_id != self.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif epoch != self.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            self.epoch = next_epoch(self.epoch)
        self.held.update((part.partition, part.fetch_offset) for topic in topics for part in topic.partitions)
        for topic in forgotten:
            for index in topic.partitions:
                del self.held[index]
                self._told.pop(index, None)
        return ErrorCode.NONE

    def tell(self) -> dict[int, int]:
        """The answer: what is new."""
        answer = {index: news for index in self.held if (news := self.news.get(index, 1)) != self._told.get(index)}
        self._told.update(answer)
        return answer


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "join",
                "leave",
                "move",
                "replace",
                "news",
                "round",
                "round",
                "round with a replacement",
                "lost request",
                "lost answer",
                "evict",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=500)
@given(STEPS)
@example([("join", 0), ("round with a replacement", 0)])
def test_after_every_round_the_leader_holds_just_who_asks_at_its_position(steps: list[tuple[str, int]]) -> None:
    session: LeaderSession[_Asker] = LeaderSession()
    leader = _Leader()
    asking: dict[int, _Asker] = {}
    moved: dict[_Asker, None] = {}

    def replace(index: int) -> None:
        known = asking.pop(index, None)
        if known is not None:
            session.leave(known)
            moved.pop(known, None)
        asking[index] = _asker(index)
        session.join(asking[index])
        moved[asking[index]] = None

    for step, index in [*steps, ("round", 0), ("round", 0)]:
        known = asking.get(index)
        if step == "leave" and known is not None:
            session.leave(known)
            moved.pop(known, None)
            del asking[index]
        elif step == "replace" or (step == "join" and known is None):
            replace(index)
        elif step == "move" and known is not None:
            known.offset += 1
            moved[known] = None
        elif step == "news":
            leader.news[index] = leader.news.get(index, 1) + 1
        elif step == "evict":
            leader.session_id += 1
        elif step in ("round", "round with a replacement", "lost request", "lost answer"):
            session_id, epoch = session.session_id, session.epoch
            topics, forgotten = _ask(session, *(asking.values() if session.is_full else moved))
            moved.clear()
            if step == "lost request":
                session.renew()
                continue
            error = leader.take(session_id, epoch, topics, forgotten)
            if not error:
                assert leader.held == {found: asker.offset for found, asker in asking.items()}
                assert len(session) == len(asking)
            answer = {} if error else leader.tell()
            if step == "round with a replacement":
                replace(index)
            if step == "lost answer":
                session.renew()
                continue
            if error:
                session.on_error(error)
                continue
            session.on_answer(leader.session_id)
            for found, news in answer.items():
                asker = session.holder((_asker(found).topic_id, found))
                if asker is not None and asking.get(found) is asker:
                    asker.heard = news
    assert not session.is_full
    assert {found: asker.heard for found, asker in asking.items()} == {
        found: leader.news.get(found, 1) for found in asking
    }
