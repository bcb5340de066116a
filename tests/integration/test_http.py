"""/metrics, /livez and /readyz of a broker over HTTP, and its connection limits."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ottla.local.zookeeper_server import ZooKeeperServer
from ottla.testing import RunningCluster, cluster
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.errors import ErrorCode
from tests.integration.broker_errors import broker_errors
from tests.integration.processes import BrokerProcess
from tests.integration.wire import Wire, batch, create_topic, produce_request

IDLE_MS = 2000
LIMIT = 8
METRIC_NAME = re.compile(r"(kafka|ottla|process)_[a-z0-9_]+")  # process_: what Prometheus' clients tell of any process


@pytest.fixture(scope="module")
def fleet() -> Iterator[RunningCluster]:
    """One broker with its HTTP side."""
    with broker_errors(), cluster(brokers=1, config={"max.connections": str(LIMIT)}) as found:
        create_topic(found.address(0), "t", min_insync_replicas="1")
        yield found


@pytest.fixture
def impatient() -> Iterator[RunningCluster]:
    """One broker that soon closes what is idle: connections of other tests would be, on a busy machine."""
    with broker_errors(), cluster(brokers=1, config={"connections.max.idle.ms": str(IDLE_MS)}) as found:
        create_topic(found.address(0), "t")
        yield found


def get(fleet: RunningCluster, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type, body."""
    return ask(fleet.http(0), path, method)


def ask(address: str, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type") or "", answer.read().decode()
    finally:
        connection.close()


def metrics(fleet: RunningCluster) -> dict[str, Metric]:
    status, kind, body = get(fleet, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(body)}


def value(found: dict[str, Metric], family: str, sample: str = "", **labels: str) -> float:
    """The one sample of a family with these labels among its labels."""
    values = [
        each.value
        for each in found[family].samples
        if each.name == (sample or each.name) and labels.items() <= each.labels.items()
    ]
    assert len(values) == 1, (family, labels, found[family].samples)
    return float(values[0])


def produce(fleet: RunningCluster) -> int:
    """Produces one batch; the bytes that count."""
    records = batch(b"value" * 100, b"another")
    with Wire(fleet.address(0)) as wire:
        answer = wire.ask(ApiKey.PRODUCE, 9, produce_request("t", records))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return len(records)


def fetch(wire: Wire, *, offset: int, max_wait_ms: int = 0) -> bytes:
    """A fetch request's frame: it waits for a byte, for at most `max_wait_ms`."""
    api = codec.module(ApiKey.FETCH)
    part = api.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = api.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1_000_000, topics=[api.FetchTopic(topic="t", partitions=[part])]
    )
    return wire.request_bytes(ApiKey.FETCH, 11, request)


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_the_probes_say_yes(fleet: RunningCluster, path: str) -> None:
    assert get(fleet, path) == (200, "text/plain", "ok\n")
    assert get(fleet, path + "?verbose") == (200, "text/plain", "ok\n")
    assert get(fleet, path, "HEAD")[::2] == (200, "")


def test_another_path_is_not_found_and_the_answer_names_those_that_are(fleet: RunningCluster) -> None:
    status, _, body = get(fleet, "/healthz")
    assert status == 404
    assert all(path in body for path in ("/metrics", "/livez", "/readyz"))
    assert get(fleet, "/metrics", "POST")[0] == 405


def test_what_is_no_http_is_closed_and_the_next_is_served(fleet: RunningCluster) -> None:
    with Wire(fleet.http(0)) as wire:
        wire.send(b"\x00\x00\x00\x10 not http at all\r\n\r\n")
        while wire.socket.recv(4096):
            pass
    assert get(fleet, "/livez")[0] == 200


def test_the_names_follow_the_rule(fleet: RunningCluster) -> None:
    """docs/reference/metrics.md: lower case, domain first, no PerSec, timers in seconds, a help text for each."""
    produce(fleet)
    for name, family in metrics(fleet).items():
        assert METRIC_NAME.fullmatch(name), name
        assert not name.endswith(("persec", "timems", "_ms")), name
        assert family.documentation, name
        assert family.type in ("counter", "gauge", "histogram"), name


def test_bytes_and_requests_are_counted(fleet: RunningCluster) -> None:
    produce(fleet)
    before = metrics(fleet)
    size = produce(fleet)
    with Wire(fleet.address(0)) as wire:
        wire.send(fetch(wire, offset=0))
        answer = wire.answer(ApiKey.FETCH, 11)
        read = len(answer.responses[0].partitions[0].records)
    after = metrics(fleet)

    def grown(family: str, sample: str = "", **labels: str) -> float:
        return value(after, family, sample, **labels) - value(before, family, sample, **labels)

    topics = "kafka_server_brokertopicmetrics_"
    assert grown(f"{topics}bytesin", f"{topics}bytesin_total", topic="t") == size
    assert grown(f"{topics}messagesin", f"{topics}messagesin_total", topic="t") == 2
    assert value(after, f"{topics}bytesout", f"{topics}bytesout_total", topic="t") >= read > 0
    times = "kafka_network_requestmetrics_totaltime_seconds"
    assert grown(times, f"{times}_count", request="Produce") == 1
    assert value(after, times, f"{times}_count", request="Fetch") >= 1
    assert grown(times, f"{times}_sum", request="Produce") > 0
    assert value(after, times, f"{times}_bucket", request="Produce", le="+Inf") == value(
        after, times, f"{times}_count", request="Produce"
    )


def test_the_state_of_replicas_and_controller_is_told(fleet: RunningCluster) -> None:
    found = metrics(fleet)
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(found, "kafka_server_replicamanager_partitioncount") >= 1
    assert value(found, "kafka_server_replicamanager_leadercount") >= 1
    assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(found, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(impatient: RunningCluster) -> None:
    """connections.max.idle.ms. A long poll that is older than the limit is not idle."""
    with Wire(impatient.address(0)) as waiting:
        waiting.send(fetch(waiting, offset=0, max_wait_ms=IDLE_MS * 100))
        for _ in range(2):  # the second one is opened when the wait is older than the limit
            with Wire(impatient.address(0)) as idle:
                assert idle.is_closed_by_broker()
        produce(impatient)  # ends the wait
        answer = waiting.answer(ApiKey.FETCH, 11)
        assert len(answer.responses[0].partitions[0].records) > 0


def test_the_connection_of_a_throttled_client_is_closed_when_it_is_idle(impatient: RunningCluster) -> None:
    """Nobody reads from it, so nobody sees that the client has gone: it would count for the whole throttle time."""
    alter = codec.module(ApiKey.ALTER_CLIENT_QUOTAS)
    entity = [alter.EntityData(entity_type="client-id", entity_name="gone")]
    entry = alter.EntryData(entity=entity, ops=[alter.OpData(key="producer_byte_rate", value=1.0)])
    with Wire(impatient.address(0)) as admin:
        (found,) = admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, alter.AlterClientQuotasRequest(entries=[entry])).entries
        assert found.error_code == ErrorCode.NONE
    with Wire(impatient.address(0), client_id="gone") as gone:
        request = produce_request("t", batch(b"v" * 100_000))
        while gone.ask(ApiKey.PRODUCE, 9, request).throttle_time_ms < 1000 * IDLE_MS:
            pass  # the quota is not in force yet
        gone.socket.shutdown(socket.SHUT_WR)
        assert gone.is_closed_by_broker()


def is_served(wire: Wire) -> bool:
    api = codec.module(ApiKey.API_VERSIONS)
    try:
        wire.send(wire.request_bytes(ApiKey.API_VERSIONS, 0, api.ApiVersionsRequest()))
        return wire.frame() is not None
    except (BrokenPipeError, ConnectionResetError):
        return False


def test_connections_over_the_limit_wait_and_the_others_go_on(fleet: RunningCluster) -> None:
    """max.connections; the brokers' own listener gets its place at the cost of an idle client (KIP-402)."""
    count = "kafka_server_socketservermetrics_connectioncount"
    with ExitStack() as stack:
        served: list[Wire] = []
        while value(metrics(fleet), count) < LIMIT:
            served.append(stack.enter_context(Wire(fleet.address(0))))
            assert is_served(served[-1])
        waiting = stack.enter_context(Wire(fleet.address(0)))
        request = codec.module(ApiKey.API_VERSIONS).ApiVersionsRequest()
        waiting.send(waiting.request_bytes(ApiKey.API_VERSIONS, 0, request))
        assert all(map(is_served, served)) and value(metrics(fleet), count) == LIMIT

        assert fleet.fleet is not None
        host, port = fleet.fleet.brokers[0].address("INTERNAL")
        assert is_served(stack.enter_context(Wire(f"{host}:{port}")))
        assert served[0].is_closed_by_broker(), "the client that had been idle for longest made room"
        assert all(map(is_served, served[1:]))

        for wire in served[1:3]:  # one place is the brokers' now
            wire.close()
        assert waiting.frame() is not None, "its turn has come"


@pytest.mark.java
def test_a_process_answers_from_its_start_to_its_end(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", 0, f"{zookeeper.connect}/{tmp_path.name}")
    try:
        broker.start()
        address = f"127.0.0.1:{broker.http_port}"
        assert ask(address, "/livez")[0] == ask(address, "/readyz")[0] == 200
        families = list(text_string_to_metric_families(ask(address, "/metrics")[2]))
        assert "kafka_server_replicamanager_underreplicatedpartitions" in {family.name for family in families}
        assert broker.stop() == 0
        with pytest.raises(OSError):
            ask(address, "/livez")
    finally:
        broker.close()
