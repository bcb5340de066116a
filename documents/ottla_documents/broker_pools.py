"""spec.brokers.pools: groups of brokers that differ in disks, racks, resources, configuration or pods.

Without `pools` all brokers are of one pool, `main`, which is what spec.brokers says. With pools those fields are the
defaults of every pool. A broker is of the pool that is recorded for it: a pool that the document no longer names loses
its brokers. Only brokers of `main`, which every cluster without pools has, take the places that pools lack
(`pools_of`), so a cluster that gets pools keeps its brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from ottla_documents.broker_config import broker_value_problem
from ottla_documents.disk_spec import Disks, DiskSpec
from ottla_documents.field_types import LABEL, LABEL_FORM, LABEL_VALUE, Config
from ottla_documents.kafka_version import PROTOCOL_KEY
from ottla_documents.overrides import HIGHEST_BROKER_ID, BrokerId
from ottla_documents.resources import Resources
from ottla_documents.schema.marks import Items, OnlyRight, Problem, Text, WholeNumber
from ottla_documents.secret_keys import without_secrets
from ottla_documents.templates import NO_POOL_TEMPLATE, NO_TEMPLATE, PoolTemplateDocument, Template

MAIN_POOL = "main"
MOST_BROKERS = 1000
Rack: TypeAlias = Annotated[str, Text(LABEL_VALUE, "a value of a label, such as eu-1a", most=63)]
Racks: TypeAlias = Annotated[tuple[Rack, ...], Items(most=64)]
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
DEFAULTED = ("racks", "resources", "config", "template.pod", "template.service", "template.persistentVolumeClaim")
"""The fields of spec.brokers that have a value for every pool even when nobody writes them."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids that new brokers of the pool get; no other pool gets one of them. Ranges must not overlap. A broker keeps
    its id. Default: the lowest ids that no range has."""

    first: BrokerId
    """The lowest id."""
    last: BrokerId
    """The highest id."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.last < self.first:
            yield "last", f"{self.last} is less than first, {self.first}"

    def __contains__(self, broker_id: int) -> bool:
        return self.first <= broker_id <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class PoolDocument:
    """A pool as it is written. What it does not have, it has from spec.brokers."""

    name: Annotated[str, Text(LABEL, LABEL_FORM, most=40)]
    """The name of the pool. Another name is another pool, whose brokers are created. The brokers of a cluster that had
    no pools are in a pool of the name main, where there is one."""
    replicas: Annotated[int, WholeNumber(0, MOST_BROKERS)]
    """The number of brokers of the pool, 0 to empty it. A smaller number removes the brokers of the pool with the
    highest ids, one at a time, each once it holds no replica."""
    id_range: Annotated[IdRange | None, OnlyRight()] = None
    racks: Racks | None = None
    """The racks that new brokers of the pool are placed in, as spec.brokers.racks."""
    disks: Disks | None = None
    """The log directories of the brokers of the pool, as spec.brokers.disks."""
    resources: Resources | None = None
    """CPU and memory of the container of every broker of the pool, as spec.brokers.resources."""
    config: Config | None = None
    """Broker configuration of the pool. A key replaces the same key of spec.brokers.config. A change restarts the
    brokers of the pool in batches."""
    template: PoolTemplateDocument = NO_POOL_TEMPLATE

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.id_range is not None and len(self.id_range) < self.replicas:
            yield "idRange", f"has {len(self.id_range)} ids for {self.replicas} brokers"

    def written(self) -> frozenset[str]:
        """The fields that are written of those that spec.brokers has too, by their names in the document."""
        parts = {"racks": self.racks, "disks": self.disks, "resources": self.resources, "config": self.config}
        found = {name for name, part in parts.items() if part is not None}
        return frozenset(found | {f"template.{part}" for part in self.template.written()})


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
    """The ids of new brokers; None: the lowest ids that no range of another pool has."""
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


def surplus(members: Mapping[int, BrokerPool], broker_ids: Iterable[int]) -> tuple[int, ...]:
    """The brokers to remove, the highest id first: what a pool has too many, and those of no pool."""
    found = [number for number in broker_ids if number not in members]
    for pool in {pool.name: pool for pool in members.values()}.values():
        mine = sorted(number for number, other in members.items() if other.name == pool.name)
        found += mine[pool.replicas :]
    return tuple(sorted(found, reverse=True))


def free_ids(pool: BrokerPool, pools: Iterable[BrokerPool], used: Iterable[int], count: int) -> list[int]:
    """The `count` lowest ids for new brokers of a pool; fewer when its range has no more.

    >>> from dataclasses import replace
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


def pools_declared(
    documents: Sequence[PoolDocument] | None, main: BrokerPool, path: str, problems: list[Problem]
) -> tuple[BrokerPool, ...]:
    """The pools of `pools` below spec.brokers.

    Args:
        documents: what is written; None where `pools` is not.
        main: what spec.brokers says, the only pool where it names none.
        path: of `pools`.

    Returns:
        The pools with distinct names, in their order; none where `pools` is written and names none, so that a broker
        is not taken for one of `main`.
    """
    if documents is None:
        return (main,)
    pools = [_pool(one, main, f"{path}[{index}]", problems) for index, one in enumerate(documents)]
    _check_ranges(pools, problems)
    count = sum(pool.replicas for pool in pools)
    if pools and not count and not any(problem.path.startswith(path) for problem in problems):
        problems.append(Problem(path, "have no broker: one of them needs replicas"))
    elif count > MOST_BROKERS:
        problems.append(Problem(path, f"have {count} brokers, more than {MOST_BROKERS}"))
    found: dict[str, BrokerPool] = {}
    for pool in pools:
        if pool.name:
            found.setdefault(pool.name, pool)
    return tuple(found.values())


def _pool(document: PoolDocument, main: BrokerPool, path: str, problems: list[Problem]) -> BrokerPool:
    written = document.written()
    own = broker_config(document.config or {}, path, problems)
    return BrokerPool(
        document.name,
        document.replicas,
        disks=main.disks if document.disks is None else disks_declared(document.disks),
        config={**main.config, **own},
        resources=main.resources if document.resources is None else document.resources,
        racks=main.racks if document.racks is None else document.racks,
        template=document.template.over(main.template),
        id_range=document.id_range,
        path=path,
        written={**main.written, **{part: f"{path}.{part}" for part in written}},
    )


def disks_declared(disks: tuple[DiskSpec, ...] | None) -> tuple[DiskSpec, ...]:
    """The disks; one with the name d0 where there is none."""
    return disks or (DiskSpec("d0"),)


def broker_config(config: Mapping[str, str], path: str, problems: list[Problem]) -> dict[str, str]:
    """The broker keys of a `config` that are no secrets. Reports those that are unknown, that the operator sets, and
    values that brokers do not take.

    Args:
        path: of the mapping that has the field `config`.
    """
    kept = without_secrets(config, f"{path}.config", f"{path}.configSecrets", problems)
    for key, value in kept.items():
        if key in OWNED_KEYS:
            instead = f"; write {OWNED_INSTEAD[key]}" if key in OWNED_INSTEAD else ""
            message = f"is set by the operator; it cannot be set here{instead}"
            problems.append(Problem(f"{path}.config.{key}", message))
        elif wrong := broker_value_problem(key, value):
            problems.append(Problem(f"{path}.config.{key}", wrong))
    return kept


def _check_ranges(pools: Sequence[BrokerPool], problems: list[Problem]) -> None:
    for place, pool in enumerate(pools):
        for other in pools[:place]:
            one, two = pool.id_range, other.id_range
            if one is not None and two is not None and one.first <= two.last and two.first <= one.last:
                message = f"overlaps that of pool {other.name}, {two.first} to {two.last}"
                problems.append(Problem(f"{pool.path}.idRange", message))
