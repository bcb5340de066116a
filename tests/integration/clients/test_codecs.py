"""Every codec of every client is read by every other client."""

from __future__ import annotations

import pytest

from ottla_broker.testing import Cluster
from tests.integration.clients.conftest import EVERY_CLIENT, make_driver
from tests.integration.clients.driver import CODECS, Driver, Record
from tests.integration.clients.topics import create

ATTRIBUTES = 21  # where the codec stands in a batch: the low three bits of byte 22


def text_of(client: str, codec: str) -> list[bytes]:
    """Values that compress well, and that say who wrote them."""
    return [f"{client} {codec} {number} ".encode() * 50 for number in range(20)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
def test_what_a_client_compresses_the_others_read(
    request: pytest.FixtureRequest, driver: Driver, fleet: Cluster, codec: str, name: str
) -> None:
    if codec not in driver.codecs:
        pytest.skip(f"{driver.name} has no {codec} with the packages that are installed")
    create(fleet.bootstrap, name)
    values = text_of(driver.name, codec)
    driver.produce(fleet.bootstrap, name, [Record(b"key", value) for value in values], codec=codec)
    log = next(iter(sorted(fleet.data.glob(f"broker-*/*/{name}-0/{0:020d}.log")))).read_bytes()
    assert CODECS[log[ATTRIBUTES + 1] & 7] == codec, "it is stored as it was compressed"
    for reader in readers(request, codec):
        assert [record.value for record in reader.read(fleet.bootstrap, name)] == values, reader.name


def readers(request: pytest.FixtureRequest, codec: str) -> list[Driver]:
    """Every client that is here and has the codec: java and kcat are marks of the writers, and may be absent."""
    from tests.conftest import REASONS

    names = [str(parameter.values[0]) for parameter in EVERY_CLIENT]
    here = [name for name in names if name not in REASONS or not REASONS[name]()]
    drivers = [make_driver(request, name) for name in here]
    return [driver for driver in drivers if codec in driver.codecs]
