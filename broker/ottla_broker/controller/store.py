"""Reads and writes the controller's znodes in the coordination store, each write under the fence of its epoch.

The fence. Every write is a transaction that first checks the version of /controller_epoch. A controller that has been
replaced without noticing can therefore change nothing: it gets ControllerFenced.

A lost connection leaves the outcome of a write unknown. Writes are conditional, so they are tried again: where the
first try had succeeded, the second is refused, and the caller reads again and decides again.

On the calling side of the Coordination port. Not here: decisions, the controller election (`controller_election`), the
contents of znodes (`coordination.znodes`).

Source: KafkaZkClient of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla_broker.config.types import INT_MAX
from ottla_broker.controller.values import LeaderAndIsr, LeaderRecoveryState, RegisteredBroker, ReplicaAssignment, Topic
from ottla_broker.coordination import znodes
from ottla_broker.coordination.producer_id_blocks import take_block
from ottla_broker.ports.clock import Clock
from ottla_broker.ports.coordination import (
    BadVersion,
    Check,
    ConnectionLoss,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    Watcher,
)
from ottla_broker.protocol.number_text import whole_number
from ottla_broker.records.ids import TopicPartition

logger = logging.getLogger("ottla.controller")

T = TypeVar("T")

RETRY_S: Final = 0.1
"""Pause after a lost connection; the timeout of the session ends the tries."""

READS_TOGETHER: Final = 1000
"""Nodes read together; the event loop does other work meanwhile."""

STATES_PER_TRANSACTION: Final = 64
"""When one of them is refused, each needs a transaction of its own."""

DELETIONS_PER_TRANSACTION: Final = 500
"""Keeps the transactions that remove a large topic well below ZooKeeper's limit of 1 MiB."""

MAX_ZNODE_BYTES: Final = 1_000_000
"""A little below ZooKeeper's jute.maxbuffer of 1 MiB, which counts the path and the rest of the request too."""


class ControllerFenced(Exception):
    """Another broker has become the controller: nothing was written, and nothing may be written any more."""


@dataclass(frozen=True, slots=True)
class StateConflict:
    """A partition's state was not written: its znode is not as expected. Read it again before deciding again.

    `is_gone`: the znode or its parent does not exist.
    """

    reason: str
    is_gone: bool


class ControllerStore:
    """Reads and fenced writes. `epoch_version` is the version of /controller_epoch that this controller has written."""

    def __init__(self, coordination: Coordination, clock: Clock, epoch_version: int) -> None:
        self._coordination = coordination
        self._clock = clock
        self._epoch_version = epoch_version

    # Brokers

    async def broker_ids(self, watch: Watcher) -> list[int]:
        """The registered brokers; the watch fires when one comes or goes."""
        names = await self._children(znodes.BROKER_IDS, watch)
        numbers = map(whole_number, names)
        return sorted(number for number in numbers if number is not None and 0 <= number <= INT_MAX)

    async def brokers(self, ids: Iterable[int], watch: Watcher) -> dict[int, RegisteredBroker]:
        """The registrations that exist; one that cannot be parsed is logged and left out.

        The watch fires for each of them when it changes or goes.
        """
        wanted = sorted(ids)
        found: dict[int, RegisteredBroker] = {}
        contents = await self._get_all([znodes.BrokerRegistration.path(broker) for broker in wanted], watch)
        for broker, content in zip(wanted, contents, strict=True):
            if content is None:
                continue
            data, stat = content
            try:
                found[broker] = _broker(znodes.BrokerRegistration.decode(broker, data), stat.czxid)
            except znodes.ZnodeError as error:
                logger.error("broker %d is left out: %s", broker, error)
        return found

    async def finalized_features(self) -> tuple[dict[str, int], int]:
        """(finalized levels, version of /feature); no levels and -1 without the node. ZnodeError."""
        (content,) = await self._get_all([znodes.FEATURE])
        if content is None:
            return {}, -1
        found = znodes.Features.decode(content[0])
        return dict(found.max_version_levels) if found.is_enabled else {}, content[1].version

    async def write_features(self, levels: Mapping[str, int], expected: int, znode_version: int) -> int:
        """Writes /feature if its version is still `expected` (-1: there is no node).

        Returns:
            The new version, which is the epoch of the finalized features.

        Raises:
            BadVersion, NodeExists, NoNode: the node has changed.
        """
        data = znodes.Features(True, levels).encode(znode_version)
        written = expected + 1
        try:
            await self._write([Create(znodes.FEATURE, data) if expected < 0 else Set(znodes.FEATURE, data, expected)])
        except (BadVersion, NodeExists, NoNode):
            (content,) = await self._get_all([znodes.FEATURE])
            if content is None or content[0] != data or content[1].version != written:
                raise
            # This controller's write, whose answer was lost.
        return written

    async def take_producer_ids(self, broker: int) -> znodes.ProducerIdBlock:
        """A block for this broker (`coordination.producer_id_blocks`)."""
        return await take_block(self._coordination, broker)

    # Topics

    async def topic_names(self, watch: Watcher) -> list[str]:
        """All topics; the watch fires when one comes or goes."""
        return sorted(await self._children(znodes.TOPICS, watch))

    async def topics(self, names: Iterable[str], watch: Watcher) -> tuple[dict[str, Topic], list[str]]:
        """(the topics that exist, the names of those that cannot be parsed).

        The watch fires for each of them when its assignment changes or it goes.
        """
        wanted = sorted(names)
        contents = await self._get_all([znodes.topic_path(name) for name in wanted], watch)
        found: dict[str, Topic] = {}
        unreadable = []
        for name, content in zip(wanted, contents, strict=True):
            if content is None:
                continue
            try:
                found[name] = _topic(name, znodes.TopicAssignment.decode(name, content[0]))
            except znodes.ZnodeError as error:
                logger.error("topic %s is ignored: %s", name, error)
                unreadable.append(name)
        return found, unreadable

    async def topic_config(self, topic: str) -> dict[str, str]:
        """The topic's overrides; none for a topic without a configuration node."""
        path = znodes.config_path("topics", topic)
        (content,) = await self._get_all([path])
        try:
            return {} if content is None else znodes.decode_config(path, content[0])
        except znodes.ZnodeError as error:
            logger.error("the configuration of topic %s is ignored: %s", topic, error)
            return {}

    async def create_topic(self, topic: Topic, config: Mapping[str, str]) -> bool:
        """Writes configuration and topic in one transaction. False when the topic exists already."""
        path = znodes.topic_path(topic.name)
        data = _assignment(topic).encode()
        config_path = znodes.config_path("topics", topic.name)
        encoded = znodes.encode_config(config)
        # Tools that set the configuration first may leave one without a topic: it is replaced.
        has_config = (await self._exists(config_path)) is not None
        while True:
            try:
                await self._write(
                    [
                        Set(config_path, encoded) if has_config else Create(config_path, encoded),
                        Create(path, data),
                        Create(znodes.topic_partitions_path(topic.name)),
                    ]
                )
                return True
            except (NodeExists, NoNode):
                (existing,) = await self._get_all([path])
                if existing is not None:
                    # The topic id is random: the same content is this controller's write, whose answer was lost.
                    return existing[0] == data
                has_config = not has_config

    async def grow_topic(self, topic: str, added: Mapping[int, Sequence[int]]) -> Topic | None:
        """Adds partitions to the topic's znode.

        Returns:
            The whole topic; None when it is gone, or another program has added one of the partitions.
        """
        path = znodes.topic_path(topic)
        while True:
            (content,) = await self._get_all([path])
            if content is None:
                return None
            current = _topic(topic, znodes.TopicAssignment.decode(topic, content[0]))
            partitions = dict(current.partitions)
            for partition, replicas in added.items():
                if partition in partitions and partitions[partition].replicas != tuple(replicas):
                    return None
                partitions[partition] = ReplicaAssignment(tuple(replicas))
            grown = Topic(topic, current.topic_id, partitions)
            try:
                await self._write([Set(path, _assignment(grown).encode(), content[1].version)])
                return grown
            except (BadVersion, NoNode):
                continue

    async def give_topic_id(self, topic: Topic) -> Topic:
        """Writes the id of a topic that has none (KIP-516); keeps one that another program has written meanwhile."""
        path = znodes.topic_path(topic.name)
        while True:
            (content,) = await self._get_all([path])
            if content is None:
                return topic
            current = _topic(topic.name, znodes.TopicAssignment.decode(topic.name, content[0]))
            if current.topic_id is not None:
                return current
            named = Topic(topic.name, topic.topic_id, current.partitions)
            try:
                await self._write([Set(path, _assignment(named).encode(), content[1].version)])
                return named
            except (BadVersion, NoNode):
                continue

    # Reassignment

    async def write_assignments(self, topic: str, assignments: Mapping[int, ReplicaAssignment]) -> bool:
        """Gives these partitions of a topic other replicas. False when the topic is gone."""
        path = znodes.topic_path(topic)
        while True:
            (content,) = await self._get_all([path])
            if content is None:
                return False
            current = _topic(topic, znodes.TopicAssignment.decode(topic, content[0]))
            changed = Topic(topic, current.topic_id, {**current.partitions, **assignments})
            try:
                await self._write([Set(path, _assignment(changed).encode(), content[1].version)])
                return True
            except (BadVersion, NoNode):
                continue

    async def reassignment_requests(self, watch: Watcher) -> dict[TopicPartition, tuple[int, ...]]:
        """What /admin/reassign_partitions asks for; the watch fires when it comes, changes or goes."""
        await self._persist(lambda: self._coordination.exists(znodes.REASSIGN_PARTITIONS, watch))
        return (await self._reassignment_requests())[0]

    async def _reassignment_requests(self) -> tuple[dict[TopicPartition, tuple[int, ...]], int]:
        """(what is asked for, version of the node); version -1 where there is no node or it cannot be parsed."""
        (content,) = await self._get_all([znodes.REASSIGN_PARTITIONS])
        if content is None:
            return {}, -1
        try:
            asked = znodes.decode_reassignment(content[0])
        except znodes.ZnodeError as error:
            logger.error("no partition is reassigned: %s", error)
            return {}, -1
        return {TopicPartition(*partition): replicas for partition, replicas in asked.items()}, content[1].version

    async def forget_reassignment_requests(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, ...]]:
        """Removes these from /admin/reassign_partitions, and the node with the last one.

        Returns:
            The requests that are left.
        """
        gone = frozenset(partitions)
        while True:
            asked, version = await self._reassignment_requests()
            left = {partition: replicas for partition, replicas in asked.items() if partition not in gone}
            nodes: dict[tuple[str, int], tuple[int, ...]] = {(one.topic, one.partition): left[one] for one in left}
            if len(left) == len(asked):
                return asked
            path = znodes.REASSIGN_PARTITIONS
            try:
                await self._write(
                    [Set(path, znodes.encode_reassignment(nodes), version) if left else Delete(path, version)]
                )
                return left
            except (BadVersion, NoNode):
                continue
            except NotEmpty:
                await self.delete_nodes([f"{path}/{name}" for name in await self._children(path)])

    # Leadership

    async def leadership(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr | None]:
        """The leaderships in the state znodes. Absent: no state yet. None: cannot be parsed (logged)."""
        paths = [znodes.PartitionStateZnode.path(*partition) for partition in partitions]
        found: dict[TopicPartition, LeaderAndIsr | None] = {}
        for partition, content in zip(partitions, await self._get_all(paths), strict=True):
            if content is None:
                continue
            try:
                state = znodes.PartitionStateZnode.decode(*partition, content[0])
                found[partition] = LeaderAndIsr(
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    partition_epoch=content[1].version,
                    controller_epoch=state.controller_epoch,
                    recovery_state=LeaderRecoveryState(state.leader_recovery_state),
                    zxid=content[1].mzxid,
                    leader_broker_epoch=state.leader_broker_epoch,
                )
            except ValueError as error:
                logger.error("partition %s is ignored: %s", partition, error)
                found[partition] = None
        return found

    async def write_leadership(
        self, changes: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int, *, new: frozenset[TopicPartition]
    ) -> dict[TopicPartition, LeaderAndIsr | StateConflict]:
        """Writes each state under the fence and its own expected version; creates the `new` ones.

        All are sent at once, many in one transaction. Where one is refused, the others of its transaction are still
        written.

        Raises:
            ControllerFenced: one write met the fence; then all later ones did.
        """
        partitions = sorted(changes)
        await self._ensure_parents(sorted({partition.topic for partition in new}))
        steps = [
            (partition, self._state_operations(partition, changes[partition], controller_epoch, partition in new))
            for partition in partitions
        ]
        written: dict[TopicPartition, int | StateConflict] = {}
        for some in await _all_of(
            self._write_states(steps[start : start + STATES_PER_TRANSACTION])
            for start in range(0, len(steps), STATES_PER_TRANSACTION)
        ):
            written.update(some)
        return {
            partition: changes[partition].written(outcome, controller_epoch) if isinstance(outcome, int) else outcome
            for partition, outcome in written.items()
        }

    async def _write_states(
        self, steps: Sequence[tuple[TopicPartition, list[Operation]]]
    ) -> dict[TopicPartition, int | StateConflict]:
        """The new versions of the states. One transaction; where one of them is refused, a transaction for each."""
        try:
            results = await self._write([operation for _, operations in steps for operation in operations])
        except (BadVersion, NoNode, NodeExists) as error:
            if len(steps) == 1:
                return {steps[0][0]: StateConflict(str(error), isinstance(error, NoNode))}
            alone = await _all_of(self._write_states([one]) for one in steps)
            return {partition: version for found in alone for partition, version in found.items()}
        versions: dict[TopicPartition, int | StateConflict] = {}
        end = 0
        for partition, operations in steps:
            end += len(operations)
            stat = results[end - 1]
            versions[partition] = stat.version if isinstance(stat, Stat) else 0
        return versions

    def _state_operations(
        self, partition: TopicPartition, state: LeaderAndIsr, controller_epoch: int, is_new: bool
    ) -> list[Operation]:
        path = znodes.PartitionStateZnode.path(*partition)
        data = znodes.PartitionStateZnode(
            state.leader,
            state.leader_epoch,
            controller_epoch,
            state.isr,
            state.recovery_state,
            state.leader_broker_epoch,
        ).encode()
        if is_new:
            return [Create(znodes.partition_path(*partition)), Create(path, data)]
        return [Set(path, data, state.partition_epoch)]

    async def _ensure_parents(self, topics: Sequence[str]) -> None:
        """Creates the `partitions` nodes: a topic that a tool has created has none."""
        for topic in topics:
            path = znodes.topic_partitions_path(topic)
            if await self._exists(path) is None:
                try:
                    await self._write([Create(path)])
                except (NodeExists, NoNode):
                    continue

    async def repair_partition_node(self, partition: TopicPartition) -> None:
        """Deletes a partition's node that has no state below it, with everything else below it, so that both can be
        created together."""
        path = znodes.partition_path(*partition)
        try:
            await self._write([Delete(node) for node in await self._tree(path)])
        except CoordinationError as error:
            logger.warning("node %s cannot be deleted: %s", path, error)

    # Deletion of topics

    async def topics_to_delete(self, watch: Watcher) -> list[str]:
        """Topics with a marker; the watch fires when one comes or goes."""
        return sorted(await self._children(znodes.DELETE_TOPICS, watch))

    async def mark_for_deletion(self, topic: str) -> None:
        """Creates the marker, which outlives this controller, unless it exists."""
        try:
            await self._write([Create(znodes.delete_topic_path(topic))])
        except NodeExists:
            return

    async def unmark_for_deletion(self, topic: str) -> None:
        """Deletes the marker of a topic that does not exist or may not be deleted."""
        await self.delete_nodes([znodes.delete_topic_path(topic)])

    async def remove_topic(self, topic: str) -> None:
        """Deletes all znodes of a deleted topic, the marker last: after a failover the next controller continues."""
        nodes = (znodes.topic_path(topic), znodes.config_path("topics", topic), znodes.delete_topic_path(topic))
        while True:
            below = [below for node in nodes for below in await self._tree(node) if below != node]
            last = [node for node in nodes if await self._exists(node) is not None]
            try:
                for start in range(0, len(below), DELETIONS_PER_TRANSACTION):
                    chunk = below[start : start + DELETIONS_PER_TRANSACTION]
                    await self._write([Delete(node) for node in chunk])
                if last:
                    await self._write([Delete(node) for node in last])
                return
            except (NoNode, NotEmpty) as error:
                logger.info("deleting the znodes of topic %s again: %s", topic, error)

    async def _tree(self, path: str) -> list[str]:
        """The node and all nodes below it, children before their parents."""
        levels = [[path]]
        while level := levels[-1]:
            below: list[str] = []
            for start in range(0, len(level), READS_TOGETHER):
                some = level[start : start + READS_TOGETHER]
                names = await asyncio.gather(*map(self._children, some))
                below += [f"{parent}/{name}" for parent, found in zip(some, names, strict=True) for name in found]
            levels.append(below)
        return [node for level in reversed(levels) for node in level]

    # ISR change notifications (brokers with inter.broker.protocol.version below 2.7)

    async def isr_notifications(self, watch: Watcher) -> tuple[list[str], list[TopicPartition]]:
        """(paths, partitions they name); the watch fires when one comes."""
        names = await self._children(znodes.ISR_CHANGE_NOTIFICATION, watch)
        paths = [f"{znodes.ISR_CHANGE_NOTIFICATION}/{name}" for name in sorted(names)]
        partitions: set[TopicPartition] = set()
        for path, content in zip(paths, await self._get_all(paths), strict=True):
            if content is None:
                continue
            try:
                partitions.update(TopicPartition(*entry) for entry in znodes.decode_partitions(path, content[0]))
            except znodes.ZnodeError as error:
                logger.error("notification ignored: %s", error)
        return paths, sorted(partitions)

    # Requests of tools of Kafka 0.8 to 2.3, and log dir events

    async def preferred_elections(self, watch: Watcher) -> list[TopicPartition] | None:
        """The partitions in /admin/preferred_replica_election, None without the node; the watch fires when it comes or
        goes. A node that cannot be parsed has no partitions."""
        path = znodes.PREFERRED_REPLICA_ELECTION
        if await self._persist(lambda: self._coordination.exists(path, watch)) is None:
            return None
        (content,) = await self._get_all([path])
        if content is None:
            return None
        try:
            return sorted({TopicPartition(*entry) for entry in znodes.decode_partitions(path, content[0])})
        except znodes.ZnodeError as error:
            logger.error("a preferred election is ignored: %s", error)
            return []

    async def log_dir_events(self, watch: Watcher) -> tuple[list[str], list[int]]:
        """(paths, brokers whose log directories have changed); the watch fires when an event comes."""
        names = await self._children(znodes.LOG_DIR_EVENT_NOTIFICATION, watch)
        paths = [f"{znodes.LOG_DIR_EVENT_NOTIFICATION}/{name}" for name in sorted(names)]
        brokers: set[int] = set()
        for path, content in zip(paths, await self._get_all(paths), strict=True):
            if content is None:
                continue
            try:
                brokers.add(znodes.decode_log_dir_event(path, content[0]))
            except znodes.ZnodeError as error:
                logger.error("notification ignored: %s", error)
        return paths, sorted(brokers)

    async def delete_nodes(self, paths: Sequence[str]) -> None:
        """Deletes these nodes with everything below them; some may be gone already."""
        for path in paths:
            nodes = [path]
            while nodes:
                try:
                    await self._write([Delete(node) for node in nodes])
                    break
                except (NoNode, NotEmpty):
                    nodes = [] if await self._exists(path) is None else await self._tree(path)

    # The fence and lost connections

    def _fence(self) -> Operation:
        return Check(znodes.CONTROLLER_EPOCH, self._epoch_version)

    async def _write(self, operations: Sequence[Operation]) -> list[Any]:
        """One fenced transaction. Raises ControllerFenced, or the error of the first operation that was refused."""
        outcome: list[Any] | BaseException
        try:
            outcome = list(await self._coordination.multi([self._fence(), *operations]))
        except CoordinationError as error:
            outcome = error
        return await self._settle(outcome, operations)

    async def _settle(self, outcome: Sequence[Any] | BaseException, operations: Sequence[Operation]) -> list[Any]:
        """The results without the fence's. After a lost connection the write is tried until its outcome is known."""
        while isinstance(outcome, ConnectionLoss):
            await self._clock.sleep(RETRY_S)
            try:
                outcome = list(await self._coordination.multi([self._fence(), *operations]))
            except CoordinationError as error:
                outcome = error
        if isinstance(outcome, MultiFailed):
            if outcome.index == 0:
                raise ControllerFenced(str(outcome)) from outcome
            raise outcome.cause
        if isinstance(outcome, BaseException):
            raise outcome
        return list(outcome[1:])

    async def _get_all(self, paths: Sequence[str], watch: Watcher | None = None) -> list[tuple[bytes, Stat] | None]:
        """The content of each node, None where there is no node. Many reads are sent together."""
        contents: list[tuple[bytes, Stat] | None] = []
        for start in range(0, len(paths), READS_TOGETHER):
            contents += await self._get_some(paths[start : start + READS_TOGETHER], watch)
        return contents

    async def _get_some(self, paths: Sequence[str], watch: Watcher | None) -> list[tuple[bytes, Stat] | None]:
        outcomes = await asyncio.gather(
            *(self._coordination.get(path, watch) for path in paths), return_exceptions=True
        )
        contents: list[tuple[bytes, Stat] | None] = []
        for path, outcome in zip(paths, outcomes, strict=True):
            if isinstance(outcome, ConnectionLoss):
                contents.append(await self._get(path, watch))
            elif isinstance(outcome, NoNode):
                contents.append(None)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                contents.append(outcome)
        return contents

    async def _get(self, path: str, watch: Watcher | None) -> tuple[bytes, Stat] | None:
        try:
            return await self._persist(lambda: self._coordination.get(path, watch))
        except NoNode:
            return None

    async def _children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Sorted names; none when the node itself is absent."""
        try:
            return await self._persist(lambda: self._coordination.children(path, watch))
        except NoNode:
            return []

    async def _exists(self, path: str) -> Stat | None:
        return await self._persist(lambda: self._coordination.exists(path))

    async def _persist(self, call: Callable[[], asyncio.Future[T]]) -> T:
        while True:
            try:
                return await call()
            except ConnectionLoss:
                await self._clock.sleep(RETRY_S)


async def _all_of(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results once all have ended. Raises the first error, if there is one."""
    results = await asyncio.gather(*works, return_exceptions=True)
    found: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


def _broker(registration: znodes.BrokerRegistration, epoch: int) -> RegisteredBroker:
    return RegisteredBroker(
        id=registration.broker_id,
        epoch=epoch,
        endpoints=registration.endpoints,
        rack=registration.rack,
        max_partition_replicas=registration.max_partition_replicas,
        features=registration.features,
    )


def _topic(name: str, assignment: znodes.TopicAssignment) -> Topic:
    return Topic(
        name,
        None if assignment.topic_id is None else assignment.topic_id.bytes,
        {
            partition: ReplicaAssignment(
                replicas,
                assignment.adding_replicas.get(partition, ()),
                assignment.removing_replicas.get(partition, ()),
            )
            for partition, replicas in assignment.partitions.items()
        },
    )


def _assignment(topic: Topic) -> znodes.TopicAssignment:
    return znodes.TopicAssignment(
        {partition: assignment.replicas for partition, assignment in topic.partitions.items()},
        None if topic.topic_id is None else uuid.UUID(bytes=topic.topic_id),
        {partition: assignment.adding for partition, assignment in topic.partitions.items()},
        {partition: assignment.removing for partition, assignment in topic.partitions.items()},
    )


def too_large_topic(topic: Topic, config: Mapping[str, str] | None = None) -> str | None:
    """Why the coordination store would refuse this topic, together with its configuration `config`; None when not."""
    size = len(_assignment(topic).encode()) + (0 if config is None else len(znodes.encode_config(config)))
    if size <= MAX_ZNODE_BYTES:
        return None
    what = "a znode" if config is None else "znodes"
    return f"Topic '{topic.name}' would need {what} of {size} bytes, the coordination store takes {MAX_ZNODE_BYTES}."
