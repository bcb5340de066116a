"""The KafkaAdmin port on kafka-python: the client, metadata, dynamic values, log directories and elections.

The client blocks its caller, so each cluster has one worker thread, through which its calls go in order; a cluster that
does not answer delays no other. The requests for topics are in `topic_requests`, those that move replicas
in `reassignment_requests`, those for the configuration of brokers in `broker_config_requests`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import NodeNotReadyError, for_code
from kafka.net.compat import KafkaNetClient
from kafka.net.selector import NetworkSelector

from ottla_broker.security.client_settings import PLAIN, ClientSecurity
from ottla_broker.security.oauth.logins import TokenLogin
from ottla_broker.security.sasl.login import SaslLogin
from ottla_operator.api.fleet import (
    NO_ANSWER,
    BrokerValues,
    ClusterMetadata,
    ConfigChanges,
    LogDirContents,
    PartitionReport,
)
from ottla_operator.api.topics import TopicChange, TopicDescription
from ottla_operator.effects.broker_config_requests import alter_brokers, describe_brokers
from ottla_operator.effects.kafka_token import TokenProvider
from ottla_operator.effects.reassignment_requests import (
    alter_log_dirs,
    describe_log_dirs,
    list_reassignments,
    request_moves,
)
from ottla_operator.effects.topic_requests import change_topics, describe_topics
from ottla_operator.facts.fleet_values import MoveRequests
from ottla_operator.ports import KafkaUnavailable

if TYPE_CHECKING:
    from ottla_operator.effects.kafka_tls import ContextOfConnections

_Result = TypeVar("_Result")
CLIENT_ID = "ottla-operator"
REQUEST_TIMEOUT_MS = 30_000
CHANGE_TIMEOUT_MS = 20_000
"""The timeout of a change in the controller, shorter than the client's timeout of the request."""
BOOTSTRAP_TIMEOUT_MS = 5_000
CONNECT_TIMEOUT_MS = 2_000
"""The address of a pod that is gone answers nothing, not even a refusal. kafka-python's 10 s, which double with each
attempt, are longer than the restart of a controller: a roll would notice late that the next pod is there."""
LONGEST_BACKOFF_MS = 1_000
"""The value of Java's clients. kafka-python's 30 s come quickly: it draws an address at random, also one that is not
there, and doubles its pause twice for each failure. With two of three brokers down, one connection in a hundred took
10 s."""
_CONNECT_TIMEOUTS = ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms")
REQUEST_TIMED_OUT = 7
ELECTION_NOT_NEEDED = 84
PREFERRED = 0
"""Election type of ElectLeaders (KIP-460)."""
MIN_IN_SYNC = "min.insync.replicas"
TOPICS_PER_REQUEST = 500


class KafkaPythonAdmin:
    """The admin client of one cluster, behind one thread. It connects at its first use, and again after a failure.

    Args:
        security: how brokers are reached. Stores of certificates are read again for new connections.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS,
        change_timeout_ms: int = CHANGE_TIMEOUT_MS,
        security: ClientSecurity = PLAIN,
    ) -> None:
        self._tls = _tls_of(security)
        self._login = security.login
        self._bootstrap = list(bootstrap)
        self._bootstrap_timeout_ms = bootstrap_timeout_ms
        self._change_timeout_ms = change_timeout_ms
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kafka-admin")
        self._client: KafkaAdminClient | None = None
        self._asked: tuple[int, ...] = ()

    def ask_only(self, brokers: Collection[int]) -> None:
        self._asked = tuple(brokers)

    async def view(self) -> ClusterMetadata:
        return await self._call(_view)

    async def min_in_sync(self, topics: Sequence[str]) -> Mapping[str, int]:
        return await self._call(lambda client: _min_in_sync(client, topics))

    async def brokers(self) -> Sequence[int]:
        return await self._call(lambda client: _broker_ids(client.describe_cluster()))

    async def finalized_features(self) -> Mapping[str, int]:
        return await self._call(_finalized_features)

    async def broker_values(self, broker_ids: Sequence[int]) -> Mapping[int, BrokerValues]:
        return await self._call(lambda client: describe_brokers(client, broker_ids))

    async def log_dirs(self, brokers: Sequence[int]) -> Mapping[int, Sequence[LogDirContents]]:
        return await self._call(lambda client: describe_log_dirs(client, brokers))

    async def move_replicas(self, broker: int, targets: Mapping[tuple[str, int], str]) -> Mapping[tuple[str, int], str]:
        wanted = {(broker, *partition): path for partition, path in targets.items()}
        errors = await self._call(lambda client: alter_log_dirs(client, wanted))
        return {(topic, index): error for (_, topic, index), error in errors.items()}

    async def set_broker_config(self, broker: int, key: str, value: str | None) -> str:
        change: ConfigChanges = {broker: {key: value}}
        error = (await self.alter_broker_configs(change)).get((broker, key), "")
        if error.startswith(NO_ANSWER):
            raise KafkaUnavailable(error.removeprefix(NO_ANSWER))
        return error

    async def alter_broker_configs(self, changes: ConfigChanges) -> Mapping[tuple[int | None, str], str]:
        errors = await self._call(lambda client: alter_brokers(client, changes))
        if any(error.startswith(NO_ANSWER) for error in errors.values()):
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        return errors

    async def reassignments(self) -> Mapping[tuple[str, int], tuple[tuple[int, ...], ...]]:
        return await self._call(lambda client: list_reassignments(client, self._change_timeout_ms))

    async def move(self, requests: MoveRequests) -> Mapping[tuple[str, int], str]:
        return await self._call(lambda client: request_moves(client, requests, self._change_timeout_ms))

    async def elect_leaders(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], str]:
        return await self._call(lambda client: _elect_leaders(client, partitions, self._change_timeout_ms))

    async def reorder(self, orders: Mapping[tuple[str, int], Sequence[int]]) -> Mapping[tuple[str, int], str]:
        return await self._call(lambda client: _reorder(client, orders, self._change_timeout_ms))

    async def topics(self, names: Sequence[str]) -> Mapping[str, TopicDescription]:
        return await self._call(lambda client: describe_topics(client, names))

    async def change(self, changes: Sequence[TopicChange]) -> Mapping[str, str]:
        return await self._call(lambda client: change_topics(client, changes, self._change_timeout_ms))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _call(self, act: Callable[[KafkaAdminClient], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._on_thread, act, self._asked)

    def _on_thread(self, act: Callable[[KafkaAdminClient], _Result], asked: Sequence[int]) -> _Result:
        try:
            if self._client is not None and asked and not _known(self._client, asked):
                self._disconnect()  # its own metadata is from before they were there
            if self._client is None:
                self._client = _connect(self._bootstrap, self._bootstrap_timeout_ms, self._tls, self._login)
            _ask_only(self._client, asked)
            return act(self._client)
        except Exception as error:  # errors of single topics are not raised
            self._disconnect()
            why = "" if self._tls is None or not self._tls.failure else f"; {self._tls.failure}"
            raise KafkaUnavailable(f"{type(error).__name__}: {error}{why}") from error

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _tls_of(security: ClientSecurity) -> ContextOfConnections | None:
    if security.tls is None:
        return None
    from ottla_operator.effects.kafka_tls import ContextOfConnections  # what reads stores takes 17 MB

    return ContextOfConnections(security.tls)


def _connect(
    bootstrap: Sequence[str], timeout_ms: int, tls: ContextOfConnections | None, login: SaslLogin | TokenLogin | None
) -> KafkaAdminClient:
    """A connected client. One that cannot connect is closed: otherwise its thread would try for ever.

    Raises:
        TlsError: a store of certificates cannot be used.
    """
    security: dict[str, Any] = {}
    if tls is not None:
        tls.failure = ""
        tls.check()
        security = {"security_protocol": "SSL", "ssl_context": tls}
    if login is not None:
        security |= {
            "security_protocol": "SASL_PLAINTEXT" if tls is None else "SASL_SSL",
            "sasl_mechanism": login.mechanism,
        }
    if isinstance(login, TokenLogin):
        security["sasl_oauth_token_provider"] = TokenProvider(login)
    elif login is not None:
        security |= {"sasl_plain_username": login.username, "sasl_plain_password": login.password}
    network = NetworkSelector(client_id=CLIENT_ID)
    made: list[KafkaNetClient] = []

    def make(**settings: Any) -> KafkaNetClient:
        settings |= dict.fromkeys(_CONNECT_TIMEOUTS, CONNECT_TIMEOUT_MS)  # KafkaAdminClient does not take them
        made.append(KafkaNetClient(net=network, **settings))
        return made[-1]

    try:
        return KafkaAdminClient(
            bootstrap_servers=list(bootstrap),
            client_id=CLIENT_ID,
            reconnect_backoff_max_ms=LONGEST_BACKOFF_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            bootstrap_timeout_ms=timeout_ms,
            kafka_client=make,
            **security,
        )
    except BaseException:
        for client in made:
            client.close()
        network.stop()
        raise


def _known(client: KafkaAdminClient, brokers: Sequence[int]) -> list[int]:
    """The brokers that the client can connect to."""
    cluster = client._manager.cluster
    return [broker for broker in brokers if cluster.broker_metadata(broker) is not None]


def _ask_only(client: KafkaAdminClient, brokers: Sequence[int]) -> None:
    """Has the client send requests without a destination, its own for metadata among them, to one of these brokers.

    Raises:
        NodeNotReadyError: it knows none of them.
    """
    manager = client._manager
    vars(manager).pop("least_loaded_node", None)
    if not brokers:
        return
    if not _known(client, brokers):
        raise NodeNotReadyError(f"none of the brokers {', '.join(map(str, brokers))} is in the metadata")

    def one_of_them() -> int | None:
        there = _known(client, brokers)
        free = [broker for broker in there if manager.connection_delay(broker) <= 0]
        connected = [broker for broker in free if broker in manager._conns and manager._conns[broker].connected]
        return random.choice(connected or free or there or [None])

    manager.least_loaded_node = one_of_them


def _view(client: KafkaAdminClient) -> ClusterMetadata:
    # One request for brokers and partitions: the removal of a broker relies on both being from one answer. The public
    # calls of the client send two requests.
    cluster = client._manager.run(client._get_cluster_metadata, None)
    partitions = [
        PartitionReport(
            topic["name"],
            partition["partition_index"],
            partition["leader_id"],
            tuple(partition["replica_nodes"]),
            tuple(partition["isr_nodes"]),
        )
        for topic in cluster["topics"]
        for partition in topic["partitions"]
    ]
    brokers = tuple(sorted(broker["node_id"] for broker in cluster["brokers"]))
    return ClusterMetadata(cluster["cluster_id"], cluster["controller_id"], brokers, tuple(partitions))


def _elect_leaders(
    client: KafkaAdminClient, partitions: Sequence[tuple[str, int]], timeout_ms: int
) -> dict[tuple[str, int], str]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    answer = client.elect_leaders(PREFERRED, by_topic, timeout_ms, raise_errors=False)
    return {
        (topic.topic, result.partition_id): for_code(result.error_code).__name__.removesuffix("Error")
        for topic in answer.replica_election_results
        for result in topic.partition_result
        if result.error_code not in (0, ELECTION_NOT_NEEDED, REQUEST_TIMED_OUT)
    }


def _reorder(
    client: KafkaAdminClient, orders: Mapping[tuple[str, int], Sequence[int]], timeout_ms: int
) -> dict[tuple[str, int], str]:
    partitions = {TopicPartition(*partition): list(order) for partition, order in orders.items()}
    ongoing = client.list_partition_reassignments(list(partitions))
    refused = {(partition.topic, partition.partition): "ReassignmentInProgress" for partition in ongoing}
    asked = {partition: order for partition, order in partitions.items() if partition not in ongoing}
    answer = client.alter_partition_reassignments(asked, timeout_ms) if asked else {}
    return refused | {
        (partition.topic, partition.partition): error.__name__.removesuffix("Error")
        for partition, error in answer.items()
        if error is not None
    }


def _min_in_sync(client: KafkaAdminClient, topics: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for begin in range(0, len(topics), TOPICS_PER_REQUEST):
        chunk = topics[begin : begin + TOPICS_PER_REQUEST]
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic, {MIN_IN_SYNC: None}) for topic in chunk]
        for topic, values in client.describe_configs(resources, config_filter="all").get("topic", {}).items():
            value = str(dict(values).get(MIN_IN_SYNC, {}).get("value"))
            if value.isdecimal():
                found[topic] = int(value)
    return found


def _broker_ids(cluster: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(sorted(broker["broker_id"] for broker in cluster["brokers"]))


def _finalized_features(client: KafkaAdminClient) -> dict[str, int]:
    features = client.describe_features()
    return {name: int(found["finalized"][1]) for name, found in features.items() if "finalized" in found}
