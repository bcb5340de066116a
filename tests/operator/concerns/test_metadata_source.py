"""Which brokers are asked for metadata, by what they report about their sessions with ZooKeeper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla_operator.api.fleet import BrokerReport
from ottla_operator.facts.metadata_source import decide_metadata_source

CONNECTED = BrokerReport("uid", "cluster-1", "running", (), "connected", 60_000)
NEW = replace(CONNECTED, session_for_ms=500)
JOINING = replace(CONNECTED, state="joining")
SUSPENDED = replace(CONNECTED, session="suspended")
EXPIRED = replace(CONNECTED, session="expired")
UNKNOWN = replace(CONNECTED, session="", session_for_ms=0)


@pytest.mark.parametrize(
    ("reports", "asked", "is_current", "reason"),
    [
        ({}, (), True, "no broker reports whether it has a session with ZooKeeper"),
        ({0: CONNECTED, 1: EXPIRED, 2: CONNECTED}, (0, 2), True, "have a session with ZooKeeper: 0, 2"),
        ({0: CONNECTED, 1: NEW, 2: SUSPENDED}, (0,), True, "have a session with ZooKeeper: 0"),
        ({0: JOINING, 1: NEW, 2: EXPIRED}, (1,), True, "have a new session with ZooKeeper: 1"),
        ({0: UNKNOWN, 1: CONNECTED}, (1,), True, "have a session with ZooKeeper: 1"),
        ({0: UNKNOWN, 1: EXPIRED}, (0,), True, "do not report their session with ZooKeeper: 0"),
        ({0: EXPIRED, 1: SUSPENDED}, (), False, "no broker reports that it has a session with ZooKeeper"),
    ],
)
def test_metadata_is_from_brokers_with_a_session(
    reports: dict[int, BrokerReport], asked: tuple[int, ...], is_current: bool, reason: str
) -> None:
    source = decide_metadata_source(reports)
    assert (source.brokers, source.is_current, source.reason) == (asked, is_current, reason)
