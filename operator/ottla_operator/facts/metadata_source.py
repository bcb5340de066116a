"""Which brokers may say what the fleet is like: those that have a session with ZooKeeper.

The controller sends metadata to registered brokers only. A broker whose session has expired serves on and answers
Metadata and DescribeConfigs with what it knew then, which may be hours old and looks like any other answer. So the
brokers are asked for their sessions first (/status), and then one that has a session for the metadata: its answer is
not older than its report. A session that is suspended may have expired without the broker knowing it.

Brokers of Apache Kafka in the same fleet, and brokers of a release that does not report its session, have none that the
operator knows of. They are asked only when no broker reports that it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_operator.api.fleet import BrokerReport

SETTLED_MS = 10_000
"""How long a broker has a session before it is asked: the controller has sent it all metadata by then. A broker that
registers again after its session has expired answers with the old metadata until that comes."""


@dataclass(frozen=True, slots=True)
class MetadataSource:
    """The brokers to ask; any broker when there are none.

    `is_current`: False when the answer may be old: every broker that reports its session has none.
    """

    brokers: tuple[int, ...]
    is_current: bool
    reason: str


def decide_metadata_source(reports: Mapping[int, BrokerReport]) -> MetadataSource:
    """Whom to ask for metadata, from the reports that were read just before. Ordered checks."""
    connected = {
        number: report
        for number, report in sorted(reports.items())
        if report.session == "connected" and report.state == "running"
    }
    if settled := tuple(number for number, one in connected.items() if one.session_for_ms >= SETTLED_MS):
        return MetadataSource(settled, True, f"have a session with ZooKeeper: {_listed(settled)}")
    if connected:
        return MetadataSource(tuple(connected), True, f"have a new session with ZooKeeper: {_listed(connected)}")
    if unknown := tuple(sorted(number for number, report in reports.items() if not report.session)):
        return MetadataSource(unknown, True, f"do not report their session with ZooKeeper: {_listed(unknown)}")
    if not reports:
        return MetadataSource((), True, "no broker reports whether it has a session with ZooKeeper")
    return MetadataSource((), False, "no broker reports that it has a session with ZooKeeper")


def _listed(brokers: Mapping[int, BrokerReport] | tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))
