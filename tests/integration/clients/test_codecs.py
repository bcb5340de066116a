"""Every codec of every client is read by every other client."""

from __future__ import annotations

import pytest

from ottla_broker.testing import Cluster
from tests.conftest import REASONS
from tests.integration.clients.conftest import DRIVERS, MARKS, make_driver
from tests.integration.clients.driver import CODECS, Driver, Record
from tests.integration.clients.topics import create

ATTRIBUTES = 22  # where the low byte stands in a batch; the codec is its low three bits


def text_of(client: str, codec: str) -> list[bytes]:
    """Values that compress well, and that say who wrote them."""
    return [f"{client} {codec} {number} ".encode() * 50 for number in range(20)]


PAIRS = [
    pytest.param(name, codec, marks=MARKS.get(name, []))
    for name, driver in DRIVERS.items()
    for codec in CODECS
    if codec in driver.codecs
]


@pytest.mark.parametrize(("driver", "codec"), PAIRS, indirect=["driver"])
def test_what_a_client_compresses_the_others_read(
    request: pytest.FixtureRequest, driver: Driver, fleet: Cluster, codec: str, name: str
) -> None:
    create(fleet.bootstrap, name)
    values = text_of(driver.name, codec)
    driver.produce(fleet.bootstrap, name, [Record(b"key", value) for value in values], codec=codec)
    log = next(iter(sorted(fleet.data.glob(f"broker-*/*/{name}-0/{0:020d}.log")))).read_bytes()
    assert CODECS[log[ATTRIBUTES] & 7] == codec, "it is stored as it was compressed"
    for reader in readers(request, codec):
        assert [record.value for record in reader.read(fleet.bootstrap, name)] == values, reader.name


def readers(request: pytest.FixtureRequest, codec: str) -> list[Driver]:
    """Every client that is here and has the codec: java and kcat are marks of the writers, and may be absent."""
    here = [name for name in DRIVERS if name not in REASONS or not REASONS[name]()]
    drivers = [make_driver(request, name) for name in here]
    return [driver for driver in drivers if codec in driver.codecs]
