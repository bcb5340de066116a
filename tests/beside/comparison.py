"""Asks two brokers the same and says where their answers differ."""

from __future__ import annotations

import contextlib
import json
import ssl
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kazoo.client import KazooClient

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.beside.requests import IDENTITIES, IN_TRANSACTIONS, TOPICS, Request
from tests.integration.apache_kafka import ApacheKafka
from tests.integration.local_fleet import eventually
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire

_LIMIT_S = 120.0
_CONFIG = {
    "num.partitions": "2",
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "3600000",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "10000",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "num.recovery.threads.per.data.dir": "1",
}
UNLIKE = {
    "throttle_time_ms": "time",
    "error_message": "words",
    "batch_index_error_message": "words",
    "topic_id": "random",
    "cluster_id": "random",
    "host": "theirs",
    "port": "theirs",
    "node_endpoints": "theirs",
    "log_dir": "theirs",
    "usable_bytes": "of the moment",
    "aborted_transactions": "null and empty mean the same",
    "transaction_start_time_ms": "time",
    "log_append_time_ms": "of a batch that it has already, Apache Kafka tells the largest timestamp",
    "is_default": "Apache Kafka 3.9 says False of every topic's setting in version 0",
}
"""Fields that are not compared, and why."""

WORD_FOR_WORD = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""APIs without their feature: all that they say is the error, and the messages are compared too."""


class Broker:
    """One of the two, over one connection, opened again when the broker has closed it."""

    def __init__(self, address: str, source: str = "", tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._source = source
        self._tls = tls
        self._wire: Wire | None = None

    def ask(self, request: Request) -> Any:
        """The answer as nested dicts and lists, comparable; "closed" or "no answer" instead."""
        unlike = UNLIKE.keys() - {"error_message"} if request.api_key in WORD_FOR_WORD else UNLIKE.keys()
        return comparable(self.answer(request), unlike)

    def answer(self, request: Request) -> Any:
        """The response of the module of its API; "closed" or "no answer" instead."""
        if self._wire is None:
            self._wire = Wire(self._address, source=self._source, tls=self._tls)
        self._wire.send(self._wire.request_bytes(request.api_key, request.version, request.body))
        try:
            frame = self._wire.frame()
        except TimeoutError:
            self.close()
            return "no answer"
        if frame is None:
            self.close()
            return "closed"
        _, response = codec.read_response_frame(request.api_key, request.version, memoryview(frame))
        return response

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def comparable(value: Any, unlike: Collection[str] = UNLIKE.keys()) -> Any:
    """Without what cannot be alike; lists of answers in one order: neither broker promises any."""
    if hasattr(value, "__slots__"):
        return {name: comparable(getattr(value, name), unlike) for name in value.__slots__ if name not in unlike}
    if isinstance(value, (list, tuple)):
        return _in_order([comparable(one, unlike) for one in value])
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value


def _in_order(answers: list[Any]) -> list[Any]:
    """A Fetch names a topic once more when its partitions do not come one after the other: here each once."""
    by_topic: dict[str, Any] = {}
    for one in answers:
        if isinstance(one, dict) and one.get("topic") in by_topic and "partitions" in one:
            first = by_topic[one["topic"]]
            first["partitions"] = _in_order(first["partitions"] + one["partitions"])
        else:
            by_topic[one["topic"] if isinstance(one, dict) and one.get("topic") else str(len(by_topic))] = one
    return sorted(by_topic.values(), key=_place)


def _place(one: Any) -> tuple[str, str]:
    identity = next((one[field] for field in IDENTITIES if field in one), "") if isinstance(one, dict) else ""
    return str(identity), json.dumps(one, sort_keys=True)


def difference(ours: Any, theirs: Any, where: str = "") -> str:
    """The first place where two comparable answers differ, "" where they do not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return next((found for name in ours if (found := difference(ours[name], theirs[name], f"{where}.{name}"))), "")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next((found for n, (a, b) in pairs if (found := difference(a, b, f"{where}[{n}]"))), "")
    if ours == theirs:
        return ""
    if where.endswith("error_code"):
        ours, theirs = ErrorCode.of(ours).name, ErrorCode.of(theirs).name
    return f"{where or 'answer'}: {ours!r}, and Apache Kafka says {theirs!r}"


@contextlib.contextmanager
def both(
    directory: Path, zookeeper: ZooKeeperServer, stranger: str = "", keys: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Callable[..., tuple[Any, Any]]]:
    """Starts both, each with the topics of `requests` and with a group coordinator; gives what asks them one request,
    or each its own.

    `stranger`: an address from which neither takes what only brokers send; it is asked from there. `keys`: of both.
    """
    with contextlib.ExitStack() as cleanup:
        our_path, their_path = own_chroot(zookeeper), own_chroot(zookeeper)
        our_config, their_config = {**_CONFIG, **keys}, {**_CONFIG, **keys}
        if stranger:
            our_config["ottla.broker.request.addresses"] = "127.0.0.1"
            their_config |= _authorizer(their_path)
        ours = BrokerProcess(directory / "ours", 1, our_path, our_config)
        theirs = ApacheKafka(directory / "theirs", 1, their_path, [directory / "their-logs"], their_config)
        brokers = []
        for started in (ours, theirs):
            cleanup.callback(started.close)
            started.start()
            broker = Broker(started.address)
            cleanup.callback(broker.close)
            _set_up(broker)
            if stranger:
                broker = Broker(started.address, stranger)
                cleanup.callback(broker.close)
            brokers.append(broker)

        def ask(request: Request, to_theirs: Request | None = None) -> tuple[Any, Any]:
            answers = brokers[0].ask(request), brokers[1].ask(to_theirs or request)
            if request.api_key in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID):
                for broker in brokers:
                    _await_markers(broker)
            return answers

        yield ask


def allow_all_on_the_cluster(connect: str) -> None:
    """An ACL that grants everything on the cluster to whoever comes from 127.0.0.1 alone."""
    grant = {"principal": "User:*", "permissionType": "Allow", "operation": "All", "host": "127.0.0.1"}
    client = KazooClient(connect)
    client.start(_LIMIT_S)
    client.create(
        "/kafka-acl/Cluster/kafka-cluster", json.dumps({"version": 1, "acls": [grant]}).encode(), makepath=True
    )
    client.stop()
    client.close()


def _authorizer(connect: str) -> dict[str, str]:
    """The keys of Apache Kafka's, after `allow_all_on_the_cluster`."""
    allow_all_on_the_cluster(connect)
    return {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }


def own_chroot(zookeeper: ZooKeeperServer) -> str:
    """A path of its own, which exists, as zookeeper.connect names it."""
    path = f"beside/{uuid.uuid4()}"
    client = KazooClient(zookeeper.connect)
    client.start(_LIMIT_S)
    client.ensure_path(path)
    client.stop()
    client.close()
    return f"{zookeeper.connect}/{path}"


def _set_up(broker: Broker) -> None:
    create, find = codec.module(ApiKey.CREATE_TOPICS), codec.module(ApiKey.FIND_COORDINATOR)
    for name, partitions in {**TOPICS, IN_TRANSACTIONS: 1}.items():
        configs = [create.CreatableTopicConfig(name="cleanup.policy", value="compact")] if name == "compacted" else []
        topic = create.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        request = Request(ApiKey.CREATE_TOPICS, 7, create.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        _until(broker, request, lambda answer: answer["topics"][0]["error_code"] in (0, 36))
    coordinator = Request(ApiKey.FIND_COORDINATOR, 3, find.FindCoordinatorRequest(key="g1"))
    _until(broker, coordinator, lambda answer: answer["error_code"] == 0)
    transactions = Request(ApiKey.FIND_COORDINATOR, 3, find.FindCoordinatorRequest(key="a", key_type=1))
    _until(broker, transactions, lambda answer: answer["error_code"] == 0)
    _await_markers(broker)
    # The first one of Apache Kafka's brokers has yet to get its block of producer ids.
    init = codec.module(ApiKey.INIT_PRODUCER_ID).InitProducerIdRequest(transactional_id=None)
    _until(broker, Request(ApiKey.INIT_PRODUCER_ID, 4, init), lambda answer: answer["error_code"] == 0)
    heartbeat = codec.module(ApiKey.HEARTBEAT).HeartbeatRequest(group_id="g1", generation_id=1, member_id="m")
    unknown = int(ErrorCode.UNKNOWN_MEMBER_ID)
    _until(broker, Request(ApiKey.HEARTBEAT, 4, heartbeat), lambda answer: answer["error_code"] == unknown)


def _await_markers(broker: Broker) -> None:
    """Until its coordinator has loaded, and no transaction is being ended."""
    states = ["PrepareCommit", "PrepareAbort"]
    request = codec.module(ApiKey.LIST_TRANSACTIONS).ListTransactionsRequest(state_filters=states)
    ended = {"error_code": 0, "unknown_state_filters": [], "transaction_states": []}
    _until(broker, Request(ApiKey.LIST_TRANSACTIONS, 0, request), lambda answer: answer == ended)


def _until(broker: Broker, request: Request, holds: Callable[[Any], bool]) -> None:
    eventually(lambda: holds(broker.ask(request)))
