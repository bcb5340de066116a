"""server.properties of each broker, in an immutable ConfigMap with a hash of the text in its name.

A change of the configuration is a new ConfigMap, which the broker's template names after its next restart. ConfigMaps
that no template and no pod names are deleted, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla_broker.config import BrokerConfig, ConfigError
from ottla_broker.config.properties import format_properties
from ottla_operator.api import names
from ottla_operator.api.condition_reasons import CONFIG_VALID
from ottla_operator.api.conditions import Condition, condition_false, condition_true, invalid_spec
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
from ottla_operator.model.kafka_cluster import KafkaCluster, default_broker_config
from ottla_operator.planning.broker_claims import log_dir
from ottla_operator.planning.snapshot import ConcernDecision, Deletion, Snapshot
from ottla_operator.planning.zookeeper_files import connect_string

INTERNAL_PORT = 9091
CLIENT_PORT = 9092
HTTP_PORT = 8080
SESSION_TIMEOUT_MS = 6000
"""zookeeper.session.timeout.ms unless the document sets it: how long a crashed broker stays leader."""
SERVE_MS = 5000
"""ottla.shutdown.serve.ms unless the document sets it: longer than a broker's Service needs to drop a pod
that is not ready any more (`planning.brokers`), so no client is sent to one (docs/internals/decisions/0030)."""
FILE = "server.properties"
CONFIG_FIELDS = ("spec.brokers.config", "spec.version")


@dataclass(frozen=True, slots=True)
class ConfigDecision:
    """`names`: the ConfigMap of each broker, by id; empty while the configuration is not valid.

    `without_effect`: the ConfigMap that a broker has now, where the new one differs from it only in keys with a dynamic
    value in effect, so that a restart would change nothing.
    """

    decision: ConcernDecision
    names: Mapping[int, str]
    without_effect: Mapping[int, str] = field(default_factory=dict)


def internal_address(cluster: KafkaCluster, broker_id: int) -> str:
    """The address for brokers and the operator: the broker's pod, ready or not."""
    pod = names.pod_of(names.broker_name(cluster.name, broker_id))
    return f"{names.host(f'{pod}.{names.brokers_service(cluster.name)}', cluster.namespace)}:{INTERNAL_PORT}"


def client_address(cluster: KafkaCluster, broker_id: int) -> str:
    """The address that the broker advertises to clients: its own Service, whose address outlives the pod."""
    return f"{names.host(names.broker_name(cluster.name, broker_id), cluster.namespace)}:{CLIENT_PORT}"


def broker_properties(cluster: KafkaCluster, broker_id: int, rack: str) -> dict[str, str]:
    """The configuration of one broker, without the permission to format, which changes without a restart."""
    return {
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "ottla.shutdown.serve.ms": str(SERVE_MS),
        **default_broker_config(cluster),
        **cluster.brokers.config,
        "broker.id": str(broker_id),
        "broker.rack": rack,
        "log.dirs": ",".join(log_dir(disk.name) for disk in cluster.brokers.disks),
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


def decide_config(snapshot: Snapshot, racks: Mapping[int, str]) -> ConfigDecision:
    """The ConfigMap of each broker, and ConfigValid. When the configuration is not valid the brokers keep theirs."""
    cluster = snapshot.cluster
    if wrong := snapshot.problems_below(*CONFIG_FIELDS):
        return ConfigDecision(ConcernDecision((invalid_spec(CONFIG_VALID, wrong),)), {})
    # Brokers leave one at a time, so defaults follow the larger number.
    count = max(cluster.brokers.replicas, len(racks))
    cluster = replace(cluster, brokers=replace(cluster.brokers, replicas=count))
    wanted: dict[int, str] = {}
    desired: list[Obj] = []
    overridden: list[DynamicOverride] = []
    without_effect: dict[int, str] = {}
    for broker_id, rack in racks.items():
        properties = broker_properties(cluster, broker_id, rack)
        text = properties_text(properties)
        try:
            BrokerConfig.from_properties(text)
        except ConfigError as error:
            path = "spec.zookeeper.connect" if "zookeeper.connect" in str(error) else "spec.brokers.config"
            return ConfigDecision(
                ConcernDecision((condition_false(CONFIG_VALID, "InvalidSpec", f"{path}: {error}"),)), {}
            )
        name = f"{names.broker_name(cluster.name, broker_id)}-{short_hash(text)}"
        labels = names.labels(cluster.name, names.BROKER, pool=names.MAIN_POOL, broker_id=str(broker_id))
        config_map = new(CONFIG_MAP, cluster.namespace, name, labels, immutable=True, data={FILE: text})
        desired.append(owned(config_map, snapshot.resource))
        wanted[broker_id] = name
        mine = _overrides(snapshot, broker_id, properties)
        overridden += mine
        if (kept := _differs_only_in(snapshot, broker_id, text, {one.key for one in mine})) is not None:
            without_effect[broker_id] = kept
    condition = _override_condition(snapshot, overridden)
    decision = ConcernDecision((condition,), tuple(desired), delete=_outdated(snapshot, wanted))
    return ConfigDecision(decision, wanted, without_effect)


@dataclass(frozen=True, slots=True)
class DynamicOverride:
    """A dynamic value in effect in place of a declared one. `entity`: the options of kafka-configs that name it."""

    broker_id: int
    key: str
    declared: str
    value: str | None
    entity: str


def _overrides(snapshot: Snapshot, broker_id: int, properties: Mapping[str, str]) -> list[DynamicOverride]:
    """The declared keys that have another value in effect on a broker."""
    found = []
    for dynamic in (snapshot.dynamic_values or {}).get(broker_id, ()):
        declared = properties.get(dynamic.key)
        if declared is None or _is_same(properties, dynamic.key, dynamic.value):
            continue
        entity = "--entity-default" if dynamic.is_default else f"--entity-name {broker_id}"
        found.append(DynamicOverride(broker_id, dynamic.key, declared, dynamic.value, entity))
    return found


def _is_same(properties: Mapping[str, str], key: str, value: str | None) -> bool:
    """Whether a value equals the declared one, however it is written."""
    if value is None or value == properties[key]:
        return value is not None
    try:
        declared, dynamic = (BrokerConfig.from_mapping({**properties, key: text}) for text in (properties[key], value))
        return declared.has_same_value(key, dynamic)
    except ConfigError:
        return False


def _differs_only_in(snapshot: Snapshot, broker_id: int, text: str, keys: set[str]) -> str | None:
    """The ConfigMap that a broker's template names, if the new text differs from it in these keys only."""
    live = snapshot.own(STATEFUL_SET, names.broker_name(snapshot.cluster.name, broker_id))
    name = annotation(dig(live, "spec", "template") or {}, names.CONFIG)
    before = dig(snapshot.get(CONFIG_MAP, name), "data", FILE) if name is not None else None
    if not isinstance(before, str):
        return None
    changed = {line.partition("=")[0] for line in set(before.splitlines()) ^ set(text.splitlines())}
    return name if changed and changed <= keys else None


def _override_condition(snapshot: Snapshot, overridden: Iterable[DynamicOverride]) -> Condition:
    """ConfigValid, with the command that removes each override. The operator removes none: a person has set it."""
    if snapshot.dynamic_values is None:  # no broker has answered since this operator started
        for item in snapshot.status("conditions") or []:
            if (item.get("type"), item.get("reason")) == (CONFIG_VALID, "DynamicOverride"):
                return condition_false(CONFIG_VALID, "DynamicOverride", str(item.get("message", "")))
    brokers: dict[tuple[str, str], list[DynamicOverride]] = {}
    for one in overridden:
        brokers.setdefault((one.key, one.entity), []).append(one)
    if not brokers:
        return condition_true(CONFIG_VALID)
    service = names.host(names.bootstrap_service(snapshot.cluster.name), snapshot.cluster.namespace)
    texts = []
    for (key, entity), ones in brokers.items():
        ids = ", ".join(str(one.broker_id) for one in ones)
        value = "a secret value" if ones[0].value is None else ones[0].value
        texts.append(
            f"broker {ids}: {key} is {value}, set by kafka-configs, and not {ones[0].declared} as declared; remove it "
            f"with kafka-configs --bootstrap-server {service}:{CLIENT_PORT} --alter --entity-type brokers {entity} "
            f"--delete-config {key}"
        )
    return condition_false(CONFIG_VALID, "DynamicOverride", "; ".join(texts))


def _outdated(snapshot: Snapshot, wanted: Mapping[int, str]) -> Deletion | None:
    """A ConfigMap of a broker that no template and no pod names and that is not wanted."""
    used = set(wanted.values())
    numbers = {str(broker_id) for broker_id in wanted}
    for kind, path in ((STATEFUL_SET, ("spec", "template")), (POD, ())):
        for obj in snapshot.all(kind):
            used.add(annotation(dig(obj, *path) if path else obj, names.CONFIG) or "")
    for config_map in snapshot.all(CONFIG_MAP):
        number = label(config_map, names.BROKER_ID)
        if config_map.get("immutable") is not True or number not in numbers:
            continue
        if name_of(config_map) not in used:
            return Deletion(CONFIG_MAP, name_of(config_map), uid_of(config_map), "no broker uses this configuration")
    return None
