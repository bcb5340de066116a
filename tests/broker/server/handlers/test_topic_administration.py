"""The handlers of the controller's APIs: what a client gets, in every version."""

import logging
from types import SimpleNamespace

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.decisions.assignment import RackMode
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.coordination.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from ottla_broker.metrics import Metrics
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import ZERO_UUID
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import allocate_producer_ids as ids
from ottla_broker.protocol.generated import alter_configs as ac
from ottla_broker.protocol.generated import alter_partition as ap
from ottla_broker.protocol.generated import alter_partition_reassignments as ar
from ottla_broker.protocol.generated import create_partitions as cp
from ottla_broker.protocol.generated import create_topics as ct
from ottla_broker.protocol.generated import delete_topics as dt
from ottla_broker.protocol.generated import describe_configs as dc
from ottla_broker.protocol.generated import incremental_alter_configs as iac
from ottla_broker.protocol.generated import list_partition_reassignments as lr
from ottla_broker.quotas.entities import QuotaEntity
from ottla_broker.server.edge.throttling import Throttling
from ottla_broker.server.handlers import (
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_partition_reassignments,
)
from ottla_broker.server.store.dynamic_config import DynamicConfig
from tests.broker.controller.fleet import Fleet, fleet_of
from tests.broker.server.contexts import handler_context

HANDLERS = {
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.ALTER_PARTITION: alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
}


class Client:
    """Sends requests to a controller's handlers, through the codec both ways."""

    def __init__(self, controller, **config) -> None:
        broker_config = BrokerConfig.from_mapping(
            {"zookeeper.connect": "x:2181", **{key.replace("_", "."): value for key, value in config.items()}}
        )
        clock = LoopClock()
        clock.monotonic = lambda: 1000.0
        self.throttling = Throttling(clock, broker_config, Metrics())
        self.services = SimpleNamespace(
            controller=controller,
            config=broker_config,
            dynamic_config=SimpleNamespace(config=broker_config),
            certificate_stores=None,  # a change of a topic reads none
            throttle=self.throttling,
        )

    async def ask(self, api_key, version, request):
        frame = b"".join(bytes(chunk) for chunk in codec.frame_request(api_key, version, 7, "test", request))
        view = memoryview(frame)[4:]
        header = codec.read_request_header(view)
        decoded = codec.module(api_key).read_request(version, view, header.body_offset)
        context = handler_context(
            api_key=api_key,
            api_version=version,
            is_privileged=False,
            principal_name="ANONYMOUS",
            client_id="test",
            usage=None,
        )
        response = await HANDLERS[api_key].handle(self.services, context, decoded)
        if context.usage is not None:
            self.throttling.answer(context, context.usage, response)
        answer = b"".join(bytes(chunk) for chunk in codec.frame_response(api_key, version, 7, response))
        return codec.read_response_frame(api_key, version, memoryview(answer)[4:])[1]


@pytest.fixture
async def fleet(tmp_path):
    async with Fleet(tmp_path) as fleet:
        yield fleet


def topic(name, partitions=1, factor=1, **rest):
    return ct.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **rest)


@pytest.mark.parametrize("version", range(8))
async def test_create_topics_in_every_version(fleet, version) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    response = await client.ask(
        ApiKey.CREATE_TOPICS,
        version,
        ct.CreateTopicsRequest(topics=[topic("good", 2, 2), topic("twice"), topic("twice"), topic("bad/name")]),
    )
    good, first, second, bad = response.topics
    assert [entry.name for entry in response.topics] == ["good", "twice", "twice", "bad/name"]
    assert good.error_code == ErrorCode.NONE
    assert first.error_code == second.error_code == ErrorCode.INVALID_REQUEST
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    if version >= 1:
        assert "bad/name" in bad.error_message
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 2)
        assert (bad.num_partitions, bad.replication_factor, bad.configs) == (-1, -1, [])
    if version >= 7:
        assert bytes(good.topic_id) == (await fleet.assignment("good")).topic_id.bytes


async def test_create_topics_tells_the_configuration_with_its_sources(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller, log_retention_ms="7200000")
    configs = [ct.CreatableTopicConfig(name="segment.bytes", value="1048576")]
    response = await client.ask(
        ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t", -1, -1, configs=configs)])
    )
    found = {entry.name: (entry.value, entry.config_source) for entry in response.topics[0].configs}
    assert found["segment.bytes"] == ("1048576", 1)
    assert found["retention.ms"] == ("7200000", 4)
    assert found["max.message.bytes"][1] == 5
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (1, 1)


async def test_validate_only_creates_nothing_and_tells_what_would_be(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    response = await Client(controller).ask(
        ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t", 3, 2)], validate_only=True)
    )
    (answer,) = response.topics
    assert (answer.error_code, answer.num_partitions, bytes(answer.topic_id)) == (0, 3, ZERO_UUID)
    assert not await fleet.exists("/brokers/topics/t")


async def test_dictated_replicas(fleet) -> None:
    controller, _ = await fleet_of(fleet)

    def with_assignment(name, *entries):
        return topic(
            name,
            -1,
            -1,
            assignments=[ct.CreatableReplicaAssignment(partition_index=p, broker_ids=list(b)) for p, b in entries],
        )

    response = await Client(controller).ask(
        ApiKey.CREATE_TOPICS,
        7,
        ct.CreateTopicsRequest(
            topics=[with_assignment("t", (0, (2, 1)), (1, (0, 2))), with_assignment("u", (0, (1,)), (0, (2,)))]
        ),
    )
    assert [answer.error_code for answer in response.topics] == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    assert (await fleet.assignment("t")).partitions == {0: (2, 1), 1: (0, 2)}


async def test_a_broker_that_is_not_controller_answers_every_item_so(fleet) -> None:
    await fleet_of(fleet)
    controller, _ = await fleet.start_controller(1)
    client = Client(controller)
    created = await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("a"), topic("b")]))
    assert [entry.error_code for entry in created.topics] == [ErrorCode.NOT_CONTROLLER] * 2
    deleted = await client.ask(ApiKey.DELETE_TOPICS, 5, dt.DeleteTopicsRequest(topic_names=["a", "b"]))
    assert [entry.error_code for entry in deleted.responses] == [ErrorCode.NOT_CONTROLLER] * 2
    grown = await client.ask(
        ApiKey.CREATE_PARTITIONS, 3, cp.CreatePartitionsRequest(topics=[cp.CreatePartitionsTopic(name="a", count=2)])
    )
    assert [entry.error_code for entry in grown.results] == [ErrorCode.NOT_CONTROLLER]
    altered = await client.ask(ApiKey.ALTER_PARTITION, 3, ap.AlterPartitionRequest(broker_id=1, broker_epoch=1))
    assert altered.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", range(7))
async def test_delete_topics_in_every_version(fleet, version) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t")]))
    request = (
        dt.DeleteTopicsRequest(
            topics=[dt.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in ("t", "unknown")], timeout_ms=60_000
        )
        if version >= 6
        else dt.DeleteTopicsRequest(topic_names=["t", "unknown"], timeout_ms=60_000)
    )
    response = await client.ask(ApiKey.DELETE_TOPICS, version, request)
    assert [(entry.name, entry.error_code) for entry in response.responses] == [
        ("t", ErrorCode.NONE),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    await fleet.until_gone("/brokers/topics/t")


async def test_the_configuration_of_a_topic_that_is_being_deleted_is_neither_described_nor_altered(fleet) -> None:
    """Its znodes stay for as long as a broker with a replica is dead."""
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    client.services.dynamic_config = DynamicConfig(
        client.services.config, 0, fleet.tool, LoopClock(), lambda *_: None, logging.getLogger("ottla.test")
    )
    placed = [ct.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    new = topic("t", -1, -1, assignments=placed, configs=[ct.CreatableTopicConfig(name="retention.ms", value="7")])
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[new]))

    async def answers():
        """What each API that asks for the configuration of a topic says about t."""
        named = {"resource_type": 2, "resource_name": "t"}
        values = [ac.AlterableConfig(name="retention.ms", value="8")]
        changes = [iac.AlterableConfig(name="retention.ms", config_operation=0, value="8")]
        described = await client.ask(
            ApiKey.DESCRIBE_CONFIGS, 4, dc.DescribeConfigsRequest(resources=[dc.DescribeConfigsResource(**named)])
        )
        found = [*described.results]
        for validate_only in (True, False):
            replace = ac.AlterConfigsRequest(
                validate_only=validate_only, resources=[ac.AlterConfigsResource(**named, configs=values)]
            )
            change = iac.IncrementalAlterConfigsRequest(
                validate_only=validate_only, resources=[iac.AlterConfigsResource(**named, configs=changes)]
            )
            found += (await client.ask(ApiKey.ALTER_CONFIGS, 2, replace)).responses
            found += (await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, change)).responses
        return [one.error_code for one in found]

    assert await answers() == [ErrorCode.NONE] * 5
    stored = (await fleet.tool.get("/config/topics/t"))[0]
    await fleet.kill(1)
    await client.ask(ApiKey.DELETE_TOPICS, 5, dt.DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000))
    assert await fleet.exists("/brokers/topics/t")
    assert await answers() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5
    assert (await fleet.tool.get("/config/topics/t"))[0] == stored
    await fleet.register(1)
    await fleet.until_gone("/brokers/topics/t")
    assert await answers() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 5
    assert not await fleet.exists("/config/topics/t")


async def test_delete_topics_by_id(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t"), topic("u")]))
    known, unknown = (await fleet.assignment("t")).topic_id.bytes, b"\x01" * 16
    both = await client.ask(
        ApiKey.DELETE_TOPICS,
        6,
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name="u", topic_id=known)], timeout_ms=60_000),
    )
    assert [entry.error_code for entry in both.responses] == [ErrorCode.INVALID_REQUEST]
    response = await client.ask(
        ApiKey.DELETE_TOPICS,
        6,
        dt.DeleteTopicsRequest(
            topics=[dt.DeleteTopicState(name=None, topic_id=each) for each in (known, unknown, known)],
            timeout_ms=60_000,
        ),
    )
    assert [(entry.name, entry.error_code) for entry in response.responses] == [
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("t", ErrorCode.NONE),
    ]
    await fleet.until_gone("/brokers/topics/t")
    assert await fleet.exists("/brokers/topics/u")


async def test_a_topic_named_by_its_id_is_not_taken_for_the_next_one_of_its_name(fleet) -> None:
    """Its event runs after those that are queued: the deletion of that topic, and the creation of the next."""
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t")], timeout_ms=60_000))
    first = (await fleet.assignment("t")).topic_id.bytes
    recreated = []

    async def create_again() -> None:
        active = controller._active
        await active.store.mark_for_deletion("t")
        await active.deletions.start(["t"])
        active.context.remove_topic("t")
        await active.store.remove_topic("t")
        recreated.extend(
            await active.administration.create_topics(
                [NewTopic("t", 1, 1)], mode=RackMode.ENFORCED, validate_only=False
            )
        )

    controller._queue(None, "the topic is deleted and created again", create_again)
    response = await client.ask(
        ApiKey.DELETE_TOPICS,
        6,
        dt.DeleteTopicsRequest(topics=[dt.DeleteTopicState(name=None, topic_id=first)], timeout_ms=60_000),
    )
    assert [(entry.name, entry.error_code) for entry in response.responses] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert [result.error for result in recreated] == [ErrorCode.NONE]
    assert (await fleet.assignment("t")).topic_id.bytes not in (first, None)
    assert not await fleet.exists("/admin/delete_topics/t")


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_that_is_switched_off(fleet, version, code) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller, delete_topic_enable="false")
    response = await client.ask(ApiKey.DELETE_TOPICS, version, dt.DeleteTopicsRequest(topic_names=["t"]))
    assert [entry.error_code for entry in response.responses] == [code]


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions_in_every_version(fleet, version) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t", 1, 2), topic("u", 1, 2)]))

    def grow(name, count, *replicas):
        return cp.CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[cp.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in replicas] or None,
        )

    response = await client.ask(
        ApiKey.CREATE_PARTITIONS,
        version,
        cp.CreatePartitionsRequest(
            topics=[grow("t", 3, (2, 0), (1, 2)), grow("u", 1), grow("none", 2), grow("x", 2), grow("x", 3)],
            timeout_ms=60_000,
        ),
    )
    assert [(entry.name, entry.error_code) for entry in response.results] == [
        ("t", ErrorCode.NONE),
        ("u", ErrorCode.INVALID_PARTITIONS),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    stored = (await fleet.assignment("t")).partitions
    assert (stored[1], stored[2]) == ((2, 0), (1, 2))


@pytest.mark.parametrize("version", range(4))
async def test_alter_partition_in_every_version(fleet, version) -> None:
    controller, channels = await fleet_of(fleet)
    client = Client(controller)
    assignments = [ct.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    await client.ask(
        ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t", -1, -1, assignments=assignments)])
    )
    epoch = channels.open_brokers[1].epoch
    members = (
        {"new_isr_with_epochs": [ap.BrokerState(broker_id=1, broker_epoch=epoch)]} if version >= 3 else {"new_isr": [1]}
    )
    named = {"topic_id": (await fleet.assignment("t")).topic_id.bytes} if version >= 2 else {"topic_name": "t"}
    request = ap.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epoch,
        topics=[
            ap.TopicData(
                **named, partitions=[ap.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0, **members)]
            )
        ],
    )
    response = await client.ask(ApiKey.ALTER_PARTITION, version, request)
    assert response.error_code == ErrorCode.NONE
    (answer,) = response.topics[0].partitions
    assert (answer.error_code, answer.leader_id, answer.isr, answer.partition_epoch) == (0, 1, [1], 1)
    request.broker_epoch = epoch + 1
    assert (await client.ask(ApiKey.ALTER_PARTITION, version, request)).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_broker_gets_blocks_of_producer_ids_for_itself(fleet) -> None:
    controller, channels = await fleet_of(fleet)
    client = Client(controller)

    async def allocate(broker, epoch):
        request = ids.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        answer = await client.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, request)
        return answer.error_code, answer.producer_id_start, answer.producer_id_len

    epochs = {broker: channels.open_brokers[broker].epoch for broker in (0, 1, 2)}
    assert await allocate(1, epochs[1]) == (0, 0, 1000)
    assert await allocate(2, epochs[2]) == (0, 1000, 1000)
    data, _ = await fleet.tool.get(PRODUCER_ID_BLOCK)
    assert ProducerIdBlock.decode(data) == ProducerIdBlock(2, 1000, 1999)
    assert await allocate(7, epochs[1]) == (ErrorCode.BROKER_ID_NOT_REGISTERED, 0, 0)
    for epoch in (epochs[1] - 1, epochs[1] + 1, -1):
        assert await allocate(1, epoch) == (ErrorCode.STALE_BROKER_EPOCH, 0, 0)
    await fleet.tool.set(PRODUCER_ID_BLOCK, b"nonsense")
    assert await allocate(1, epochs[1]) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0)
    assert controller.is_active, "that is no reason to resign"
    await fleet.tool.set(PRODUCER_ID_BLOCK, data)
    assert await allocate(1, epochs[1]) == (0, 2000, 1000)
    await controller.stop()
    assert await allocate(1, epochs[1]) == (ErrorCode.NOT_CONTROLLER, 0, 0)


async def test_reassignments_are_begun_listed_and_taken_back(fleet) -> None:
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    await client.ask(ApiKey.CREATE_TOPICS, 7, ct.CreateTopicsRequest(topics=[topic("t", 2, 1), topic("u", 1, 1)]))
    before = (await fleet.assignment("t")).partitions

    def wanted(name, *partitions):
        parts = [ar.ReassignablePartition(partition_index=index, replicas=to) for index, to in partitions]
        return ar.ReassignableTopic(name=name, partitions=parts)

    async def alter(*topics):
        request = ar.AlterPartitionReassignmentsRequest(topics=list(topics))
        return await client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)

    async def ongoing(*asked):
        topics = [lr.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(each)) for name, each in asked]
        request = lr.ListPartitionReassignmentsRequest(topics=topics if asked else None)
        response = await client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
        assert response.error_code == ErrorCode.NONE
        return {
            (one.name, part.partition_index): (part.replicas, part.adding_replicas, part.removing_replicas)
            for one in response.topics
            for part in one.partitions
        }

    to = {index: [(replicas[0] + 1) % 3] for index, replicas in before.items()}
    response = await alter(wanted("t", (0, to[0]), (1, [7]), (5, to[0])), wanted("u", (0, None)), wanted("x", (0, [0])))
    assert response.error_code == ErrorCode.NONE
    assert [(one.name, [part.partition_index for part in one.partitions]) for one in response.responses] == [
        ("t", [0, 1, 5]),
        ("u", [0]),
        ("x", [0]),
    ]
    parts = [part for one in response.responses for part in one.partitions]
    assert [part.error_code for part in parts] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert parts[0].error_message is None and "not alive" in parts[1].error_message
    moving = {("t", 0): ([*to[0], *before[0]], to[0], list(before[0]))}
    assert await ongoing() == await ongoing(("t", (0, 1, 9)), ("x", (0,))) == moving
    assert await ongoing(("t", (1,))) == {}
    (answer,) = (await alter(wanted("t", (0, None)))).responses[0].partitions
    assert answer.error_code == ErrorCode.NONE and await ongoing() == {}


async def test_reassignments_are_the_controllers_to_answer(fleet) -> None:
    await fleet_of(fleet)
    other, _ = await fleet.start_controller(1)
    client = Client(other)
    for key, request in (
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ar.AlterPartitionReassignmentsRequest(topics=[])),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, lr.ListPartitionReassignmentsRequest(topics=None)),
    ):
        response = await client.ask(key, 0, request)
        assert response.error_code == ErrorCode.NOT_CONTROLLER and response.error_message


@pytest.mark.parametrize("is_strict", [True, False])
async def test_a_client_that_has_used_up_its_changes_is_refused_or_throttled_by_version(fleet, is_strict) -> None:
    """KIP-599: a quota of one partition per second, of which eleven may come at once."""
    controller, _ = await fleet_of(fleet)
    client = Client(controller)
    client.throttling.set_quotas(QuotaEntity(client_id="test"), {"controller_mutation_rate": "1.0"})
    create, grow, delete = (6, 3, 5) if is_strict else (5, 2, 4)
    refused, done = ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NONE

    async def created(name, partitions, **how):
        request = ct.CreateTopicsRequest(topics=[topic(name, partitions)], timeout_ms=10000, **how)
        response = await client.ask(ApiKey.CREATE_TOPICS, create, request)
        return response.topics[0].error_code, response.throttle_time_ms

    assert await created("a", 13) == (done, 0 if is_strict else 2000), "more than is left may be taken once"
    assert await created("b", 1) == ((refused, 2000) if is_strict else (done, 3000))
    assert await created("a", 1) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0), "what is refused anyway costs nothing"
    assert await created("c", 1, validate_only=True) == (done, 0)
    grown = await client.ask(
        ApiKey.CREATE_PARTITIONS,
        grow,
        cp.CreatePartitionsRequest(
            topics=[cp.CreatePartitionsTopic(name="a", count=15, assignments=None)], timeout_ms=10000
        ),
    )
    found = (grown.results[0].error_code, grown.throttle_time_ms)
    assert found == ((refused, 2000) if is_strict else (done, 5000))
    deleted = await client.ask(
        ApiKey.DELETE_TOPICS, delete, dt.DeleteTopicsRequest(topic_names=["a"], timeout_ms=10000)
    )
    found = (deleted.responses[0].error_code, deleted.throttle_time_ms)
    assert found == ((refused, 2000) if is_strict else (done, 20_000))
