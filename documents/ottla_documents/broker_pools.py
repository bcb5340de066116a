"""spec.brokers.pools: groups of brokers that differ in disks, racks, resources, configuration or pods.

Without `pools` all brokers are of one pool, `main`, which is what spec.brokers says. With pools those fields are the
defaults of every pool. A broker is of the pool that is recorded for it: a pool that the document no longer names loses
its brokers. Only brokers of `main`, which every cluster without pools has, take the places that pools lack
(`pools_of`), so a cluster that gets pools keeps its brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ottla_documents.broker_config import broker_value_problem
from ottla_documents.disk_spec import DiskSpec, parse_broker_disk
from ottla_documents.fields import LABEL_FORM, Fields
from ottla_documents.kafka_version import PROTOCOL_KEY
from ottla_documents.overrides import HIGHEST_BROKER_ID
from ottla_documents.resources import Resources, parse_resources
from ottla_documents.secret_keys import without_secrets
from ottla_documents.templates import NO_TEMPLATE, Template, parse_template

MAIN_POOL = "main"
POOL_NAME = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
POOL_NAME_LENGTH = 40
MOST_BROKERS = 1000
OWNED_KEYS = (
    "broker.id",
    "broker.rack",
    "log.dir",
    "log.dirs",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "control.plane.listener.name",
    "zookeeper.connect",
    "ottla.http.listener",
    "ottla.log.dirs.format",
    PROTOCOL_KEY,
)
"""Broker keys that the operator sets; `config` must not have them."""
OWNED_INSTEAD = {PROTOCOL_KEY: "spec.version"}
"""The field that decides about a key that the operator sets, where there is one."""
_INHERITED = ("disks", "racks", "resources", "config")
_TEMPLATES = ("pod", "service", "persistentVolumeClaim")
DEFAULTED = (*_INHERITED[1:], *(f"template.{part}" for part in _TEMPLATES))
"""The fields of spec.brokers that have a value for every pool even when nobody writes them."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """Broker ids from `first` to `last`."""

    first: int
    last: int

    def __contains__(self, broker_id: int) -> bool:
        return self.first <= broker_id <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class BrokerPool:
    """Everything that is declared of the brokers of one pool.

    `path`: of the mapping that declares it. `written`: by the name of a field, the path where its value is written;
    fields with a default are not there.
    """

    name: str
    replicas: int
    disks: tuple[DiskSpec, ...]
    config: Mapping[str, str]
    resources: Resources
    racks: tuple[str, ...] = ()
    template: Template = NO_TEMPLATE
    id_range: IdRange | None = None
    """Of new brokers; None for the lowest ids that no range of another pool has."""
    path: str = "spec.brokers"
    written: Mapping[str, str] = field(default_factory=dict)

    def path_of(self, name: str) -> str:
        """The path of a field as a user writes it, such as "spec.brokers.pools[1].disks"."""
        return self.written.get(name, f"{self.path}.{name}")


_SUITS: tuple[Callable[[BrokerPool, int], bool], ...] = (
    lambda pool, number: pool.id_range is not None and number in pool.id_range,
    lambda pool, number: pool.id_range is None,
    lambda pool, number: True,
)
"""Which pools a broker of `main` may join, the first kind first."""


def pools_of(pools: Sequence[BrokerPool], recorded: Mapping[int, str], *, has_pools: bool) -> dict[int, BrokerPool]:
    """The pool of each broker that belongs to one of `pools`.

    Args:
        recorded: the name of the pool by broker id.
        has_pools: whether the document names pools; without them every broker is of the only one.

    Brokers of `main`, where no pool has this name, take the places that pools lack, the lowest ids first: those whose
    idRange has the id, then pools without idRange in their order, then the others.

    >>> from ottla_documents.resources import Resources
    >>> a, b = (BrokerPool(name, 2, (), {}, Resources({}, {})) for name in "ab")
    >>> found = pools_of([a, b], {0: "main", 1: "main", 2: "main", 7: "b", 8: "old"}, has_pools=True)
    >>> {number: pool.name for number, pool in found.items()}
    {0: 'a', 1: 'a', 2: 'b', 7: 'b'}
    """
    if not has_pools:
        return dict.fromkeys(sorted(recorded), pools[0])
    by_name = {pool.name: pool for pool in pools}
    found = {number: by_name[name] for number, name in recorded.items() if name in by_name}
    if MAIN_POOL not in by_name:
        lacks = missing(pools, found)
        free = sorted(number for number, name in recorded.items() if name == MAIN_POOL)
        for suits in _SUITS:
            for number in [number for number in free if number not in found]:
                taken = next((pool for pool in pools if lacks.get(pool.name) and suits(pool, number)), None)
                if taken is not None:
                    found[number] = taken
                    lacks[taken.name] -= 1
    return dict(sorted(found.items()))


def missing(pools: Iterable[BrokerPool], members: Mapping[int, BrokerPool]) -> dict[str, int]:
    """How many brokers each pool lacks, by its name; only pools that lack any."""
    counts = dict.fromkeys((pool.name for pool in pools), 0)
    for pool in members.values():
        counts[pool.name] = counts.get(pool.name, 0) + 1
    return {pool.name: pool.replicas - counts[pool.name] for pool in pools if pool.replicas > counts[pool.name]}


def surplus(members: Mapping[int, BrokerPool], known: Iterable[int]) -> tuple[int, ...]:
    """The brokers to remove, the highest id first: what a pool has too many, and those of no pool."""
    found = [number for number in known if number not in members]
    for pool in {pool.name: pool for pool in members.values()}.values():
        mine = sorted(number for number, other in members.items() if other.name == pool.name)
        found += mine[pool.replicas :]
    return tuple(sorted(found, reverse=True))


def free_ids(pool: BrokerPool, pools: Iterable[BrokerPool], used: Iterable[int], count: int) -> list[int]:
    """The `count` lowest ids for new brokers of a pool; fewer when its range has no more.

    >>> from ottla_documents.resources import Resources
    >>> a = BrokerPool("a", 2, (), {}, Resources({}, {}))
    >>> b = replace(a, name="b", id_range=IdRange(1, 3))
    >>> free_ids(a, [a, b], [0], 2), free_ids(b, [a, b], [2], 3)
    ([4, 5], [1, 3])
    """
    taken = set(used)
    others = [other.id_range for other in pools if other.name != pool.name and other.id_range is not None]
    first, last = (0, HIGHEST_BROKER_ID) if pool.id_range is None else (pool.id_range.first, pool.id_range.last)
    found: list[int] = []
    candidate = first
    while len(found) < count and candidate <= last:
        reserved = next((one for one in others if candidate in one), None) if pool.id_range is None else None
        if reserved is not None:
            candidate = reserved.last
        elif candidate not in taken:
            found.append(candidate)
        candidate += 1
    return found


def parse_pools(brokers: Fields, main: BrokerPool) -> tuple[BrokerPool, ...]:
    """Reads `pools` below spec.brokers.

    Args:
        main: what spec.brokers says, the only pool where it names none.

    Returns:
        The pools with distinct names, in their order; none where `pools` is written and names none, so that a broker
        is not taken for one of `main`.
    """
    if not brokers.has("pools"):
        return (main,)
    if brokers.has("replicas"):
        brokers.problem("replicas", "does not go with pools: each pool has its own replicas")
    known = len(brokers.problems)
    found: dict[str, BrokerPool] = {}
    items: list[tuple[Fields, BrokerPool]] = []
    for item in brokers.items("pools"):
        pool = _parse_pool(item, main)
        if pool.name in found:
            item.problem("name", f"{pool.name!r} names two pools")
        elif pool.name:
            found[pool.name] = pool
        items.append((item, pool))
    _check_ranges(items)
    count = sum(pool.replicas for _, pool in items)
    if brokers.values.get("pools") == []:
        brokers.problem("pools", "must name at least one pool")
    elif items and not count and len(brokers.problems) == known:
        brokers.problem("pools", "have no broker: one of them needs replicas")
    elif count > MOST_BROKERS:
        brokers.problem("pools", f"have {count} brokers, more than {MOST_BROKERS}")
    return tuple(found.values())


def _parse_pool(item: Fields, main: BrokerPool) -> BrokerPool:
    name = item.text("name", None, pattern=POOL_NAME, form=LABEL_FORM)
    if len(name) > POOL_NAME_LENGTH:
        item.problem("name", f"is longer than {POOL_NAME_LENGTH} characters")
    replicas = item.whole("replicas", None, lowest=0, highest=MOST_BROKERS)
    own = parse_template(item, has_bootstrap=False)
    declared = item.values.get("template")
    written = {f"template.{part}" for part in _TEMPLATES if isinstance(declared, Mapping) and declared.get(part)}
    written |= {part for part in _INHERITED if item.has(part)}
    template = replace(
        main.template,
        pod=own.pod if "template.pod" in written else main.template.pod,
        service=own.service if "template.service" in written else main.template.service,
        claim=own.claim if "template.persistentVolumeClaim" in written else main.template.claim,
    )
    pool = BrokerPool(
        name,
        replicas,
        disks=parse_disks(item) if "disks" in written else main.disks,
        config={**main.config, **parse_broker_config(item)},
        resources=parse_resources(item, main.resources),
        racks=item.texts("racks") if "racks" in written else main.racks,
        template=template,
        id_range=_parse_range(item, replicas),
        path=item.path,
        written={**main.written, **{part: f"{item.path}.{part}" for part in written}},
    )
    item.finish()
    return pool


def parse_disks(fields: Fields) -> tuple[DiskSpec, ...]:
    """The disks below spec.brokers or a pool; one with the name d0 where there is none."""
    disks: list[DiskSpec] = []
    for item in fields.items("disks"):
        disk = parse_broker_disk(item)
        if any(disk.name == other.name for other in disks):
            item.problem("name", f"{disk.name!r} names two disks")
        disks.append(disk)
    if fields.has("disks") and not disks:
        fields.problem("disks", "must name at least one disk")
    return tuple(disks) or (DiskSpec("d0"),)


def parse_broker_config(fields: Fields) -> dict[str, str]:
    """Broker keys that are known, that the operator does not set, and that are no secrets, with values that brokers
    take."""
    config = without_secrets(fields, fields.config(), f"{fields.path}.configSecrets")
    for key, value in config.items():
        if key in OWNED_KEYS:
            instead = f"; write {OWNED_INSTEAD[key]}" if key in OWNED_INSTEAD else ""
            fields.problem(f"config.{key}", f"is set by the operator; it cannot be set here{instead}")
        elif wrong := broker_value_problem(key, value):
            fields.problem(f"config.{key}", wrong)
    return config


def _parse_range(item: Fields, replicas: int) -> IdRange | None:
    if not item.has("idRange"):
        return None
    known = len(item.problems)
    child = item.child("idRange")
    found = IdRange(
        child.whole("first", lowest=0, highest=HIGHEST_BROKER_ID),
        child.whole("last", lowest=0, highest=HIGHEST_BROKER_ID),
    )
    child.finish()
    if len(item.problems) > known:
        return None
    if found.last < found.first:
        child.problem("last", f"{found.last} is less than first, {found.first}")
        return None
    if len(found) < replicas:
        item.problem("idRange", f"has {len(found)} ids for {replicas} brokers")
    return found


def _check_ranges(items: Sequence[tuple[Fields, BrokerPool]]) -> None:
    for place, (item, pool) in enumerate(items):
        for _, other in items[:place]:
            one, two = pool.id_range, other.id_range
            if one is not None and two is not None and one.first <= two.last and two.first <= one.last:
                item.problem("idRange", f"overlaps that of pool {other.name}, {two.first} to {two.last}")
