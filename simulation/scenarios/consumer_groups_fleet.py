"""Three to five brokers, groups of the consumer protocol (KIP-848), and faults aimed at their coordinators.

Members join, are assigned partitions, give them up, commit, leave, die and fall silent, some of them static, some with
a regular expression; topics grow and are created meanwhile. Half of the groups have members of the classic protocol
too, so they are converted online, and back. No partition has two owners, no commit of a fenced member counts, epochs
never fall (`consumer_group_oracle`), and when the faults are healed every partition of the subscribed topics has
exactly one live owner. Half of the seeds set flush.messages=1 and have losses of power.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from ottla_broker.config.features import GROUP_VERSION
from ottla_broker.config.topics import CONSUMER_OFFSETS
from ottla_broker.internal_topics.partitioning import partition_for
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from simulation.administration import Administrator
from simulation.applications import Application, MakeClient, MakeMember
from simulation.broker_restarts import BrokerRestarts
from simulation.checker import Checker, Partition, Violation
from simulation.classic_members import ClassicProtocolMember
from simulation.client import Client, Unavailable
from simulation.cluster import SimulatedFleet
from simulation.consumer_group_oracle import ConsumerGroupOracle
from simulation.consumer_members import ConsumerProtocolMember
from simulation.coordinator_faults import coordinator_faults, leader_of, strike
from simulation.coordinators import coordinates
from simulation.coverage import Coverage
from simulation.faults import Fault, Scene
from simulation.group_access import GroupAccess, SimulatedGroup
from simulation.leaderships import Leaderships
from simulation.scenarios.fleet import brokers_agree, checked, heal, watch
from simulation.scenarios.replicated import all_in_sync, all_is_committed, replicas_are_equal
from simulation.scenarios.single import SETTLE_S, broker_settings, verify
from simulation.workload import Workload, create_topic
from simulation.world import World

_OFFSETS_PARTITIONS = 2
_STABLE_S = 3.0
"""Owners that are right for so long stay."""
_LATE_REQUESTS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT)


async def run(world: World) -> Checker:
    draw = world.stream("scenario")
    flushed = draw.random() < 0.5
    count = draw.choice((3, 3, 3, 4, 5))
    session_ms = draw.choice((2000, 4000, 8000))
    settings = _settings(draw, session_ms, flushed=flushed)
    fleet = SimulatedFleet(world, count, settings, disks=draw.choice((1, 1, 2)))
    world.note(f"{count} brokers, {'flush.messages=1' if flushed else 'flush.messages not 1'}")
    checker, leaderships, oracle, workload = checked(world, fleet, is_flushed=flushed)
    clients = [Client(world, fleet.fabric, f"client-{n}", f"10.1.0.{n}", fleet.bootstrap) for n in (1, 2, 3)]
    await fleet.start()
    watching = world.spawn(watch(oracle), name="oracle")
    restarts = BrokerRestarts(world, fleet.brokers)
    administrator = Administrator(workload, fleet, leaderships, clients, 3)
    topics = ["t0", "t1"][: draw.choice((1, 2))]
    for topic in topics:
        await create_topic(workload, clients[0], topic, draw.choice((1, 3, 6)), 3, {})
    await _finalize(workload, fleet, clients[0])
    await all_in_sync(fleet, clients[0], checker)

    groups = [
        _group(fleet, leaderships, workload, f"g{number}", session_ms, is_mixed=draw.random() < 0.5)
        for number in range(draw.choice((1, 2)))
    ]
    applications = [
        Application(group, _clients_on(world, fleet, draw.choice(clients).host), f"{group.group_id}/{number}", make)
        for group in groups
        for number, make in enumerate(_members(draw, topics, is_mixed=group.is_mixed))
    ]
    for number, one in enumerate(applications):
        workload.add_work(one.run(), f"application {number}")
    changing = world.spawn(_change_topics(draw, workload, administrator, clients[0], topics), name="topics")

    scene = Scene(world, fleet, restarts, oracle, clients, draw)
    faults = _faults(leaderships, flushed=flushed)
    await strike(scene, Coverage(world, leaderships, oracle, restarts), workload, faults)
    heal(fleet)
    try:
        async with asyncio.timeout(SETTLE_S):
            await restarts.settle()
            await changing
    except TimeoutError as late:
        raise Violation(f"the brokers are not all ready {SETTLE_S} s after the last fault") from late
    for one in applications:
        one.is_calm = True
    for group in groups:
        await _until_owned(workload, clients[0], group)
    await all_in_sync(fleet, clients[0], checker)
    await verify(fleet, workload, clients[0])
    for group in groups:
        await _read_all_offsets(workload, clients[0], group)
    await all_in_sync(fleet, clients[0], checker)
    await replicas_are_equal(fleet, clients[0], checker)
    await all_is_committed(fleet, checker)
    await brokers_agree(fleet, leaderships)
    oracle.look()
    watching.cancel()
    oracles = [group.oracle for group in groups]
    checker.acknowledged_count += sum(one.commit_count for one in oracles)
    world.tallies = {
        "assignments of a partition": sum(one.assigned_count for one in oracles),
        "commits of members": sum(one.commit_count for one in oracles),
        "members fenced": sum(one.fenced_count for one in oracles),
        "epochs of groups": sum(one.highest_epoch for one in oracles),
        "groups converted": sum(group.conversions for group in groups),
    }
    world.note(", ".join(f"{count} {what}" for what, count in world.tallies.items()))
    return checker


def _settings(draw: random.Random, session_ms: int, *, flushed: bool) -> dict[str, str]:
    return broker_settings(draw, flush_every_message=flushed) | {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.num.partitions": str(_OFFSETS_PARTITIONS),
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": str(draw.choice((100, 300, 1000))),
        "group.consumer.assignors": draw.choice(("uniform,range", "range,uniform")),
        "group.initial.rebalance.delay.ms": str(draw.choice((0, 500))),
        "group.min.session.timeout.ms": "1000",
        "replica.lag.time.max.ms": str(draw.choice((1000, 3000))),
        "replica.fetch.wait.max.ms": str(draw.choice((50, 500))),
        "zookeeper.session.timeout.ms": str(draw.choice((1500, 3000))),
        "replica.socket.timeout.ms": "3000",
        "controller.socket.timeout.ms": "3000",
    }


async def _finalize(workload: Workload, fleet: SimulatedFleet, client: Client) -> None:
    """Finalizes group.version at 1, and waits until every broker has heard of it."""
    update = codec.module(ApiKey.UPDATE_FEATURES)
    key = update.FeatureUpdateKey(feature=GROUP_VERSION, max_version_level=1, upgrade_type=1)
    body = update.UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[key])
    state = await client.refresh()
    answer = await client.request(state.brokers[state.controller], ApiKey.UPDATE_FEATURES, 1, body)
    codes = [answer.error_code, *(each.error_code for each in answer.results)]
    if any(codes):
        raise Violation(f"finalizing {GROUP_VERSION} gave {', '.join(ErrorCode.of(code).name for code in codes)}")
    versions = codec.module(ApiKey.API_VERSIONS)
    asked = versions.ApiVersionsRequest(client_software_name="simulation", client_software_version="1")
    waiting = list(fleet.bootstrap)
    while waiting:
        answer = await client.request(waiting[0], ApiKey.API_VERSIONS, 3, asked)
        if any(one.name == GROUP_VERSION for one in answer.finalized_features):
            waiting.pop(0)
        else:
            await asyncio.sleep(0.1)


# -- groups -----------------------------------------------------------------------------------------------------------


def _group(
    fleet: SimulatedFleet,
    leaderships: Leaderships,
    workload: Workload,
    group_id: str,
    session_ms: int,
    *,
    is_mixed: bool,
) -> SimulatedGroup:
    partition = (CONSUMER_OFFSETS, partition_for(group_id, _OFFSETS_PARTITIONS))
    return SimulatedGroup(
        group_id,
        workload,
        ConsumerGroupOracle(group_id, is_converted=is_mixed),
        lambda address: coordinates(fleet, leaderships, address, partition),
        session_s=session_ms / 1000,
        rebalance_timeout_ms=20_000,
        is_mixed=is_mixed,
    )


def _clients_on(world: World, fleet: SimulatedFleet, host: str) -> MakeClient:
    return lambda name: Client(world, fleet.fabric, name, host, fleet.bootstrap)


def _members(draw: random.Random, topics: Sequence[str], *, is_mixed: bool) -> list[MakeMember]:
    """What the applications of one group run. In a mixed one each begins with either protocol, whatever it was before:
    the group is converted online, and back."""
    makers: list[MakeMember] = []
    for number in range(draw.choice((1, 2, 3, 4))):
        if is_mixed and draw.random() < 0.8:
            makers.append(_of_either_protocol(("t0", "t1", "t2")))
            continue
        kind = draw.random()
        instance_id = f"instance-{number}" if draw.random() < 0.4 else None
        if kind < 0.3:
            makers.append(_with_regex(draw.choice(("t.*", "t[0-9]")), instance_id))
        elif kind < 0.45:
            makers.append(_with_names((draw.choice(topics),), instance_id))
        else:
            makers.append(_with_names(("t0", "t1", "t2"), instance_id))
    return makers


def _with_regex(regex: str, instance_id: str | None) -> MakeMember:
    return lambda access: ConsumerProtocolMember(access, regex=regex, instance_id=instance_id)


def _with_names(topics: Sequence[str], instance_id: str | None) -> MakeMember:
    return lambda access: ConsumerProtocolMember(access, topics=topics, instance_id=instance_id)


def _of_either_protocol(topics: Sequence[str]) -> MakeMember:
    def make(access: GroupAccess) -> ClassicProtocolMember | ConsumerProtocolMember:
        if access.random.random() < 0.6:
            return ClassicProtocolMember(access, topics)
        return ConsumerProtocolMember(access, topics=topics)

    return make


async def _change_topics(
    draw: random.Random, workload: Workload, administrator: Administrator, client: Client, topics: Sequence[str]
) -> None:
    """Topics grow, and one is created that members wait for by its name or by a regular expression."""
    for act in draw.sample(("grow", "create", "neither"), 2):
        await asyncio.sleep(draw.choice((1.0, 6.0)) * (0.2 + draw.random()))
        if act == "grow":
            await administrator.grow(draw.choice(topics))
        elif act == "create":
            await create_topic(workload, client, "t2", draw.choice((1, 2)), 3, {})


# -- faults -----------------------------------------------------------------------------------------------------------


def _faults(leaderships: Leaderships, *, flushed: bool) -> dict[str, tuple[int, Fault]]:
    async def late_request(scene: Scene) -> None:
        """One request of a member arrives when the member has given it up, or another one has its partitions."""
        source = scene.draw.choice(scene.clients)
        target = leader_of(scene, leaderships, CONSUMER_OFFSETS)
        let_go = scene.fleet.fabric.hold(source.host, target.host, scene.draw.choice(_LATE_REQUESTS))
        await scene.last(0.5, 2.0, 6.0)
        let_go()

    faults = coordinator_faults(leaderships, CONSUMER_OFFSETS, flushed=flushed)
    faults["late request"] = (8, late_request)
    return faults


# -- the end ----------------------------------------------------------------------------------------------------------


async def _until_owned(workload: Workload, client: Client, group: SimulatedGroup) -> None:
    """Returns when every partition of the subscribed topics has had exactly one live owner for _STABLE_S."""
    loop = workload.world.loop
    deadline = loop.time() + SETTLE_S
    since = loop.time()
    why = "nobody was asked"
    while loop.time() < since + _STABLE_S:
        workload.check()
        if loop.time() > deadline:
            raise Violation(f"{SETTLE_S} s after the last fault {why} in group {group.group_id}")
        await asyncio.sleep(0.2)
        try:
            state = await client.refresh()
        except Unavailable:
            continue
        why = _unowned_reason(group, {key: known for key, known in state.partitions.items() if key[0][0] == "t"})
        if why:
            since = loop.time()


def _unowned_reason(group: SimulatedGroup, known: dict[Partition, object]) -> str:
    unsettled = [name for name, view in group.live.items() if not view.is_settled()]
    if unsettled or not group.live:
        return f"{', '.join(unsettled) or 'nobody'} is not settled"
    subscribed = {name: view.topics(known) for name, view in group.live.items()}
    expected: dict[Partition, list[str]] = {}
    for partition in known:
        names = [name for name, wanted in subscribed.items() if partition[0] in wanted]
        if names:
            expected[partition] = names
    return group.oracle.owners(expected, group.live)


async def _read_all_offsets(workload: Workload, client: Client, group: SimulatedGroup) -> None:
    """What the group has committed in the end, as an administrator reads it."""
    access = GroupAccess(group, client, "administrator", workload.world.stream(f"offsets of {group.group_id}"))
    partitions = sorted((topic, number) for topic, count in workload.checker.topics.items() for number in range(count))
    deadline = group.now_s + SETTLE_S
    while not await access.read_offsets(partitions):
        if group.now_s > deadline:
            raise Violation(f"the offsets of group {group.group_id} could not be read for {SETTLE_S} s")
        await asyncio.sleep(0.2)
