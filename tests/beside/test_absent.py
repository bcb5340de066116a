"""What does not exist, and what brokers keep for themselves, is answered as Apache Kafka 3.9.1 answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.beside.absent import Case, absent, filled, internal
from tests.beside.comparison import both, difference

_FAILS = int(ErrorCode.UNKNOWN_SERVER_ERROR)


def deliberate(case: Case, ours: Any, theirs: Any) -> str:
    """Why ours answers otherwise; "" where it should not."""
    api_key, body = case.request.api_key, case.request.body
    if _FAILS in (one.get("error_code") for one in theirs.get("responses", ()) if isinstance(one, dict)):
        return "Apache Kafka fails at an operation that does not exist, and at one of lists on what is no list"
    resources = getattr(body, "resources", ())
    if any(one.resource_type == 16 for one in resources):
        return "Apache Kafka 3.9 has subscriptions of client metrics under KRaft alone (KIP-714)"
    if api_key is ApiKey.FIND_COORDINATOR and body.key_type == 2:
        return "there is no coordinator of share groups: nobody has to ask again"
    return ""


@pytest.mark.java
def test_what_does_not_exist_and_internal_topics_are_answered_as_apache_kafka_does(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    directories = str(tmp_path / "ours" / "d0"), str(tmp_path / "their-logs")
    producer_ids = [-1, -1]
    found = {}
    with both(tmp_path, zookeeper) as ask:
        for case in (*absent(), *internal()):
            request = case.request
            requests = [
                request._replace(body=filled(request.body, directory, producer_id))
                for directory, producer_id in zip(directories, producer_ids, strict=True)
            ]
            ours, theirs = ask(*requests)
            if request.api_key is ApiKey.INIT_PRODUCER_ID and ours["error_code"] == 0:
                producer_ids = [ours["producer_id"], theirs["producer_id"]]
            if (where := difference(ours, theirs)) and not deliberate(case, ours, theirs):
                found[case.about] = where
    assert found == {}
