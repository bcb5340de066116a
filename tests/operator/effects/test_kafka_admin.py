"""The Kafka side of the operator against real brokers, through real sockets."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaConnectionError
from kafka.net.manager import KafkaConnectionManager

from ottla.testing import RunningCluster, cluster
from ottla_operator.api.fleet import (
    NO_ANSWER,
    BrokerValue,
    BrokerValues,
    ClusterMetadata,
    ConfigChanges,
    PartitionReport,
)
from ottla_operator.api.topics import AlterTopicConfig, CreatePartitions, CreateTopic, DeleteTopic, TopicDescription
from ottla_operator.concerns.roll.actions import Migration, migrate
from ottla_operator.concerns.roll.leader_moves import movable, next_moves
from ottla_operator.concerns.topics.reasons import TOPIC_ALREADY_EXISTS
from ottla_operator.effects import broker_config_requests
from ottla_operator.effects.environment import ProductionEnvironment, read_report
from ottla_operator.effects.kafka_admin import CONNECT_TIMEOUT_MS, LONGEST_BACKOFF_MS, KafkaPythonAdmin
from ottla_operator.effects.topic_requests import change_topics
from ottla_operator.ports import KafkaUnavailable

BOOTSTRAP_TIMEOUT_MS = 60_000
"""The operator tries again after five seconds; a test has one try, on whatever machine."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    with cluster(brokers=3, racks=3, disks=2) as running:
        yield running


@pytest.fixture
async def admin(fleet: RunningCluster) -> AsyncIterator[KafkaPythonAdmin]:
    lane = KafkaPythonAdmin(fleet.bootstrap.split(","), bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)
    yield lane
    await lane.close()


async def _eventually(
    admin: KafkaPythonAdmin, names: Sequence[str], holds: Callable[[Mapping[str, TopicDescription]], bool]
) -> Mapping[str, TopicDescription]:
    """The topics once a condition holds. Brokers show a change a moment later, and the next call may ask another broker
    that is behind; so assertions use what this returns."""
    async with asyncio.timeout(120):
        while True:
            found = await admin.topics(names)
            if holds(found):
                return found
            await asyncio.sleep(0.05)


async def _there(admin: KafkaPythonAdmin, *names: str) -> Mapping[str, TopicDescription]:
    return await _eventually(admin, names, lambda found: len(found) == len(names))


async def test_only_the_brokers_that_it_was_told_are_asked_what_any_broker_can_answer(
    admin: KafkaPythonAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[int | str] = []
    connect = KafkaConnectionManager.get_connection

    def record(manager: KafkaConnectionManager, node: int | str, *args: object, **settings: object) -> object:
        connected.append(node)
        return connect(manager, node, *args, **settings)

    monkeypatch.setattr(KafkaConnectionManager, "get_connection", record)
    await admin.view()
    for broker in (2, 0, 1):
        admin.ask_only([broker])
        connected.clear()
        await admin.view()
        await admin.min_in_sync(["no.such"])
        await admin.topics(["no.such"])
        await admin.brokers()
        assert set(connected) == {broker}
    admin.ask_only([8, 9])
    with pytest.raises(KafkaUnavailable):
        await admin.view()
    admin.ask_only([1, 9])
    assert (await admin.view()).brokers == (0, 1, 2)
    admin.ask_only([])
    assert (await admin.view()).brokers == (0, 1, 2)


async def test_a_fleet_without_finalized_features_reports_none(admin: KafkaPythonAdmin) -> None:
    assert await admin.finalized_features() == {}


async def test_values_of_a_broker_are_returned_with_every_place_that_they_come_from(admin: KafkaPythonAdmin) -> None:
    brokers = await admin.brokers()

    async def values_after(changes: ConfigChanges, of_another: BrokerValue | None) -> Mapping[int, BrokerValues]:
        """Once broker 2 has them too: it learns of them from ZooKeeper, and nothing announces that."""
        assert await admin.alter_broker_configs(changes) == {}
        async with asyncio.timeout(60):
            while True:
                found = await admin.broker_values(brokers)
                if all(found[other].get("log.retention.ms") == of_another for other in (0, 2)):
                    return found
                await asyncio.sleep(0.05)

    before = await admin.broker_values(brokers)
    assert not any(value.is_dynamic for values in before.values() for value in values.values())
    assert str(before[1]["listeners"].file).startswith("INTERNAL://"), "what the broker has read from its file"
    found = await values_after(
        {1: {"message.max.bytes": "5000"}, None: {"message.max.bytes": "6000", "log.retention.ms": "70000"}},
        BrokerValue(None, "70000"),
    )
    assert found[1]["message.max.bytes"] == BrokerValue("5000", "6000")
    assert found[0]["message.max.bytes"] == BrokerValue(None, "6000")
    nothing = {"message.max.bytes": None, "log.retention.ms": None}
    assert await values_after({1: nothing, None: nothing}, None) == before


async def test_a_broker_that_does_not_answer_hides_the_values_of_no_other(admin: KafkaPythonAdmin) -> None:
    found = await admin.broker_values([0, 9, 1])
    assert found.keys() == {0, 1} and all(found.values())
    with pytest.raises(KafkaUnavailable):
        await admin.broker_values([9])


async def test_a_refused_value_of_a_broker_has_its_own_error_and_stops_no_other(admin: KafkaPythonAdmin) -> None:
    wanted = {"num.io.threads": "1000", "log.cleaner.backoff.ms": "14000", "num.partitions": "3"}
    errors = await admin.alter_broker_configs({1: wanted})
    assert errors.keys() == {(1, "num.io.threads"), (1, "num.partitions")}
    assert "between half and double" in errors[1, "num.io.threads"]
    assert (await admin.broker_values([1]))[1]["log.cleaner.backoff.ms"] == BrokerValue("14000")
    assert await admin.alter_broker_configs({1: {"log.cleaner.backoff.ms": None}}) == {}


async def test_a_topic_is_created_altered_extended_and_deleted(admin: KafkaPythonAdmin) -> None:
    assert await admin.topics(["flights"]) == {}
    assert await admin.change([CreateTopic("flights", 2, 3, {"retention.ms": "1000"})]) == {}
    found = await _eventually(admin, ["flights", "no.such"], bool)
    assert list(found) == ["flights"]
    live = found["flights"]
    assert (live.partitions, live.replicas, dict(live.config)) == (2, 3, {"retention.ms": "1000"})
    assert len(live.topic_id) == 22 and live.whole == (3, 3)
    assert (
        await admin.change(
            [CreatePartitions("flights", 4), AlterTopicConfig("flights", {"max.message.bytes": "9"}, ("retention.ms",))]
        )
        == {}
    )
    changed = {"max.message.bytes": "9"}
    await _eventually(
        admin,
        ["flights"],
        lambda found: (
            "flights" in found and (found["flights"].partitions, dict(found["flights"].config)) == (4, changed)
        ),
    )
    assert await admin.change([DeleteTopic("flights", "AAAAAAAAAAAAAAAAAAAAAQ"), DeleteTopic("no.such")]) == {}
    assert (await _there(admin, "flights"))["flights"].topic_id == live.topic_id
    assert await admin.change([DeleteTopic("flights", live.topic_id)]) == {}
    await _eventually(admin, ["flights"], lambda found: not found)
    assert await admin.change([DeleteTopic("flights", live.topic_id)]) == {}
    errors = await admin.change([DeleteTopic("flights", "gone")])
    assert errors == {"flights": "InvalidRequest: 'gone' is no topic id"}


def test_the_error_of_a_deletion_is_that_of_its_topic() -> None:
    """A deletion by name is answered with no topic id, one by id without a name where the topic is unknown."""
    one = "AAAAAAAAAAAAAAAAAAAAAQ"
    refused = [("a", 0, 89), ("b", 0, 0), (None, 1, 29), ("c", 2, 0)]

    def delete_topics(wanted: Sequence[object], timeout_ms: int, *, raise_errors: bool) -> dict[str, object]:
        assert wanted == ["a", "b", uuid.UUID(int=1), "c"]
        return {
            "topics": [
                {"name": name, "topic_id": uuid.UUID(int=number), "error_code": code, "error_message": "no"}
                for name, number, code in refused
            ]
        }

    client: Any = SimpleNamespace(delete_topics=delete_topics)
    deletions = [DeleteTopic("a"), DeleteTopic("b"), DeleteTopic("by-id", one), DeleteTopic("c")]
    assert change_topics(client, deletions, 1000) == {
        "a": "ThrottlingQuotaExceeded: no",
        "by-id": "TopicAuthorizationFailed: no",
    }


async def test_a_topic_without_counts_gets_the_brokers_defaults(admin: KafkaPythonAdmin) -> None:
    assert await admin.change([CreateTopic("plain", -1, -1, {})]) == {}
    assert (await _there(admin, "plain"))["plain"].partitions == 1


async def test_a_refused_change_has_the_name_of_kafkas_error_and_stops_no_other(admin: KafkaPythonAdmin) -> None:
    errors = await admin.change([CreateTopic("wide", 1, 9, {}), CreateTopic("narrow", 1, 1, {})])
    assert list(errors) == ["wide"] and errors["wide"].startswith("InvalidReplicationFactor")
    found = await _eventually(admin, ["wide", "narrow"], lambda topics: "narrow" in topics)
    assert list(found) == ["narrow"]


async def test_a_timeout_in_the_controller_is_no_refusal(fleet: RunningCluster) -> None:
    lane = KafkaPythonAdmin(fleet.bootstrap.split(","), bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS, change_timeout_ms=1)
    names = [f"hasty-{number}" for number in range(20)]
    assert await lane.change([CreateTopic(name, 1, 3, {}) for name in names]) == {}
    await _there(lane, *names)
    assert await lane.change([CreatePartitions(name, 2) for name in names]) == {}
    await _eventually(
        lane, names, lambda found: len(found) == len(names) and all(topic.partitions == 2 for topic in found.values())
    )
    assert await lane.change([DeleteTopic(name) for name in names]) == {}
    await _eventually(lane, names, lambda found: not found)
    await lane.close()


async def test_the_metadata_has_brokers_controller_and_in_sync_replicas(admin: KafkaPythonAdmin) -> None:
    assert await admin.change([CreateTopic("seen", 1, 3, {})]) == {}
    async with asyncio.timeout(120):
        # The metadata is from one broker, which may be behind.
        while True:
            view = await admin.view()
            found = [item for item in view.partitions if item.topic == "seen"]
            if found and len(view.brokers) == 3:
                break
            await asyncio.sleep(0.05)
        while len(await admin.brokers()) < 3:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)
    assert view.brokers == (0, 1, 2) and view.controller in view.brokers and view.cluster_id
    (partition,) = found
    assert sorted(partition.replicas) == [0, 1, 2] and set(partition.in_sync) <= {0, 1, 2}


def _running_clients() -> int:
    return sum(thread.name.startswith("kafka-io") for thread in threading.enumerate())


async def test_a_call_without_any_broker_raises_and_the_next_one_connects_again() -> None:
    """No client goes on trying in the background once its creation has failed."""
    before = _running_clients()
    lane = KafkaPythonAdmin(["127.0.0.1:1"], bootstrap_timeout_ms=100)
    for _ in range(2):
        with pytest.raises(KafkaUnavailable):
            await lane.view()
        assert _running_clients() == before
    await lane.close()


async def test_an_address_without_a_pod_delays_a_call_for_less_than_a_restart_takes(admin: KafkaPythonAdmin) -> None:
    """The restart of the controller: the client still knows the address of a pod that is gone: nothing refuses."""

    def limits(client: KafkaAdminClient) -> tuple[list[float], list[float]]:
        manager = client._manager
        timeouts, pauses = [manager.socket_connection_setup_timeout_ms("unknown")], []
        for _ in range(8):
            pauses.append(manager.update_backoff("unknown") / 1.2)  # it varies by a fifth
            timeouts.append(manager.socket_connection_setup_timeout_ms("unknown") / 1.2)
        return timeouts, pauses

    timeouts, pauses = await admin._call(limits)
    assert max(timeouts) <= CONNECT_TIMEOUT_MS
    assert max(pauses) <= LONGEST_BACKOFF_MS


async def test_a_closed_client_leaves_no_thread(fleet: RunningCluster) -> None:
    before = _running_clients()
    lane = KafkaPythonAdmin(fleet.bootstrap.split(","), bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS)
    await lane.brokers()
    assert _running_clients() == before + 1
    await lane.close()
    assert _running_clients() == before


async def test_a_name_that_brokers_refuse_is_an_error_of_that_topic(admin: KafkaPythonAdmin) -> None:
    await admin.change([CreateTopic("usual", 1, 1, {})])
    await _there(admin, "usual")
    names = [".", "usual", "a b", "\ud800", "x" * 300]
    found = await _eventually(admin, names, lambda found: "usual" in found)
    assert found["usual"].error == "" and found["usual"].partitions == 1
    assert {name for name in names if found[name].error} == set(names) - {"usual"}
    assert found["."].error.startswith("InvalidTopic: ")


async def test_a_change_that_cannot_be_encoded_is_an_error_of_that_change(admin: KafkaPythonAdmin) -> None:
    unwritable = {"retention.ms": "\ud800"}
    errors = await admin.change(
        [CreateTopic("bad", 1, 1, unwritable), CreateTopic("fine", 1, 1, {}), CreateTopic("many", 2**40, 1, {})]
    )
    assert set(errors) == {"bad", "many"}
    await _there(admin, "fine")
    errors = await admin.change(
        [
            AlterTopicConfig("fine", {"retention.ms": "1000"}, ()),
            AlterTopicConfig("fine2", unwritable, ()),
            CreatePartitions("fine", 2),
            CreatePartitions("fine3", 2**40),
            DeleteTopic("\ud800"),
        ]
    )
    assert set(errors) == {"fine2", "fine3", "\ud800"}
    await _eventually(
        admin,
        ["fine"],
        lambda found: "fine" in found and found["fine"].partitions == 2 and bool(found["fine"].config),
    )
    errors = await admin.change(
        [AlterTopicConfig("fine", {"no.such.key": "1"}, ()), AlterTopicConfig("nowhere", {"retention.ms": "1"}, ())]
    )
    assert errors["fine"].startswith("InvalidConfiguration: ") and set(errors) == {"fine", "nowhere"}


async def test_an_internal_topic_is_marked_as_internal(fleet: RunningCluster, admin: KafkaPythonAdmin) -> None:
    consumer = KafkaConsumer("usual", bootstrap_servers=fleet.bootstrap, group_id="g")
    await asyncio.to_thread(consumer.poll, 1000)
    await asyncio.to_thread(consumer.close)
    found = await _there(admin, "__consumer_offsets")
    assert found["__consumer_offsets"].is_internal


async def test_a_creation_of_an_existing_topic_is_refused_as_topic_already_exists(admin: KafkaPythonAdmin) -> None:
    assert await admin.change([CreateTopic("twice", 1, 1, {})]) == {}
    errors = await admin.change([CreateTopic("twice", 1, 1, {})])
    assert errors["twice"].startswith(TOPIC_ALREADY_EXISTS)


async def test_a_brokers_status_is_parsed_with_its_directory_ids(fleet: RunningCluster) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"http://{fleet.http(1)}/status") as response:
        report = read_report("uid", await response.json())
    assert report is not None and report.cluster_id
    assert [directory.state for directory in report.log_dirs] == ["online", "online"]
    assert len({directory.directory_id for directory in report.log_dirs} - {""}) == 2


def test_a_store_that_a_broker_refuses_is_in_its_report_once() -> None:
    reason = "ssl.keystore.location: /etc/kafka/keys.pem: it is neither PEM nor PKCS#12"
    listeners = [{"listener": "A", "role": role, "refused": reason} for role in ("server", "client")]
    report = read_report("uid", {"tls": [*listeners, {"listener": "B", "role": "server", "refused": ""}]})
    assert report is not None and report.refused_stores == (reason,)
    of_an_older_release = read_report("uid", {"state": "running"})
    assert of_an_older_release is not None and of_an_older_release.refused_stores == ()


async def test_a_pod_without_an_address_has_no_report() -> None:
    environment = ProductionEnvironment()
    assert await environment.broker_report({"kind": "Pod", "metadata": {"name": "p"}}) is None
    await environment.close()


async def test_preferred_leaders_are_elected_and_refused_elections_returned(admin: KafkaPythonAdmin) -> None:
    assert await admin.change([CreateTopic("led", 3, 3, {})]) == {}
    await _there(admin, "led")
    refused = await admin.elect_leaders([("led", 0), ("led", 1), ("led", 2), ("nowhere", 0)])
    assert refused == {("nowhere", 0): "UnknownTopicOrPartition"}
    async with asyncio.timeout(120):
        while await _preferred_leaders(admin, "led") != 3:  # noqa: ASYNC110 - the broker that answers may be behind
            await asyncio.sleep(0.05)


async def _preferred_leaders(admin: KafkaPythonAdmin, topic: str) -> int:
    partitions = [part for part in (await admin.view()).partitions if part.topic == topic]
    return sum(part.leader == part.replicas[0] for part in partitions)


async def test_min_insync_replicas_of_topics_are_those_in_effect(admin: KafkaPythonAdmin) -> None:
    await admin.change([CreateTopic("plain", 1, 3, {}), CreateTopic("strict", 1, 3, {"min.insync.replicas": "2"})])
    await _there(admin, "plain", "strict")
    async with asyncio.timeout(60):
        while True:
            found = await admin.min_in_sync(["plain", "strict", "no-such-topic"])
            if found == {"plain": 1, "strict": 2}:
                return
            await asyncio.sleep(0.05)


async def test_leaderships_leave_a_broker_and_every_replica_order_is_as_before(admin: KafkaPythonAdmin) -> None:
    """AlterPartitionReassignments, ElectLeaders and AlterPartitionReassignments, on real brokers."""
    await admin.change([CreateTopic("migrates", 12, 3, {})])
    await _there(admin, "migrates")

    async def partitions(holds: Callable[[list[PartitionReport]], bool]) -> ClusterMetadata:
        async with asyncio.timeout(60):
            while True:
                view = await admin.view()
                mine = [partition for partition in view.partitions if partition.topic == "migrates"]
                if len(mine) == 12 and holds(mine):
                    return replace(view, partitions=tuple(mine))
                await asyncio.sleep(0.05)

    before = await partitions(lambda mine: all(len(one.in_sync) == 3 for one in mine))
    orders = {one.index: one.replicas for one in before.partitions}
    moves = next_moves(before, (1,), movable(before, (1,)))
    assert len(moves) == 4
    assert await migrate(admin, moves, (1,), only_restore=False) == Migration({}, moves)
    after = await partitions(
        lambda mine: all(one.leader != 1 for one in mine) and {one.index: one.replicas for one in mine} == orders
    )
    assert movable(after, (1,)) == ()
    interrupted = next_moves(after, (0,), movable(after, (0,)))
    assert interrupted and await admin.reorder({move.id: move.moved for move in interrupted}) == {}
    assert await migrate(admin, interrupted, (0,), only_restore=True) == Migration({}, interrupted)
    await partitions(lambda mine: {one.index: one.replicas for one in mine} == orders)


async def test_the_replicas_in_a_brokers_log_directories_are_returned(admin: KafkaPythonAdmin) -> None:
    assert await admin.change([CreateTopic("stored", 2, 3, {})]) == {}
    await _there(admin, "stored")
    async with asyncio.timeout(120):
        while True:
            found = (await admin.log_dirs([1])).get(1, ())
            if {"stored-0", "stored-1"} <= {str(replica) for one in found for replica in one.replicas}:
                break
            await asyncio.sleep(0.05)


async def test_a_value_that_no_request_can_hold_is_an_error_of_its_own_and_the_others_are_set(
    admin: KafkaPythonAdmin,
) -> None:
    """The client would send it, and the broker would close the connection, at each try."""
    long = {"max.connections.per.ip.overrides": "127.0.0.1:5," * 3000, "log.cleaner.backoff.ms": "16000"}
    errors = await admin.alter_broker_configs({1: long})
    assert list(errors) == [(1, "max.connections.per.ip.overrides")]
    assert "has 36000 bytes; a string of Kafka has at most 32767" in errors[1, "max.connections.per.ip.overrides"]
    assert await admin.alter_broker_configs({1: {"log.cleaner.backoff.ms": None}}) == {}


async def test_a_broker_that_closes_the_connection_is_an_error_of_its_own_and_others_are_asked(
    admin: KafkaPythonAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter = broker_config_requests._alter

    def closed_by_1(client: KafkaAdminClient, broker: int | None, values: Mapping[str, str | None]) -> str:
        if broker == 1:
            raise KafkaConnectionError("Connection closed by peer")
        return alter(client, broker, values)

    with monkeypatch.context() as patched:
        patched.setattr(broker_config_requests, "_alter", closed_by_1)
        changes: ConfigChanges = {number: {"log.cleaner.backoff.ms": "16000"} for number in range(3)}
        errors = await admin.alter_broker_configs(changes)
        assert list(errors) == [(1, "log.cleaner.backoff.ms")]
        assert errors[1, "log.cleaner.backoff.ms"].startswith(f"{NO_ANSWER}KafkaConnectionError: ")
        with pytest.raises(KafkaUnavailable, match=r"^KafkaConnectionError: "):
            await admin.set_broker_config(1, "log.cleaner.backoff.ms", "16000")
    undone: ConfigChanges = {number: {"log.cleaner.backoff.ms": None} for number in range(3)}
    assert await admin.alter_broker_configs(undone) == {}
