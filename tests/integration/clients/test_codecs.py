"""What every client has compressed with any codec is read by every client."""

from __future__ import annotations

import pytest

from ottla.testing import RunningCluster
from tests.conftest import REASONS
from tests.integration.clients.conftest import DRIVERS, MARKS, make_driver
from tests.integration.clients.driver import CODECS, Driver, Record
from tests.integration.clients.topics import create

ATTRIBUTES = 22  # where the low byte stands in a batch; the codec is its low three bits


def text_of(client: str, codec: str) -> list[bytes]:
    """Values that compress well, and that say who wrote them."""
    return [f"{client} {codec} {number} ".encode() * 50 for number in range(20)]


@pytest.fixture(scope="module", params=CODECS)
def codec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def writers(request: pytest.FixtureRequest, fleet: RunningCluster, codec: str) -> list[str]:
    """Who has written to the topic named as the codec, each to a partition of its own: every client that is here.

    A client that is not here is missed as a reader.
    """
    here = [name for name in DRIVERS if name not in REASONS or not REASONS[name]()]
    drivers = [driver for driver in (make_driver(request, name) for name in here) if codec in driver.codecs]
    create(fleet.bootstrap, codec, len(drivers))
    for partition, driver in enumerate(drivers):
        records = [Record(b"key", value, partition=partition) for value in text_of(driver.name, codec)]
        driver.produce(fleet.bootstrap, codec, records, codec=codec)
        log = next(iter(sorted(fleet.data.glob(f"broker-*/*/{codec}-{partition}/{0:020d}.log")))).read_bytes()
        assert CODECS[log[ATTRIBUTES] & 7] == codec, f"what {driver.name} sent is stored as it was compressed"
    return [driver.name for driver in drivers]


@pytest.mark.parametrize(
    "driver", [pytest.param(name, marks=MARKS.get(name, [])) for name in DRIVERS], indirect=["driver"]
)
def test_what_any_client_compresses_is_read(
    driver: Driver, fleet: RunningCluster, codec: str, writers: list[str]
) -> None:
    if codec not in driver.codecs:
        pytest.skip(f"{driver.name} has no {codec}")
    found = driver.read(fleet.bootstrap, codec, len(writers))
    for partition, writer in enumerate(writers):
        values = [record.value for record in found if record.partition == partition]
        assert values == text_of(writer, codec), f"{driver.name} reads what {writer} wrote"
