"""Topics that change what is stored, with real clients: whatever is stored, what was sent is read."""

from __future__ import annotations

import time

import pytest

from ottla.testing import RunningCluster
from ottla_broker.records import formats
from ottla_broker.records.compression import Codec
from tests.integration.clients.conftest import EVERY_CLIENT
from tests.integration.clients.driver import Driver, Record
from tests.integration.clients.topics import create


def stored_codecs(fleet: RunningCluster, topic: str) -> list[set[str]]:
    """The codecs of every replica's batches."""
    found = []
    for path in sorted(fleet.data.glob(f"broker-*/*/{topic}-0/{0:020d}.log")):
        found.append({Codec(header.codec).name.lower() for _, header in formats.batches(path.read_bytes())})
    return found


@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
@pytest.mark.parametrize("compression_type", ["gzip", "zstd", "uncompressed"])
def test_every_client_reads_what_the_broker_compressed(
    driver: Driver, fleet: RunningCluster, name: str, compression_type: str
) -> None:
    create(fleet.bootstrap, name, compression_type=compression_type)
    sent: list[bytes] = []
    for codec in driver.codecs:
        values = [f"{codec} {number} ".encode() * 60 for number in range(300)]
        driver.produce(fleet.bootstrap, name, [Record(b"key", value) for value in values], codec=codec)
        sent += values
    expected = "none" if compression_type == "uncompressed" else compression_type
    assert stored_codecs(fleet, name) == [{expected}] * 3
    if expected in driver.codecs:
        assert [record.value for record in driver.read(fleet.bootstrap, name)] == sent


@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
def test_every_client_reads_the_brokers_time(driver: Driver, fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name, message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    for codec in driver.codecs:
        driver.produce(fleet.bootstrap, name, [Record(None, b"v", timestamp_ms=5)], codec=codec)
    after = time.time_ns() // 1_000_000
    read = driver.read(fleet.bootstrap, name)
    assert len(read) == len(driver.codecs)
    for record in read:
        assert record.timestamp_ms is not None and before <= record.timestamp_ms <= after
        assert record.has_append_time


@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
def test_an_idempotent_producer_keeps_its_order_through_the_workers(
    driver: Driver, fleet: RunningCluster, name: str
) -> None:
    create(fleet.bootstrap, name, compression_type="gzip")
    values = [b"%05d " % number + b"x" * 200 for number in range(5000)]
    driver.produce(fleet.bootstrap, name, [Record(None, value) for value in values], is_idempotent=True)
    assert [record.value for record in driver.read(fleet.bootstrap, name)] == values
    assert stored_codecs(fleet, name) == [{"gzip"}] * 3
