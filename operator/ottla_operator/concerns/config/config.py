"""server.properties of each broker, in a ConfigMap with a hash of what needs a restart in its name.

A change that needs a restart is a new ConfigMap, which the broker's template names after its next restart. Keys that
can change while a broker runs are not in the hash: the broker gets them as dynamic values (`concerns.config`),
and the ConfigMap that it has is changed in place, for its next start, once it runs with them. So a value that a broker
refuses is in no file that it could start with, but for one of a roll, which stops at the first batch. ConfigMaps that
no template and no pod names are deleted, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ottla_broker.config import BrokerConfig, ConfigError
from ottla_broker.config.properties import format_properties, parse_properties
from ottla_documents.broker_pools import BrokerPool
from ottla_documents.kafka_cluster import KafkaCluster, default_broker_config
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import CONFIG_VALID
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
from ottla_operator.api.names import CLIENT_PORT, HTTP_PORT, INTERNAL_PORT
from ottla_operator.api.objects import (
    CONFIG_MAP,
    POD,
    STATEFUL_SET,
    Obj,
    annotation,
    dig,
    label,
    name_of,
    new,
    owned,
    short_hash,
    uid_of,
)
from ottla_operator.concerns.config.dynamic_config import (
    SHOWN,
    DynamicConfigDecision,
    decide_dynamic_config,
    dynamic_condition,
    is_in_effect,
    needs_no_restart,
)
from ottla_operator.concerns.config.observation import NO_CONFIG_WRITES, ConfigWrites
from ottla_operator.concerns.ensemble.zookeeper_files import connect_string
from ottla_operator.facts.broker_claims import log_dir
from ottla_operator.facts.snapshot import ConcernDecision, Deletion, Snapshot

SESSION_TIMEOUT_MS = 6000
"""zookeeper.session.timeout.ms unless the document sets it: how long a crashed broker stays leader."""
SERVE_MS = 5000
"""ottla.shutdown.serve.ms unless the document sets it: longer than a broker's Service needs to drop a pod
that is not ready any more (`concerns.brokers.brokers`), so no client is sent to one (docs/internals/decisions/0030)."""
FILE = "server.properties"
CONFIG_FIELDS = ("spec.brokers.config", "spec.brokers.unmanagedConfig", "spec.version")
DYNAMIC_REASONS = ("DynamicRefused", "ChangedByOthers", "DynamicOverride", "DynamicPending")


@dataclass(frozen=True, slots=True)
class ConfigDecision:
    """`names`: the ConfigMap of each broker, by id; empty while the configuration is not valid."""

    decision: ConcernDecision
    names: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class DeclaredConfig:
    """`properties`: the configuration of each broker; empty, and the condition, while it is not valid."""

    properties: Mapping[int, Mapping[str, str]]
    condition: Condition | None = None


def internal_address(cluster: KafkaCluster, broker_id: int) -> str:
    """The address for brokers and the operator: the broker's pod, ready or not."""
    pod = names.pod_of(names.broker_name(cluster.name, broker_id))
    return f"{names.host(f'{pod}.{names.brokers_service(cluster.name)}', cluster.namespace)}:{INTERNAL_PORT}"


def client_address(cluster: KafkaCluster, broker_id: int) -> str:
    """The address that the broker advertises to clients: its own Service, whose address outlives the pod."""
    return f"{names.host(names.broker_name(cluster.name, broker_id), cluster.namespace)}:{CLIENT_PORT}"


def broker_properties(
    cluster: KafkaCluster, pool: BrokerPool, broker_id: int, rack: str, brokers: int
) -> dict[str, str]:
    """The configuration of one broker, without the permission to format, which changes without a restart.

    Args:
        brokers: how many there are.
    """
    return {
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "ottla.shutdown.serve.ms": str(SERVE_MS),
        **default_broker_config(cluster, brokers),
        **pool.config,
        "broker.id": str(broker_id),
        "broker.rack": rack,
        "log.dirs": ",".join(log_dir(disk.name) for disk in pool.disks),
        "listeners": f"INTERNAL://0.0.0.0:{INTERNAL_PORT},CLIENT://0.0.0.0:{CLIENT_PORT}",
        "advertised.listeners": (
            f"INTERNAL://{internal_address(cluster, broker_id)},CLIENT://{client_address(cluster, broker_id)}"
        ),
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "ottla.http.listener": f"0.0.0.0:{HTTP_PORT}",
        "zookeeper.connect": connect_string(cluster),
    }


def properties_text(config: Mapping[str, str]) -> str:
    """The text of server.properties, in a fixed order: its hash names the ConfigMap.

    >>> properties_text({"b": "x", "a": "1"})
    'a=1\\nb=x\\n'
    """
    return format_properties({key: config[key] for key in sorted(config)})


def declare_config(snapshot: Snapshot, racks: Mapping[int, str]) -> DeclaredConfig:
    """The configuration that each broker should have; of a broker whose pool is not named, nothing."""
    cluster = snapshot.cluster
    if wrong := snapshot.problems_below(*CONFIG_FIELDS):
        return DeclaredConfig({}, invalid_spec(CONFIG_VALID, wrong))
    # Brokers leave one at a time, so defaults follow the larger number.
    count = max(cluster.brokers.replicas, len(racks))
    declared: dict[int, Mapping[str, str]] = {}
    for broker_id, rack in racks.items():
        pool = snapshot.pools.get(broker_id)
        if pool is None:
            continue  # it keeps what it has until it is removed
        declared[broker_id] = broker_properties(cluster, pool, broker_id, rack, count)
        if error := _why_invalid(properties_text(declared[broker_id])):
            path = "spec.zookeeper.connect" if "zookeeper.connect" in error else pool.path_of("config")
            return DeclaredConfig({}, condition_false(CONFIG_VALID, "InvalidSpec", f"{path}: {error}"))
    return DeclaredConfig(declared)


@lru_cache(maxsize=1024)
def _why_invalid(text: str) -> str:
    """Why a broker would not start with this file; "" when it would. Nothing changes at rest, so answers are kept."""
    try:
        BrokerConfig.from_properties(text)
    except ConfigError as error:
        return str(error)
    return ""


def decide_dynamic(snapshot: Snapshot) -> DynamicConfigDecision:
    """The dynamic values to set and to remove; nothing while the configuration is not valid."""
    racks = {number: rack or "" for number, rack in snapshot.broker_racks.items()}
    declared = declare_config(snapshot, racks).properties
    written = {number: _written(snapshot, _named(snapshot, number)) for number in declared}
    return decide_dynamic_config(snapshot, declared, written)


def decide_config(
    snapshot: Snapshot, racks: Mapping[int, str], writes: ConfigWrites = NO_CONFIG_WRITES
) -> ConfigDecision:
    """The ConfigMap of each broker, and ConfigValid. When the configuration is not valid the brokers keep theirs."""
    cluster = snapshot.cluster
    declared = declare_config(snapshot, racks)
    if declared.condition is not None:
        return ConfigDecision(ConcernDecision((declared.condition,)), {})
    config_maps: dict[int, str] = {}
    desired: list[Obj] = []
    for broker_id, properties in declared.properties.items():
        restart = {key: value for key, value in properties.items() if not needs_no_restart(key, value)}
        name = f"{names.broker_name(cluster.name, broker_id)}-{short_hash(properties_text(restart))}"
        text = properties_text(_for_the_next_start(snapshot, broker_id, properties, _written(snapshot, name)))
        labels = names.labels(cluster.name, names.BROKER, pool=snapshot.pool_names[broker_id], broker_id=str(broker_id))
        desired.append(owned(new(CONFIG_MAP, cluster.namespace, name, labels, data={FILE: text}), snapshot.resource))
        config_maps[broker_id] = name
    condition = _refused_stores(snapshot) or _dynamic_condition(snapshot, writes) or condition_true(CONFIG_VALID)
    decision = ConcernDecision((condition,), tuple(desired), delete=_outdated(snapshot, config_maps))
    return ConfigDecision(decision, config_maps)


def _refused_stores(snapshot: Snapshot) -> Condition | None:
    """What brokers say of stores that they cannot use, those with the same reason together."""
    brokers: dict[str, list[int]] = {}
    for broker_id, report in sorted(snapshot.reports.items()):
        for reason in report.refused_stores:
            brokers.setdefault(reason, []).append(broker_id)
    if not brokers:
        return None
    told = [f"{', '.join(map(str, ids))}: {reason}" for reason, ids in list(brokers.items())[:SHOWN]]
    return condition_false(CONFIG_VALID, "StoreRefused", f"brokers keep what a store held before; {'; '.join(told)}")


def _dynamic_condition(snapshot: Snapshot, writes: ConfigWrites) -> Condition | None:
    """What is not as declared on brokers. While none has answered since this operator started: what status says."""
    if snapshot.broker_values is None:
        for item in snapshot.status("conditions") or []:
            reason = str(item.get("reason"))
            if item.get("type") == CONFIG_VALID and reason in DYNAMIC_REASONS:
                return condition_false(CONFIG_VALID, reason, str(item.get("message", "")))
    return dynamic_condition(writes, decide_dynamic(snapshot))


def _for_the_next_start(
    snapshot: Snapshot, broker_id: int, properties: Mapping[str, str], written: Mapping[str, str]
) -> dict[str, str]:
    """The file of a broker: a dynamic key stays as it is written until the broker runs with the declared value."""
    text = dict(properties)
    for key in {*properties, *written} if written else ():
        one, other = properties.get(key), written.get(key)
        changes_in_place = all(needs_no_restart(key, value) for value in (one, other) if value is not None)
        if one == other or not changes_in_place or is_in_effect(snapshot, broker_id, key, properties):
            continue
        if other is not None:
            text[key] = other
        else:
            text.pop(key)
    return text


def _written(snapshot: Snapshot, name: str) -> Mapping[str, str]:
    """The keys in a ConfigMap of a broker; none where there is no such ConfigMap."""
    text = dig(snapshot.own(CONFIG_MAP, name), "data", FILE)
    return _parsed(text) if isinstance(text, str) else {}


@lru_cache(maxsize=512)
def _parsed(text: str) -> Mapping[str, str]:
    """What a file says; nothing when it cannot be read. Each pass asks for the files of all brokers."""
    try:
        return parse_properties(text)
    except ValueError:
        return {}


def _named(snapshot: Snapshot, broker_id: int) -> str:
    """The ConfigMap that a broker's template names."""
    live = snapshot.own(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    return annotation(dig(live, "spec", "template") or {}, names.CONFIG) or ""


def _outdated(snapshot: Snapshot, config_maps: Mapping[int, str]) -> Deletion | None:
    """A ConfigMap of a broker that no template and no pod names and that is not wanted."""
    used = set(config_maps.values())
    numbers = {str(broker_id) for broker_id in config_maps}
    for kind, path in ((STATEFUL_SET, ("spec", "template")), (POD, ())):
        for obj in snapshot.all(kind):
            used.add(annotation(dig(obj, *path) if path else obj, names.CONFIG) or "")
    for config_map in snapshot.all(CONFIG_MAP):
        number = label(config_map, names.BROKER_ID)
        if dig(config_map, "data", FILE) is None or number not in numbers:
            continue
        if name_of(config_map) not in used:
            return Deletion(CONFIG_MAP, name_of(config_map), uid_of(config_map), "no broker uses this configuration")
    return None
