"""What several of the controller's tests begin with."""

import uuid

import pytest

from tests.broker.controller.fleet import Fleet


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=pytest.mark.java)])
async def fleet(request, tmp_path):
    """Every test on the embedded store and on a real ZooKeeper."""
    chroot = None
    if request.param == "zookeeper":
        chroot = f"{request.getfixturevalue('zookeeper').connect}/controller/{uuid.uuid4()}"
    async with Fleet(tmp_path, chroot) as fleet:
        yield fleet
