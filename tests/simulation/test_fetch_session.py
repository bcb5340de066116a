"""The consumer's side of a fetch session: what it says again, and what it does not let a broker leave out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.fetch import FetchableTopicResponse, FetchPartition, FetchResponse, PartitionData
from simulation.checker import Violation
from simulation.fetch_session import ClientFetchSession

HERE, THERE = ("10.0.0.1", 9092), ("10.0.0.2", 9092)


def part(offset: int) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)


def answer(high_watermark: int | None = None, error: ErrorCode = ErrorCode.NONE, session_id: int = 7) -> Any:
    """Of nothing where no high watermark is told."""
    response = FetchResponse(session_id=session_id, responses=[])
    if high_watermark is not None:
        data = PartitionData(partition_index=0, high_watermark=high_watermark, error_code=int(error))
        response.responses.append(FetchableTopicResponse(topic="t", partitions=[data]))
    return response


@pytest.fixture
def session() -> ClientFetchSession:
    """One that has been told of high watermark 5 at offset 5."""
    session = ClientFetchSession(("t", 0), random.Random(1))
    assert session.ask(HERE, 12, part(5)) == (0, 0, True)
    assert session.take(answer(5)).high_watermark == 5
    return session


def test_what_has_not_changed_is_not_said_again(session: ClientFetchSession) -> None:
    assert session.ask(HERE, 12, part(5)) == (7, 1, False)
    assert session.take(answer()) is None
    assert session.high_watermark == 5
    assert session.ask(HERE, 12, part(4)) == (7, 2, True)


@pytest.mark.parametrize(("address", "version"), [(THERE, 12), (HERE, 13)], ids=["another broker", "topic ids"])
def test_elsewhere_it_begins_again(session: ClientFetchSession, address: tuple[str, int], version: int) -> None:
    assert session.ask(address, version, part(5)) == (0, 0, True)


def test_after_a_failure_all_is_asked_again(session: ClientFetchSession) -> None:
    session.ask(HERE, 12, part(5))
    refused = FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert session.take(refused) is None
    _, epoch, is_named = session.ask(HERE, 12, part(5))
    assert (epoch, is_named) == (0, True)


def test_a_broker_without_room_gives_no_session(session: ClientFetchSession) -> None:
    session.lose()
    session.ask(HERE, 12, part(5))
    session.take(answer(5, session_id=0))
    assert session.ask(HERE, 12, part(5)) == (0, 0, True)


def test_silence_where_there_is_more_to_read_is_a_violation(session: ClientFetchSession) -> None:
    session.ask(HERE, 12, part(4))
    with pytest.raises(Violation, match="says nothing of offset 4, and told high watermark 5"):
        session.take(answer())


def test_silence_in_answer_to_a_new_session_is_a_violation() -> None:
    session = ClientFetchSession(("t", 0), random.Random(1))
    session.ask(HERE, 12, part(0))
    with pytest.raises(Violation, match="says nothing"):
        session.take(answer())


def test_silence_after_an_error_is_a_violation(session: ClientFetchSession) -> None:
    while True:  # half of the time it goes on with the session
        session.ask(HERE, 12, part(5))
        session.take(answer(-1, ErrorCode.KAFKA_STORAGE_ERROR))
        _, epoch, _ = session.ask(HERE, 12, part(5))
        if epoch:
            break
    with pytest.raises(Violation, match="then an error"):
        session.take(answer())
