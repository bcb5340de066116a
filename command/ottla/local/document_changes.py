"""What a changed KafkaCluster means for a fleet that runs with another one. Pure.

a broker key that can change while a broker runs     set on every broker; its file follows
any other broker key, spec.version                   named: it needs a restart of the fleet
brokers, disks, racks, pools                         named: they need a restart of the fleet
everything that is for Kubernetes                    has no effect here, as at a start
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ottla_broker.config import find_key, is_changeable, text_when_absent
from ottla_documents.broker_pools import BrokerPool
from ottla_documents.kafka_cluster import KafkaCluster, default_broker_config
from ottla_documents.kafka_version import PROTOCOL_KEY


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key of one pool. `after`: the text to set; `shown`: both values, as a person reads them."""

    pool: str
    key: str
    after: str
    shown: str


@dataclass(frozen=True, slots=True)
class ClusterChange:
    """`dynamic`: what is set on running brokers. `restart`: what waits for a restart, a line each.

    `cluster`: what the fleet runs with from then on: the old document with the changes of `dynamic`.
    """

    dynamic: tuple[ConfigChange, ...]
    restart: tuple[str, ...]
    cluster: KafkaCluster


def decide_cluster_change(running: KafkaCluster, declared: KafkaCluster) -> ClusterChange:
    """Compares what a fleet runs with and what is declared."""
    restart = list(_structure(running, declared))
    of_name = {pool.name: pool for pool in declared.brokers.pools}
    dynamic: list[ConfigChange] = []
    pools: list[BrokerPool] = []
    for pool in running.brokers.pools:
        other = of_name.get(pool.name)
        kept = dict(pool.config)
        old_config, new_config = pool.config, pool.config if other is None else other.config
        for key in sorted({*old_config, *new_config}):
            before, after = old_config.get(key), new_config.get(key)
            if _is_same(key, before, after):
                continue
            shown = f"from {before or 'its default'} to {after or 'its default'}"
            rest = {name: text for name, text in pool.config.items() if name != key}
            text = text_when_absent(key, {**default_broker_config(running), **rest}) if after is None else after
            if text is None or not is_changeable(key, text):
                path = (other or pool).path_of("config")
                restart.append(f"{path}.{key}: {shown}")
                continue
            dynamic.append(ConfigChange(pool.name, key, text, shown))
            if after is None:
                del kept[key]
            else:
                kept[key] = after
        pools.append(replace(pool, config=kept))
    cluster = replace(running, brokers=replace(running.brokers, pools=tuple(pools)))
    return ClusterChange(tuple(dynamic), tuple(dict.fromkeys(restart)), cluster)


def _structure(running: KafkaCluster, declared: KafkaCluster) -> Iterator[str]:
    """What a start decides: which brokers there are, and what each has."""
    if running.version != declared.version:
        yield f"spec.version ({PROTOCOL_KEY}): from {running.version or 'none'} to {declared.version or 'none'}"
    before = {pool.name: pool for pool in running.brokers.pools}
    after = {pool.name: pool for pool in declared.brokers.pools}
    if before.keys() != after.keys():
        yield f"spec.brokers.pools: from {', '.join(before)} to {', '.join(after)}"
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        if old.replicas != new.replicas:
            leaves = "; what only the brokers that leave hold is gone with them" if new.replicas < old.replicas else ""
            yield f"{new.path}.replicas: from {old.replicas} to {new.replicas}{leaves}"
        old_disks, new_disks = ([disk.name for disk in pool.disks] for pool in (old, new))
        if old_disks != new_disks:
            lacks = [disk for disk in old_disks if disk not in new_disks]
            leaves = f"; what only {', '.join(lacks)} holds is gone with it" if lacks else ""
            yield f"{new.path_of('disks')}: from {', '.join(old_disks)} to {', '.join(new_disks)}{leaves}"
        if old.racks != new.racks:
            yield f"{new.path_of('racks')}: from {_names(old.racks)} to {_names(new.racks)}"


def _names(racks: Iterable[str]) -> str:
    return ", ".join(racks) or "none"


def _is_same(key: str, before: str | None, after: str | None) -> bool:
    if before is None or after is None:
        return before == after
    config_key = find_key(key)
    return config_key is not None and bool(config_key.parse(before) == config_key.parse(after))


def changes_by_pool(changes: Iterable[ConfigChange]) -> Mapping[str, dict[str, str]]:
    """The texts to set, by the name of the pool."""
    found: dict[str, dict[str, str]] = {}
    for change in changes:
        found.setdefault(change.pool, {})[change.key] = change.after
    return found


def without_refused(change: ClusterChange, running: KafkaCluster, refused: Collection[tuple[str, str]]) -> KafkaCluster:
    """What the fleet runs with when brokers have refused some keys, each as (pool, key): those stay as they were."""
    before = {pool.name: pool.config for pool in running.brokers.pools}
    pools = []
    for pool in change.cluster.brokers.pools:
        kept = {key: text for key, text in pool.config.items() if (pool.name, key) not in refused}
        kept |= {key: text for key, text in before[pool.name].items() if (pool.name, key) in refused}
        pools.append(replace(pool, config=kept))
    return replace(change.cluster, brokers=replace(change.cluster.brokers, pools=tuple(pools)))
