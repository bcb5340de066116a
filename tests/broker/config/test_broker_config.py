"""What a user gets from a server.properties: values, precedence, refusals that name the key."""

from __future__ import annotations

import pytest

from ottla_broker.config import (
    BROKER_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigSource,
    Endpoint,
    Synonym,
    unknown_broker_keys,
)
from ottla_broker.config.description import synonyms
from ottla_broker.protocol.errors import ErrorCode, KafkaError

ZOOKEEPER = "zookeeper.connect=localhost:2181\n"

LINKEDIN = """
# Replication configurations
num.replica.fetchers=4
replica.fetch.max.bytes=1048576
replica.fetch.wait.max.ms=500
replica.high.watermark.checkpoint.interval.ms=5000
replica.socket.timeout.ms=30000
replica.socket.receive.buffer.bytes=65536
replica.lag.time.max.ms=10000
replica.lag.max.messages=4000

controller.socket.timeout.ms=30000
controller.message.queue.size=10

# Log configuration
num.partitions=8
message.max.bytes=1000000
auto.create.topics.enable=true
log.index.interval.bytes=4096
log.index.size.max.bytes=10485760
log.retention.hours=168
log.flush.interval.ms=10000
log.flush.interval.messages=20000
log.flush.scheduler.interval.ms=2000
log.roll.hours=168
log.retention.check.interval.ms=300000
log.segment.bytes=1073741824

# ZK configuration
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=6000
zookeeper.sync.time.ms=2000

# Socket server configuration
num.io.threads=8
num.network.threads=8
socket.request.max.bytes=104857600
socket.receive.buffer.bytes=1048576
socket.send.buffer.bytes=1048576
queued.max.requests=16
fetch.purgatory.purge.interval.requests=100
producer.purgatory.purge.interval.requests=100
"""

SHIPPED = """
broker.id=0
listeners=PLAINTEXT://:9092
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

DIGITS = "1" * 5000
"""More than Python reads as one number."""


def load(text: str, *overrides: str) -> BrokerConfig:
    return BrokerConfig.from_properties(ZOOKEEPER + text, overrides)


def test_the_production_file_of_the_0_8_2_documentation_loads_whole() -> None:
    config = BrokerConfig.from_properties(LINKEDIN)
    assert config.unknown_keys == ()
    assert config.num_replica_fetchers == 4
    assert config.by_name["log.flush.interval.messages"] == 20000
    assert config.by_name["replica.lag.max.messages"] == 4000
    assert "replica.lag.max.messages" in config.keys_without_effect
    assert "log.segment.bytes" not in config.keys_without_effect


def test_the_file_that_3_9_ships_for_zookeeper_mode_loads_without_an_unknown_key() -> None:
    config = BrokerConfig.from_properties(SHIPPED)
    assert config.unknown_keys == ()
    assert config.listeners.bound == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.log_dirs == ("/tmp/kafka-logs",)


def test_every_key_has_a_sentence_and_a_default_of_its_own_type() -> None:
    assert len(BROKER_KEYS) == 369
    for key in BROKER_KEYS.values():
        assert key.documentation.endswith("."), key.name
        if key.default is not None and key.validator is not None and key.default not in ("", ()):
            key.check(key.default)


def test_defaults_are_those_of_3_9() -> None:
    config = load("")
    assert config.by_name["log.segment.bytes"] == 1073741824
    assert config.by_name["message.max.bytes"] == 1048588
    assert config.zookeeper_session_timeout_ms == 18000
    assert config.by_name["log.cleanup.policy"] == ("delete",)
    assert config.by_name["log.retention.ms"] is None
    assert config.unclean_leader_election_enable is False
    assert config.inter_broker_protocol_version == "3.9-IV0"
    assert config.broker_id == -1


def test_unknown_keys_are_listed_in_the_order_of_the_file() -> None:
    config = load("some.thing=1\nlog.segment.byte=2\nlistener.name.internal.ssl.keystore.type=JKS")
    assert config.unknown_keys == ("some.thing", "log.segment.byte")
    assert unknown_broker_keys({"num.partitions": 1, "num.partition": 1}) == ("num.partition",)


def test_an_override_wins_over_the_file() -> None:
    assert load("num.partitions=2", "num.partitions=5", "broker.id=7").num_partitions == 5
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        load("", "num.partitions")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("", 604800000),
        ("log.retention.hours=1", 3600000),
        ("log.retention.hours=1\nlog.retention.minutes=1", 60000),
        ("log.retention.hours=1\nlog.retention.minutes=1\nlog.retention.ms=5", 5),
        ("log.retention.hours=1\nlog.retention.ms=-1", -1),
        ("log.retention.hours=-1", -1),
    ],
)
def test_retention_in_ms_wins_over_minutes_and_minutes_over_hours(text: str, ms: int) -> None:
    assert load(text).topic_config({}).retention_ms == ms


def test_older_names_set_the_newer_keys() -> None:
    config = load("log.delete.delay.ms=5\noffsets.topic.retention.minutes=6")
    assert config.by_name["log.segment.delete.delay.ms"] == 5
    assert config.offsets_retention_minutes == 6
    assert load("delegation.token.master.key=x").delegation_token_secret == "x"
    assert load("delegation.token.master.key=x\ndelegation.token.secret.key=y").delegation_token_secret == "y"
    assert load("").delegation_token_secret is load("delegation.token.secret.key=").delegation_token_secret is None
    assert load("log.delete.delay.ms=5\nlog.segment.delete.delay.ms=7").by_name["log.segment.delete.delay.ms"] == 7


def test_log_dirs_win_over_log_dir() -> None:
    assert load("log.dir=/a").log_dirs == ("/a",)
    assert load("log.dir=/a\nlog.dirs=/b, /c").log_dirs == ("/b", "/c")
    assert load("log.dirs=/b,/c\nottla.log.dirs.format=/c").formattable_log_dirs == ("/c",)
    assert load("log.dirs=/b,/c").formattable_log_dirs == ("/b", "/c")
    assert load("log.dirs=/b,/c\nottla.log.dirs.format=").formattable_log_dirs == ()


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("log.segment.bytes=12", "log.segment.bytes", "at least 14"),
        ("log.segment.bytes=1e9", "log.segment.bytes", "whole number"),
        ("log.segment.bytes=99999999999", "log.segment.bytes", "2147483647"),
        ("auto.create.topics.enable=yes", "auto.create.topics.enable", "true or false"),
        ("log.cleanup.policy=keep", "log.cleanup.policy", "compact, delete"),
        ("log.message.timestamp.type=Log", "log.message.timestamp.type", "CreateTime"),
        ("compression.type=brotli", "compression.type", "producer"),
        (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "authorizer.class.name",
            "StandardAuthorizer needs KRaft",
        ),
        ("authorizer.class.name=kafka.security.auth.SimpleAclAuthorizer", "authorizer.class.name", "AclAuthorizer, or"),
        ("ottla.validate.records=never", "ottla.validate.records", "headers"),
        ("remote.log.storage.system.enable=true", "remote.log.storage.system.enable", "not built"),
        ("process.roles=broker", "process.roles", "KRaft"),
        ("broker.id=1001", "broker.id", "reserved.broker.max.id"),
        ("broker.id=-2", "broker.id", "between -1 and"),
        ("log.dirs=,", "log.dirs", "at least one"),
        ("log.retention.ms=0", "log.retention.ms", "at least 1, or -1"),
        ("replica.fetch.wait.max.ms=40000", "replica.socket.timeout.ms", "replica.fetch.wait.max.ms"),
        ("ottla.shutdown.serve.ms=-1", "ottla.shutdown.serve.ms", "at least 0"),
        ("inter.broker.protocol.version=2.7", "inter.broker.protocol.version", "between 2.8 and 3.9"),
        ("inter.broker.protocol.version=4.0-IV0", "inter.broker.protocol.version", "between 2.8 and 3.9"),
        ("inter.broker.protocol.version=2.8-IV0", "inter.broker.protocol.version", "of 2.8 these levels are known"),
        ("inter.broker.protocol.version=3.10", "inter.broker.protocol.version", "between 2.8 and 3.9"),
        ("inter.broker.protocol.version=newest", "inter.broker.protocol.version", "between 2.8 and 3.9"),
        ("max.connections.per.ip.overrides=a", "max.connections.per.ip.overrides", "ADDRESS:NUMBER"),
        (f"max.connections.per.ip.overrides=10.0.0.1:{DIGITS}", "max.connections.per.ip.overrides", "ADDRESS:NUMBER"),
        (f"num.network.threads={DIGITS}", "num.network.threads", "whole number"),
        ("ottla.http.listener=somewhere", "ottla.http.listener", "HOST:PORT"),
        (f"ottla.http.listener=localhost:{DIGITS}", "ottla.http.listener", "HOST:PORT"),
        (f"zookeeper.connect=zk:{DIGITS}", "zookeeper.connect", "HOST:PORT"),
        (f"listeners=PLAINTEXT://localhost:{DIGITS}", "listeners", "NAME://HOST:PORT"),
        ("ottla.log.dirs.format=/x\nlog.dirs=/a", "ottla.log.dirs.format", "/x is none of them"),
        ("offsets.topic.compression.codec=5", "offsets.topic.compression.codec", "between 0 and 4"),
        ("leader.replication.throttled.rate=1", "leader.replication.throttled.rate", "dynamic"),
        ("zookeeper.connect=zk1:2181/kafka1,zk2:2181/kafka2", "zookeeper.connect", "after the last server"),
        ("zookeeper.connect=", "zookeeper.connect", "required"),
        ("zookeeper.connect=:2181", "zookeeper.connect", "HOST:PORT"),
        ("listeners=CONTROLLER://localhost:9092", "listeners", "needs an entry in listener.security.protocol.map"),
        ("listeners=localhost:9092", "listeners", "NAME://HOST:PORT"),
        ("listeners=PLAINTEXT://:9092,PLAINTEXT://:9093", "listeners", "stands twice"),
        (
            "listeners=A://:9092,B://:9092\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            "listeners",
            "port of its own",
        ),
        ("listeners=SASL_SSL://:9093", "inter.broker.listener.name", "PLAINTEXT is not among the advertised listeners"),
        ("listener.security.protocol.map=A:PLAIN", "listener.security.protocol.map", "SASL_SSL"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners", "clients can reach"),
        ("advertised.listeners=OTHER://a:1", "advertised.listeners", "listener.security.protocol.map"),
        ("inter.broker.listener.name=OTHER", "inter.broker.listener.name", "listener.security.protocol.map"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "inter.broker.listener.name",
            "only one of it",
        ),
        ("control.plane.listener.name=CONTROL", "control.plane.listener.name", "bound and advertised"),
        ("broker.rack=\\u12", "server.properties", "broken escape"),
        ("group.consumer.assignors=org.example.Mine", "group.consumer.assignors", "org.example.Mine is none of them"),
        ("group.consumer.assignors=", "group.consumer.assignors", "at least one"),
        (
            "group.consumer.session.timeout.ms=1000",
            "group.consumer.session.timeout.ms",
            "between group.consumer.min.session.timeout.ms (45000) and group.consumer.max.session.timeout.ms (60000)",
        ),
        (
            "group.consumer.max.heartbeat.interval.ms=1000",
            "group.consumer.max.heartbeat.interval.ms",
            "at least group.consumer.min.heartbeat.interval.ms (5000)",
        ),
        ("group.coordinator.rebalance.protocols=streams", "group.coordinator.rebalance.protocols", "consumer"),
    ],
)
def test_a_bad_file_is_refused_with_the_key_and_what_is_allowed(text: str, key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert key in str(caught.value)
    assert words in str(caught.value)


def test_a_secret_is_not_repeated_in_an_error_or_a_description() -> None:
    config = load("ssl.key.password=hunter2")
    description = config.describe("ssl.key.password")
    assert description.is_sensitive
    assert description.value is None
    assert all(synonym.value is None for synonym in description.synonyms)


def test_listeners_of_a_rendered_broker() -> None:
    config = load(
        "listeners=INTERNAL://:9090,CLIENT://[::]:9092\n"
        "advertised.listeners=INTERNAL://orders-broker-7-0.orders-brokers:9090,CLIENT://orders-broker-7:9092\n"
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT\n"
        "inter.broker.listener.name=INTERNAL\n"
    )
    assert config.listeners.bound == (
        Endpoint("INTERNAL", "", 9090, "PLAINTEXT"),
        Endpoint("CLIENT", "::", 9092, "PLAINTEXT"),
    )
    assert config.listeners.advertised[1] == Endpoint("CLIENT", "orders-broker-7", 9092, "PLAINTEXT")
    assert config.listeners.inter_broker == "INTERNAL"
    assert config.listeners.control_plane is None


def test_a_stray_blank_in_a_listener_is_tolerated() -> None:
    config = load("listeners=CONTROLLER: //localhost:9092\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT\n"
                  "inter.broker.listener.name=CONTROLLER")  # fmt: skip
    assert config.listeners.bound == (Endpoint("CONTROLLER", "localhost", 9092, "PLAINTEXT"),)


def test_legacy_host_and_port_make_the_listener() -> None:
    config = load("host.name=10.0.0.1\nport=9999\nadvertised.host.name=public\nadvertised.port=80")
    assert config.listeners.bound == (Endpoint("PLAINTEXT", "10.0.0.1", 9999, "PLAINTEXT"),)
    assert config.listeners.advertised == (Endpoint("PLAINTEXT", "public", 80, "PLAINTEXT"),)
    assert load("port=9999\nlisteners=PLAINTEXT://a:1").listeners.bound[0].port == 1


def test_the_zookeeper_address_with_a_chroot() -> None:
    address = load("zookeeper.connect=zk1:2182,zk2,[::1]:2183/fleets/one").zookeeper
    assert address.servers == (("zk1", 2182), ("zk2", 2181), ("::1", 2183))
    assert address.chroot == "/fleets/one"
    assert address.connect_string == "zk1:2182,zk2:2181,[::1]:2183"


def test_the_http_listener() -> None:
    assert load("ottla.http.listener=127.0.0.1:8080").http_listener == ("127.0.0.1", 8080)
    assert load("ottla.http.listener=http://:8080").http_listener == ("", 8080)
    assert load("").http_listener is None


def test_a_changed_limit_of_one_listener_is_reported() -> None:
    config = load("listener.name.plaintext.max.connections=5")
    changes: list[tuple[str, ...]] = []
    config.on_change(changes.append)
    limit = "listener.name.plaintext.max.connections"
    for stored in ({limit: "6"}, {limit: "6"}, {}):
        config.apply_dynamic({}, stored)
    assert changes == [(limit,), (limit,)]


def test_dynamic_values_win_in_order_and_are_told() -> None:
    config = load("log.retention.hours=2\nnum.io.threads=4")
    changes: list[tuple[str, ...]] = []
    config.on_change(changes.append)
    assert config.apply_dynamic({"log.retention.ms": "7"}, {"log.retention.ms": "9", "num.io.threads": "5"}) == ()
    assert changes == [("log.retention.ms", "num.io.threads")]
    assert config.topic_config({}).retention_ms == 7
    assert config.by_name["num.io.threads"] == 5
    assert config.describe("num.io.threads").source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert synonyms(config, "log.retention.ms") == (
        Synonym("log.retention.ms", "7", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("log.retention.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    )
    config.apply_dynamic({}, {})
    assert config.topic_config({}).retention_ms == 7200000
    assert changes[1:] == [("log.retention.ms", "num.io.threads")]
    config.apply_dynamic({}, {})
    assert len(changes) == 2


def test_an_unusable_stored_value_is_told_and_the_one_below_it_stays_in_force() -> None:
    config = load("num.io.threads=4")
    problems = config.apply_dynamic({"num.io.threads": "none"}, {"broker.id": "5", "compression.type": "brotli"})
    assert config.by_name["num.io.threads"] == 4
    assert config.by_name["compression.type"] == "producer"
    assert [problem.split()[-1] for problem in problems] and len(problems) == 3


@pytest.mark.parametrize("default", [False, True], ids=["of this broker", "of all brokers"])
@pytest.mark.parametrize(
    ("good", "bad", "named"),
    [
        ({"message.max.bytes": "5000"}, {"message.max.bytes": "many"}, "message.max.bytes"),
        ({"log.retention.ms": "5000"}, {"log.retention.ms": "0"}, "log.retention.ms"),
        ({"max.connections.per.ip": "7"}, {"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        (
            {"max.connections.per.ip.overrides": "127.0.0.1:7"},
            {"max.connections.per.ip.overrides": "127.0.0.1:many"},
            "max.connections.per.ip.overrides",
        ),
        ({"max.connections": "7"}, {"max.connections": "0"}, "max.connections"),
        (
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:7"},
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip",
        ),
        ({"log.cleaner.threads": "2"}, {"log.cleaner.threads": "200"}, "log.cleaner.dedupe.buffer.size"),
    ],
)
def test_stored_values_that_cannot_be_used_leave_the_old_ones_in_force(
    good: dict[str, str], bad: dict[str, str], named: str, default: bool
) -> None:
    def apply(values: dict[str, str]) -> tuple[str, ...]:
        return config.apply_dynamic({}, values) if default else config.apply_dynamic(values, {})

    config = load("")
    assert apply(good) == ()
    before = dict(config.by_name)
    (problem,) = apply(bad)
    assert named in problem
    assert dict(config.by_name) == before
    assert apply(good) == ()
    assert dict(config.by_name) == before


def test_one_unusable_stored_value_keeps_no_other_from_coming_into_force() -> None:
    config = load("")
    problems = config.apply_dynamic({"log.retention.ms": "0", "message.max.bytes": "5000"}, {"num.io.threads": "64"})
    assert len(problems) == 1
    values = config.by_name
    assert (values["message.max.bytes"], values["num.io.threads"], values["log.retention.ms"]) == (5000, 64, None)


@pytest.mark.parametrize(
    ("values", "cluster_wide", "code"),
    [
        ({"num.io.threads": "9"}, True, None),
        ({"num.io.threads": "16"}, False, None),
        ({"num.io.threads": "17"}, False, ErrorCode.INVALID_REQUEST),
        ({"num.io.threads": "3"}, True, ErrorCode.INVALID_REQUEST),
        ({"num.replica.fetchers": "0"}, False, ErrorCode.INVALID_REQUEST),
        ({"log.retention.ms": "0"}, False, ErrorCode.INVALID_REQUEST),
        ({"log.roll.ms": "0"}, True, ErrorCode.INVALID_REQUEST),
        ({"max.connections.per.ip": "0"}, True, ErrorCode.INVALID_REQUEST),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:7"}, True, None),
        ({"max.connections.per.ip.overrides": "127.0.0.1:many"}, False, ErrorCode.INVALID_REQUEST),
        ({"max.connections": "0"}, False, ErrorCode.INVALID_REQUEST),
        ({"listener.name.plaintext.max.connections": "0"}, False, ErrorCode.INVALID_REQUEST),
        ({"listener.name.plaintext.max.connections": "5"}, True, None),
        ({"listener.name.plaintext.num.network.threads": "6"}, False, None),
        ({"listener.name.plaintext.num.network.threads": "7"}, False, ErrorCode.INVALID_REQUEST),
        ({"log.cleaner.threads": "0"}, False, ErrorCode.INVALID_REQUEST),
        ({"log.cleaner.dedupe.buffer.size": "1000"}, False, ErrorCode.INVALID_REQUEST),
        ({"log.local.retention.bytes": "10", "log.retention.bytes": "5"}, False, ErrorCode.INVALID_REQUEST),
        ({"metric.reporters": "com.example.Reporter"}, False, ErrorCode.INVALID_REQUEST),
        ({"ssl.keystore.location": "/k"}, False, ErrorCode.INVALID_REQUEST),
        ({"listeners": "PLAINTEXT://localhost:0"}, False, ErrorCode.INVALID_CONFIG),
        ({"listeners": "nonsense"}, False, ErrorCode.INVALID_REQUEST),
        ({"listener.name.plaintext.num.network.threads": "0" * 5000 + "6"}, False, None),
        ({"max.connections.per.ip.overrides": f"10.0.0.1:{DIGITS}"}, True, ErrorCode.INVALID_REQUEST),
        ({"max.connections.per.ip.overrides": "10.0.0.1:2147483648"}, True, ErrorCode.INVALID_REQUEST),
        ({"max.connections.per.ip.overrides": "10.0.0.1: 0002147483647, ,clients.example:+0"}, True, None),
        ({"cordoned.log.dirs": "/nowhere"}, False, ErrorCode.INVALID_REQUEST),
        ({"ottla.log.dirs.forgotten": "*"}, False, ErrorCode.INVALID_REQUEST),
        ({"num.io.threads": "x"}, True, ErrorCode.INVALID_REQUEST),
        ({"leader.replication.throttled.rate": "9"}, False, None),
        ({"follower.replication.throttled.rate": "9"}, True, None),
        ({"leader.replication.throttled.rate": "-1"}, False, ErrorCode.INVALID_REQUEST),
        ({"broker.id": "9"}, False, ErrorCode.INVALID_REQUEST),
        ({"nobody.knows": "9"}, False, None),
        ({"nobody.knows": "9"}, True, None),
        ({"listener.name.plaintext.nobody.knows": "9"}, False, None),
        ({"listener.name.plaintext.nobody.knows": "9"}, True, ErrorCode.INVALID_REQUEST),
        ({"listeners": "PLAINTEXT://:1"}, True, ErrorCode.INVALID_REQUEST),
    ],
)
def test_dynamic_values_are_checked_before_they_are_stored(
    values: dict[str, str], cluster_wide: bool, code: ErrorCode | None
) -> None:
    config = load("")
    if code is None:
        config.check_update({}, values, cluster_wide=cluster_wide)
        return
    with pytest.raises(KafkaError) as caught:
        config.check_update({}, values, cluster_wide=cluster_wide)
    assert caught.value.code is code
    assert next(iter(values)) in caught.value.message


def test_a_deletion_that_leaves_what_does_not_fit_together_is_refused() -> None:
    stored = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:7"}
    config = load("")
    config.apply_dynamic(stored, {})
    with pytest.raises(KafkaError, match=r"max\.connections\.per\.ip"):
        config.check_update(stored, {"max.connections.per.ip": "0"}, cluster_wide=False)
    config.check_update(stored, {}, cluster_wide=False)


def test_what_is_stored_already_and_cannot_be_used_hinders_no_other_change() -> None:
    stored = {"log.retention.ms": "0", "nobody.knows": "1"}
    config = load("")
    config.apply_dynamic(stored, {})
    config.check_update(stored, {**stored, "message.max.bytes": "5000"}, cluster_wide=False)


@pytest.mark.parametrize(
    "text",
    [
        "log.dirs=/a,/b,/a",
        "log.dirs=/a,/b/../a",
        "max.connections.per.ip=0",
        "max.connections.per.ip.overrides=127.0.0.1:many",
        "log.cleaner.threads=0",
        "log.retention.bytes=5\nlog.local.retention.bytes=10",
    ],
)
def test_a_broker_does_not_start_with_what_a_dynamic_change_is_refused_for(text: str) -> None:
    with pytest.raises(ConfigError, match=text.rpartition("\n")[2].partition("=")[0]):
        load(text)


def test_a_key_that_only_a_dynamic_update_sets_has_no_default_among_its_synonyms() -> None:
    config = load("")
    config.apply_dynamic({"leader.replication.throttled.rate": "5"}, {})
    told = (Synonym("leader.replication.throttled.rate", "5", ConfigSource.DYNAMIC_BROKER_CONFIG),)
    assert synonyms(config, "leader.replication.throttled.rate") == told


def test_a_key_that_only_a_dynamic_update_sets_is_shown_as_it_was_written() -> None:
    config = load("")
    config.apply_dynamic({"leader.replication.throttled.rate": "007"}, {})
    assert config.leader_replication_throttled_rate == 7
    assert config.describe("leader.replication.throttled.rate").value == "007"


@pytest.mark.parametrize("cluster_wide", [False, True])
def test_a_limit_of_one_listener_set_dynamically_is_described(cluster_wide: bool) -> None:
    config = load("")
    stored = {"listener.name.plaintext.max.connections": "007"}
    assert config.apply_dynamic(*(({}, stored) if cluster_wide else (stored, {}))) == ()
    by_name = {description.name: description for description in config.describe_all()}
    described = by_name["listener.name.plaintext.max.connections"]
    assert described.value == "007"
    assert described.is_read_only
    assert [synonym.name for synonym in described.synonyms] == [described.name, "max.connections"]


def test_describe_tells_value_source_and_synonyms() -> None:
    config = load("num.partitions=3\nlog.retention.hours=5\nmine=1\nport=9092")
    by_name = {description.name: description for description in config.describe_all()}
    assert by_name["num.partitions"].value == "3"
    assert by_name["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert by_name["num.partitions"].is_read_only
    assert by_name["num.io.threads"].is_default and not by_name["num.io.threads"].is_read_only
    assert by_name["log.retention.ms"].value is None
    assert by_name["log.retention.ms"].synonyms == ()
    assert by_name["log.retention.hours"].synonyms[0] == Synonym(
        "log.retention.hours", "5", ConfigSource.STATIC_BROKER_CONFIG
    )
    assert by_name["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert by_name["mine"].value is None and by_name["mine"].is_sensitive
    assert "port" in by_name and "host.name" not in by_name
    assert "log.initial.task.delay.ms" not in by_name
