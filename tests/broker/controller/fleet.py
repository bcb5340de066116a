"""A fleet as the controller sees it: a coordination store, registered brokers, and channels that record.

The channels stand for the wire: every request is encoded and decoded in the version it names, answered in order, and
kept. What a broker answers can be set, and a broker can be kept from answering.
"""

import asyncio
from collections import deque
from types import SimpleNamespace

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.config import Endpoint
from ottla_broker.config.broker import BrokerConfig
from ottla_broker.controller.controller import Controller
from ottla_broker.controller.decisions.topic_plans import NewTopic
from ottla_broker.coordination import znodes
from ottla_broker.coordination.embedded import EmbeddedCoordination, EmbeddedStore
from ottla_broker.coordination.zookeeper import ZooKeeperCoordination
from ottla_broker.metrics import Metrics
from ottla_broker.ports.coordination import ConnectionLoss, NodeExists, NoNode, SessionEvent
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated import leader_and_isr, stop_replica, update_metadata

LISTENER = "INTERNAL"
WAIT_MS = 60_000


class RecordingChannels:
    """Implements ControllerChannels for one controller."""

    def __init__(self, clock) -> None:
        self.clock = clock
        self.sent = []
        """(broker, api key, request) in the order of sending."""
        self.versions = {}
        """The version of the last request sent, by API."""
        self.open_brokers = {}
        self.silent = set()
        """Brokers that do not answer for now; their answers wait."""
        self.storage_errors = set()
        """(broker, topic, partition) whose LeaderAndIsr is answered with KAFKA_STORAGE_ERROR."""
        self.delete_errors = set()
        """(broker, topic, partition) whose StopReplica is answered with KAFKA_STORAGE_ERROR."""
        self._held = {}
        self._changed = asyncio.Event()

    def open(self, broker) -> None:
        assert broker.id not in self.open_brokers
        assert broker.endpoint(LISTENER) is not None
        self.open_brokers[broker.id] = broker
        self._held[broker.id] = deque()

    def close(self, broker_id) -> None:
        self.open_brokers.pop(broker_id, None)
        self._held.pop(broker_id, None)

    def close_all(self) -> None:
        self.open_brokers.clear()
        self._held.clear()

    def send(self, broker_id, api_key, version, request, on_response) -> None:
        queue = self._held[broker_id]
        frame = b"".join(bytes(chunk) for chunk in codec.frame_request(api_key, version, 1, "controller", request))
        view = memoryview(frame)[4:]
        header = codec.read_request_header(view)
        assert header.api_version == version
        decoded = codec.module(api_key).read_request(version, view, header.body_offset)
        assert decoded.broker_epoch == self.open_brokers[broker_id].epoch
        self.sent.append((broker_id, ApiKey(api_key), decoded))
        self.versions[ApiKey(api_key)] = version
        queue.append((decoded, on_response))
        if broker_id not in self.silent:
            self.clock.call_soon(self._answer_next, broker_id, queue)
        self._changed.set()

    def speak(self, broker_id, count=None) -> None:
        """The broker answers again, beginning with what waits; only `count` of that, and then it is silent again."""
        queue = self._held[broker_id]
        if count is None:
            self.silent.discard(broker_id)
        for _ in range(len(queue) if count is None else count):
            self._answer_next(broker_id, queue)

    def _answer_next(self, broker_id, queue) -> None:
        if queue is not self._held.get(broker_id) or not queue:
            return
        request, on_response = queue.popleft()
        on_response(self._response(broker_id, request))
        self._changed.set()

    def _response(self, broker_id, request):
        if isinstance(request, update_metadata.UpdateMetadataRequest):
            return update_metadata.UpdateMetadataResponse()
        if isinstance(request, leader_and_isr.LeaderAndIsrRequest):
            return leader_and_isr.LeaderAndIsrResponse(
                topics=[
                    leader_and_isr.LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            leader_and_isr.LeaderAndIsrPartitionError(
                                partition_index=state.partition_index,
                                error_code=self._code(
                                    (broker_id, topic.topic_name, state.partition_index), self.storage_errors
                                ),
                            )
                            for state in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
            )
        return stop_replica.StopReplicaResponse(
            partition_errors=[
                stop_replica.StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=state.partition_index,
                    error_code=self._code((broker_id, topic.topic_name, state.partition_index), self.delete_errors),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
        )

    @staticmethod
    def _code(key, errors):
        return ErrorCode.KAFKA_STORAGE_ERROR if key in errors else ErrorCode.NONE

    # What tests ask

    def requests(self, broker_id=None, api_key=None):
        return [
            request
            for broker, key, request in self.sent
            if (broker_id is None or broker == broker_id) and (api_key is None or key is api_key)
        ]

    def forget(self) -> None:
        self.sent.clear()

    async def until(self, is_true, limit_s=60.0) -> None:
        """Waits until something sent or answered makes it true."""

        async def wait() -> None:
            while not is_true():
                self._changed.clear()
                await self._changed.wait()

        await asyncio.wait_for(wait(), limit_s)

    def leadership(self, broker_id, topic, partition=0):
        """The last LeaderAndIsr state that the broker was sent for the partition."""
        return _last(self.requests(broker_id, ApiKey.LEADER_AND_ISR), topic, partition)

    def metadata(self, broker_id, topic, partition=0):
        """The last UpdateMetadata state that the broker was sent for the partition."""
        return _last(self.requests(broker_id, ApiKey.UPDATE_METADATA), topic, partition)

    def deleted(self, broker_id):
        return {
            (topic.topic_name, state.partition_index)
            for request in self.requests(broker_id, ApiKey.STOP_REPLICA)
            for topic in request.topic_states
            for state in topic.partition_states
            if state.delete_partition
        }


def _last(requests, topic, partition):
    found = None
    for request in requests:
        for entry in request.topic_states:
            if entry.topic_name == topic:
                for state in entry.partition_states:
                    if state.partition_index == partition:
                        found = state
    return found


class LossyCoordination:
    """A session that loses its connection at random: a call then fails before or after it took effect."""

    CALLS = frozenset({"get", "exists", "children", "create", "set", "delete", "multi"})

    def __init__(self, inner, source, rate) -> None:
        self._inner = inner
        self._source = source
        self._rate = rate
        self.losses = 0

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        return self._losing(method) if name in self.CALLS else method

    def _losing(self, method):
        def call(*arguments, **options):
            draw = self._source.random()
            if draw >= self._rate:
                return method(*arguments, **options)
            self.losses += 1
            future = asyncio.get_running_loop().create_future()
            if draw < self._rate / 2:
                future.set_exception(ConnectionLoss())
                return future

            def lose(done) -> None:
                done.exception()
                if not future.done():
                    future.set_exception(ConnectionLoss())

            method(*arguments, **options).add_done_callback(lose)
            return future

        return call


class AnswerLost:
    """A session that, once `armed`, loses its connection behind one write of a znode whose path ends with `path_end`:
    it has taken effect."""

    def __init__(self, inner, path_end="/state") -> None:
        self._inner = inner
        self._path_end = path_end
        self.armed = False

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def multi(self, operations):
        done = self._inner.multi(operations)
        if not self.armed or not any(operation.path.endswith(self._path_end) for operation in operations):
            return done
        self.armed = False
        future = asyncio.get_running_loop().create_future()

        def lose(done) -> None:
            done.result()
            future.set_exception(ConnectionLoss())

        done.add_done_callback(lose)
        return future


class ImpatientClock(LoopClock):
    """Pauses between tries take one turn of the loop."""

    async def sleep(self, delay_s) -> None:
        await asyncio.sleep(0)


class Fleet:
    """Brokers with a session and a controller each."""

    def __init__(self, tmp_path, zookeeper=None, **config) -> None:
        """On an embedded store of its own, or below the chroot `zookeeper` ("host:port/path") of a real one."""
        self.store = None if zookeeper else EmbeddedStore(str(tmp_path / "coordination.db"))
        self._zookeeper = zookeeper
        self._config = {"zookeeper.connect": "127.0.0.1:2181", **{k.replace("_", "."): v for k, v in config.items()}}
        self.tool = self._session()
        self.brokers = {}

    def _session(self):
        if self.store is None:
            return ZooKeeperCoordination(self._zookeeper)
        return EmbeddedCoordination(self.store)

    async def expire(self, session) -> None:
        """Ends a session whose broker lives, as its timeout would; returns when it has a new one."""
        renewed = asyncio.Event()
        session.add_session_listener(lambda event: renewed.set() if event is SessionEvent.CONNECTED else None)
        if self.store is not None:
            self.store.expire_session(session.session_id)
        else:
            # Whoever knows id and password may take a session over, and ends it with that.
            other = self._session()
            await other.start((session.session_id, session.session_password))
            await other.close()
        await asyncio.wait_for(renewed.wait(), 60)

    async def __aenter__(self):
        await self.tool.start()
        for path in znodes.PERSISTENT_PATHS:
            steps = path.split("/")[1:]
            for depth in range(len(steps)):
                try:
                    await self.tool.create("/" + "/".join(steps[: depth + 1]))
                except NodeExists:
                    continue
        return self

    async def __aexit__(self, *_):
        for broker_id in sorted(self.brokers):
            broker = self.brokers[broker_id]
            if broker.controller is not None:
                await broker.controller.stop()
            broker.clock.cancel_all()
            await broker.session.close()
        await self.tool.close()
        if self.store is not None:
            await self.store.close()

    max_partition_replicas = {}
    """What brokers say that they may hold, by id; to be set on a fleet before they register."""

    features = {}
    """The versions of the features that brokers support; to be set on a fleet before they register."""

    async def register(self, broker_id, rack=None):
        """A broker that is registered and whose controller does not run."""
        session = self._session()
        await session.start()
        await self.announce(session, broker_id, rack)
        clock = ImpatientClock(seed=broker_id)
        self.brokers[broker_id] = SimpleNamespace(
            id=broker_id, session=session, clock=clock, controller=None, channels=None
        )
        return self.brokers[broker_id]

    async def announce(self, session, broker_id, rack=None, listener=LISTENER) -> None:
        await session.create(
            znodes.BrokerRegistration.path(broker_id),
            znodes.BrokerRegistration(
                broker_id,
                (
                    Endpoint(listener, "127.0.0.1", 19000 + broker_id),
                    Endpoint("CLIENT", "127.0.0.1", 9092 + broker_id),
                ),
                1,
                rack,
                features=self.features,
                max_partition_replicas=self.max_partition_replicas.get(broker_id),
            ).encode(),
            ephemeral=True,
        )

    async def start_controller(self, broker_id, coordination=None):
        """`coordination` stands between the controller and the broker's session."""
        broker = self.brokers[broker_id]
        broker.channels = RecordingChannels(broker.clock)
        broker.metrics = Metrics()
        broker.controller = Controller(
            broker_id=broker_id,
            config=BrokerConfig.from_mapping({"broker.id": str(broker_id), **self._config}),
            clock=broker.clock,
            coordination=coordination or broker.session,
            channels=broker.channels,
            listener=LISTENER,
            metrics=broker.metrics,
        )
        await broker.controller.start()
        return broker.controller, broker.channels

    async def kill(self, broker_id) -> None:
        """A crash whose session has ended: its registration, and /controller if it held it, are gone."""
        broker = self.brokers.pop(broker_id)
        broker.clock.cancel_all()
        await broker.session.close()

    async def bounce(self, broker_id) -> None:
        """A restart so quick that one look sees the same id with another epoch."""
        broker = self.brokers[broker_id]
        path = znodes.BrokerRegistration.path(broker_id)
        data, _ = await broker.session.get(path)
        first = broker.session.delete(path)
        second = broker.session.create(path, data, ephemeral=True)
        await asyncio.gather(first, second)

    async def state(self, topic, partition=0):
        data, stat = await self.tool.get(znodes.PartitionStateZnode.path(topic, partition))
        return znodes.PartitionStateZnode.decode(topic, partition, data), stat

    async def assignment(self, topic):
        data, _ = await self.tool.get(znodes.topic_path(topic))
        return znodes.TopicAssignment.decode(topic, data)

    async def until_gone(self, path) -> None:
        """Waits on the node's watch until it is deleted."""
        while True:
            changed = asyncio.Event()
            if await self.tool.exists(path, lambda _, changed=changed: changed.set()) is None:
                return
            await asyncio.wait_for(changed.wait(), 60)

    async def exists(self, path) -> bool:
        try:
            await self.tool.get(path)
        except NoNode:
            return False
        return True


async def fleet_of(fleet, brokers=3, racks=(), losing=None, rate=0.0):
    """Registers brokers 0.. and starts the controller of broker 0, whose connection `losing` (a Random) breaks."""
    for broker_id in range(brokers):
        await fleet.register(broker_id, racks[broker_id] if racks else None)
    coordination = LossyCoordination(fleet.brokers[0].session, losing, rate) if losing else None
    return await fleet.start_controller(0, coordination)


async def create(controller, name, assignment=None, **rest):
    """What the controller answers of the one topic."""
    new = NewTopic(name, assignment=assignment, **rest)
    (result,) = await controller.create_topics([new], timeout_ms=WAIT_MS)
    return result
