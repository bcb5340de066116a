"""A broker dies while a group consumes and a producer produces, with each client: nothing is lost, the group goes on.

Duplicates at the consumer are allowed: what was read and not yet committed is read again.
"""

from __future__ import annotations

import threading

import pytest

from ottla.testing import RunningCluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from tests.integration.clients.conftest import EVERY_CLIENT
from tests.integration.clients.driver import QUICK_MEMBER, Driver, Gathering, GroupMember, Member, Record, await_that
from tests.integration.clients.librdkafka import Librdkafka
from tests.integration.clients.topics import create, metadata
from tests.integration.wire import Wire

FEED = 40
MORTAL = {**QUICK_MEMBER, "session.timeout.ms": "6000"}
"""Whoever is lost with a coordinator is missed soon; a member that only had no time joins again, and reads again."""


def coordinator_of(fleet: RunningCluster, group: str) -> int:
    api = codec.module(ApiKey.FIND_COORDINATOR)
    with Wire(fleet.address(fleet.running[0])) as wire:
        answers = []

        def is_found() -> bool:
            answers.append(wire.ask(ApiKey.FIND_COORDINATOR, 2, api.FindCoordinatorRequest(key=group, key_type=0)))
            return bool(answers[-1].error_code == 0)

        await_that(is_found, f"{group} has a coordinator")
    node: int = answers[-1].node_id
    return node


def leader_of(fleet: RunningCluster, topic: str) -> int:
    with Wire(fleet.address(fleet.running[0])) as wire:
        return metadata(wire, topic)[0]


def in_sync(fleet: RunningCluster, topic: str) -> bool:
    """True when all three replicas of every partition are in the ISR."""
    found = Librdkafka().describe_topic(fleet.bootstrap, topic)
    return all(len(replicas) == 3 for replicas in found.in_sync_replicas.values())


class Feeder:
    """Produces numbered values with a client, one acknowledged lot after the other, until it is stopped."""

    def __init__(self, driver: Driver, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failure: Exception | None = None
        self._driver, self._bootstrap, self._topic = driver, bootstrap, topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            lot = [Record(None, f"value {n}".encode(), partition=n % 2) for n in range(number, number + FEED)]
            number += FEED
            try:
                ordered = sorted(lot, key=lambda record: record.partition)
                self._driver.produce(self._bootstrap, self._topic, ordered, is_idempotent=True)
            except Exception as error:
                self.failure = error
                return
            self.acknowledged += [record.value for record in lot if record.value is not None]


@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
@pytest.mark.parametrize("victim", ["leader", "coordinator"])
def test_a_group_goes_on_when_a_broker_dies(driver: Driver, fleet: RunningCluster, name: str, victim: str) -> None:
    create(fleet.bootstrap, name, 2)
    await_that(lambda: in_sync(fleet, name), "all replicas in sync")
    gathering = Gathering()
    members: list[Member] = [
        driver.join(fleet.bootstrap, GroupMember(f"{name}-{which}", name, name, MORTAL), gathering) for which in "ab"
    ]
    feeder = Feeder(driver, fleet.bootstrap, name)
    killed = -1
    try:
        gathering.wait_until(lambda found: found.shares(1, 1), "both members have a partition")
        gathering.wait_until(lambda found: len(set(found.values())) >= FEED, "records flow")
        killed = leader_of(fleet, name) if victim == "leader" else coordinator_of(fleet, name)
        fleet.kill(killed)
        before = len(set(gathering.values()))
        gathering.wait_until(lambda found: len(set(found.values())) >= before + 3 * FEED, "records flow again")
        commits = gathering.commits
        if driver.name != "kcat":  # it tells nobody of its commits
            gathering.wait_until(lambda found: found.commits > commits, "offsets are committed again")
        feeder.stop()
        wanted = set(feeder.acknowledged)
        gathering.wait_until(lambda found: wanted <= set(found.values()), "everything acknowledged has been read")
    finally:
        feeder.stop()
        for member in members:
            member.close()
        if killed >= 0:
            fleet.start(killed)
    await_that(lambda: in_sync(fleet, name), "the returned broker has caught up")
    stored = [record.value for record in driver.read(fleet.bootstrap, name, 2)]
    assert set(stored) >= wanted
    assert len(stored) == len(set(stored)), "an idempotent producer writes nothing twice"


@pytest.mark.parametrize("driver", EVERY_CLIENT, indirect=True)
def test_every_broker_is_restarted_in_order_under_a_group(driver: Driver, fleet: RunningCluster, name: str) -> None:
    create(fleet.bootstrap, name, 2)
    gathering = Gathering()
    member = driver.join(fleet.bootstrap, GroupMember(f"{name}-a", name, name, MORTAL), gathering)
    feeder = Feeder(driver, fleet.bootstrap, name)
    try:
        for broker in range(3):
            await_that(lambda: in_sync(fleet, name), "all replicas in sync")
            fleet.stop(broker)
            fleet.start(broker)
            before = len(set(gathering.values()))
            gathering.wait_until(
                lambda found, before=before: len(set(found.values())) >= before + FEED,  # type: ignore[misc]
                "records flow again",
            )
        feeder.stop()
        wanted = set(feeder.acknowledged)
        gathering.wait_until(lambda found: wanted <= set(found.values()), "everything acknowledged has been read")
    finally:
        feeder.stop()
        member.close()
