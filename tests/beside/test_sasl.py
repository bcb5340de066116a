"""A SASL listener answers as that of Apache Kafka 3.9.1, whatever comes in whatever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from ottla.local.zookeeper_server import ZooKeeperServer
from tests.beside.sasl import SEQUENCES, TOKEN_SEQUENCES, both_with_sasl, drawn, said


@pytest.mark.java
def test_sequences_are_answered_as_by_apache_kafka(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    sequences = (*SEQUENCES, *TOKEN_SEQUENCES, *islice(drawn(1), 60))
    with both_with_sasl(tmp_path, zookeeper) as run, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, sequences))
    assert {said(steps): pair for steps, pair in zip(sequences, found, strict=True) if pair[0] != pair[1]} == {}
