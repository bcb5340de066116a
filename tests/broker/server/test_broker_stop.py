"""The end of a broker whose disk is not there any more."""

from __future__ import annotations

import shutil

from ottla_broker.testing import cluster


def test_a_directory_that_vanished_turns_a_stop_into_a_halt_that_says_so() -> None:
    with cluster(brokers=1, disks=1) as fleet:
        assert fleet.fleet is not None
        broker = fleet.fleet.brokers[0]
        directory = fleet.data / "broker-0" / "d0"
        shutil.rmtree(directory)
        fleet.stop(0)
        assert broker.state == "halted"
        assert str(directory) in fleet.run(broker.halted())
