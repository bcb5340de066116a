"""A short campaign at either end of inter.broker.protocol.version; the whole one is `python -m tests.mixed`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.mixed.campaign import Campaign, short

pytestmark = pytest.mark.java


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["2.8", "3.9"])
def test_brokers_of_both_kinds_replace_each_other_under_load(
    tmp_path: Path, zookeeper: ZooKeeperServer, protocol: str
) -> None:
    connect = f"{zookeeper.connect}/mixed-{uuid.uuid4()}"
    outcome = Campaign(tmp_path, connect, protocol, short(protocol), print).run()
    assert not outcome.errors, "\n".join(outcome.errors)
    assert not outcome.findings, outcome.findings
    assert outcome.acknowledged > 0
